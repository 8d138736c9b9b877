"""The errors of the proxy, and how clients see them; messages are written where they are raised.

    ProxyError                      status, type, code and param of OpenAI's error envelope
    ├── BadRequestError             400  the request cannot be read
    ├── TooSlowError                408  the request did not arrive in time
    ├── HeadTooLargeError           431  more bytes or fields of header than are read
    ├── ShedError                   503  more than the proxy can take: retry in a moment
    │   ├── BusyError               503  all connections are taken
    │   └── OverloadedError         503  too many large bodies are being read
    ├── InvalidKeyError             401  no client key, or no valid one
    ├── BodyTooLargeError           413  larger than `limits.max_body`
    ├── HostNotAllowedError         403  not of this machine, while open on loopback
    ├── NotAllowedError             403  at the review desk: another role, or another site's page
    ├── NotFoundError               404  no such held reply or result, or not for this key
    ├── UnknownModelError           404  no route of the configuration matches the model
    ├── HeldForReviewError          422  a policy holds the reply and answers with an error
    ├── RejectedError               422  a reviewer rejected the reply, or decided on it too late
    ├── BlockedByPolicyError        422  a policy blocks the reply
    │   └── UnreadableReplyError    422  a policy has to decide on a reply that cannot be read
    ├── DecidedError                409  at the review desk: somebody, or time, was faster
    ├── NotScoredError              422  only a score was requested, and there is none
    ├── UnusableEditError           422  at the review desk: the edited reply would be broken
    ├── RateLimitedError            429  more requests than the key or its team may make
    ├── StoreError                  503  a reply that must be held cannot be stored
    │   └── TooManyHeldError        503  the limit of held replies of the key, its team, or in all
    ├── UpstreamLoopError           508  a request came back: an upstream is this proxy itself
    └── UpstreamError               502  upstream gave no (whole) HTTP answer
        ├── UpstreamTimeoutError    504  nothing arrived in time
        ├── UpstreamClosedError     503  its breaker is open: it failed several times in a row
        └── UpstreamBrokenError     502  the answer broke off

    StartupError                    the proxy cannot start; has a named exit status

Codes are part of the interface: the envelope and the log have the same code. A hold is never 409,
429 or 5xx, which official clients retry: they would pay twice. Too many requests are 429, because
nothing was paid for yet and a retry is right. Errors that upstream answers with are no exceptions
here; they are relayed unchanged.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar

UNREADABLE_EVENT = "unreadable_event"  # the code of an event of a stream that cannot be read
RETRY_AFTER_S = 2  # for requests that are refused under load


class ProxyError(Exception):
    """An error that a client sees as OpenAI's envelope, marked `x-pinocchio-error: true`.

    `details` are further members of the error object, for clients that cannot see a stream's
    headers.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    may_be_retried: ClassVar[bool] = True  # False where a retry would only pay upstream again

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.machine_code = code or self.code
        self.headers: list[tuple[bytes, bytes]] = []
        self.details: dict[str, Any] = {}
        if not self.may_be_retried:
            self.headers.append((b"x-should-retry", b"false"))

    def envelope(self) -> dict[str, Any]:
        """Return the error in OpenAI's form: `{"error": {"message": .., "code": ..}}`."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.machine_code,
        }
        return {"error": error | self.details}

    def body(self) -> bytes:
        """Return the envelope as JSON in UTF-8."""
        return json.dumps(self.envelope(), ensure_ascii=False).encode()


class BadRequestError(ProxyError):
    status, type, code = 400, "invalid_request_error", "invalid_request"


class UpgradeRefusedError(ProxyError):
    """A WebSocket is refused in favour of HTTP.

    Clients that try a WebSocket first (Codex) fall back to HTTP at once on this status, and only on
    this one.
    """

    status, type, code = 426, "invalid_request_error", "websocket_undecided"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers.append((b"upgrade", b"HTTP/1.1"))  # required by RFC 9110, 15.5.22


class TooSlowError(ProxyError):
    status, type, code = 408, "invalid_request_error", "request_timeout"


class HeadTooLargeError(ProxyError):
    status, type, code = 431, "invalid_request_error", "header_too_large"


class ShedError(ProxyError):
    """The proxy cannot take more now; a retry after a moment is right."""

    status = 503

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))


class BusyError(ShedError):
    code = "too_many_connections"


class OverloadedError(ShedError):
    code = "overloaded"


class InvalidKeyError(ProxyError):
    status, type, code = 401, "invalid_request_error", "invalid_api_key"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers.append((b"www-authenticate", b"Bearer"))


class RateLimitedError(ProxyError):
    """Too many requests; the client has to wait `wait_s` seconds."""

    status, type, code = 429, "requests", "rate_limit_exceeded"

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.headers.append((b"retry-after", b"%d" % math.ceil(wait_s)))
        self.headers.append((b"retry-after-ms", b"%d" % math.ceil(wait_s * 1_000)))


class BodyTooLargeError(ProxyError):
    status, type, code = 413, "invalid_request_error", "body_too_large"


class HostNotAllowedError(ProxyError):
    status, type, code = 403, "invalid_request_error", "host_not_allowed"


class NotAllowedError(ProxyError):
    status, type, code = 403, "invalid_request_error", "not_allowed"


class NotFoundError(ProxyError):
    status, type, code = 404, "invalid_request_error", "not_found"


class UnknownModelError(ProxyError):
    status, type, code = 404, "invalid_request_error", "model_not_found"


class HeldForReviewError(ProxyError):
    status, type, code = 422, "policy_error", "held_for_review"
    may_be_retried = False


class RejectedError(ProxyError):
    status, type, code = 422, "policy_error", "held_reply_rejected"
    may_be_retried = False


class BlockedByPolicyError(ProxyError):
    status, type, code = 422, "policy_error", "blocked_by_policy"
    may_be_retried = False


class UnreadableReplyError(BlockedByPolicyError):
    """An enforced policy has to decide on a reply that cannot be read."""

    code = "unreadable_reply"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"upstream's reply is no completion that the policy could decide on ({reason})"
        )


class DecidedError(ProxyError):
    """A review is decided already; `review` is the reply with that decision."""

    status, type, code = 409, "invalid_request_error", "review_decided"

    def __init__(self, message: str, review: Mapping[str, Any], *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.review = review

    def envelope(self) -> dict[str, Any]:
        return {**super().envelope(), "review": self.review}


class NotScoredError(ProxyError):
    """There is no score; `reason` is the word for why."""

    status, type, code = 422, "invalid_request_error", "not_scored"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.details["reason"] = reason


class UnusableEditError(ProxyError):
    """An edited reply would be broken; `param` names the place of the mistake in `content`."""

    status, type, code = 422, "invalid_request_error", "unusable_edit"


class StoreError(ProxyError):
    status, type, code = 503, "server_error", "store_unavailable"
    may_be_retried = False


class TooManyHeldError(StoreError):
    """Too many replies are held: reviewers are behind, but the store is well.

    This needs no alarm about the store.
    """

    code = "too_many_held"


class UpstreamLoopError(ProxyError):
    """A request came back to this proxy; it is not retried until the configuration is corrected."""

    status, type, code = 508, "upstream_error", "upstream_is_this_proxy"
    may_be_retried = False

    def __init__(self) -> None:
        super().__init__(
            "this request has passed this proxy before: its upstream leads back here; correct "
            "the upstream's base_url in the proxy's configuration (or OPENAI_BASE_URL where the "
            "proxy was started)"
        )


class UpstreamError(ProxyError):
    status, type, code = 502, "upstream_error", "upstream_unreachable"


class UpstreamTimeoutError(UpstreamError):
    status, code = 504, "upstream_timeout"


class UpstreamClosedError(UpstreamError):
    """An upstream's breaker is open; no request is sent there for `wait_s` seconds."""

    status, code = 503, "upstream_unavailable"

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.headers.append((b"retry-after", b"%d" % max(1, math.ceil(wait_s))))


class UpstreamBrokenError(UpstreamError):
    code = "upstream_broke_off"


class ExitStatus(enum.IntEnum):
    """The process's exit status, printed by name with the reason."""

    OK = 0
    FAILED = 1
    UNUSABLE_INPUT = 2
    PORT_TAKEN = 4
    CHECKPOINT_MISSING = 5
    HUB_UNREACHABLE = 6
    UNSAFE = 7
    STORE_UNAVAILABLE = 8


class StartupError(Exception):
    """The proxy cannot start: one sentence, and the exit status for its kind."""

    def __init__(self, status: ExitStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
