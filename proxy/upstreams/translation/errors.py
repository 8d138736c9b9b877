"""Errors of litellm, converted to what a client of OpenAI's API expects.

    an HTTP answer from upstream    a reply with its status, its message, its `retry-after`
    a verdict of litellm's own      a reply with the status that litellm gives it
    a broken or silent connection   raises UpstreamError or a subclass of it

litellm wraps errors several times, changes statuses on the way (413 to 400, 529 to 500) and puts
its own name into messages; the answer itself is still among the causes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx
import structlog

from proxy.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError
from proxy.http.wire.headers import Headers, encode_fields
from proxy.http.wire.http import place
from proxy.http.wire.json_splice import json_object
from proxy.http.wire.upstream import UpstreamReply

log = structlog.get_logger(__name__)

_KEPT = re.compile(r"retry-after(-ms)?|x-should-retry|(x-)?request-id|.*ratelimit-.*")
_LITELLM_PREFIX = "llm_provider-"  # put by litellm before names of headers that it passes on
_WRAPPING = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - ))+")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_NOT_TRANSLATED = "translation_failed"
_CODES = {
    "ContentPolicyViolationError": "content_policy_violation",
    "ContextWindowExceededError": "context_length_exceeded",
    "UnsupportedParamsError": "unsupported_parameter",
}


def json_reply(status: int, body: Any, headers: Headers) -> UpstreamReply:
    """Return a reply with a status, a JSON body and these headers besides the content type."""

    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps(body, separators=(",", ":")).encode()

    return UpstreamReply(status, [(b"content-type", b"application/json"), *headers], chunks())


def kept_headers(headers: Mapping[str, str]) -> Headers:
    """Return those of upstream's header fields that are useful to a client of the translation."""
    fields = {name.lower().removeprefix(_LITELLM_PREFIX): value for name, value in headers.items()}
    return encode_fields((name, value) for name, value in fields.items() if _KEPT.fullmatch(name))


def error_reply(error: Exception, answered: httpx.Response | None = None) -> UpstreamReply:
    """Convert an error of litellm to a reply; raises UpstreamError if upstream gave no answer.

    `answered` is upstream's response, if it is known; if that is a success, it has no completion,
    which is an UpstreamError too. A failure to translate is logged.
    """
    chain = list(_chain(error))
    code = next((_CODES[name] for e in chain if (name := type(e).__name__) in _CODES), None)
    for cause in chain:
        if isinstance(cause, httpx.HTTPStatusError):
            return error_answer(cause.response, code)
    if answered is not None and not answered.is_success:
        return error_answer(answered, code)
    failure = _failure(error)
    if answered is not None and (failure is None or failure.machine_code == _NOT_TRANSLATED):
        raise no_answer(answered) from error
    if failure:
        if failure.machine_code == _NOT_TRANSLATED:
            log.warning(_NOT_TRANSLATED, **place(chain[-1]))
        raise failure from error
    status = getattr(error, "status_code", 500)
    return json_reply(status, _envelope(status, _words(error), code=code), [])


def no_answer(response: httpx.Response) -> UpstreamBrokenError:
    """Return the error for a successful response that is no completion.

    It quotes the error message in the response's body, if that has been read and has one.
    """
    try:
        body = json_object(response.content) or {}
    except httpx.ResponseNotRead:
        body = {}
    error = body.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    text = (
        f"upstream's answer is an error: {words}" if words else "upstream's answer is no completion"
    )
    return UpstreamBrokenError(text, code=_NOT_TRANSLATED)


def broken_stream_error(error: Exception) -> UpstreamError:
    """Return the proxy's error for an error in the middle of a stream."""
    failure = _failure(error)
    if isinstance(failure, UpstreamTimeoutError | UpstreamBrokenError):
        return failure
    reason = failure.message if failure else _words(error)
    return UpstreamBrokenError(f"upstream broke off its answer: {reason}")


def _failure(error: Exception) -> UpstreamError | None:
    """Return the proxy's error for one that is no answer: silent, broken, or not translated.

    Returns None if litellm gives it an HTTP status of its own.
    """
    import openai  # imported here, because it takes a second and litellm has loaded it by now

    chain = list(_chain(error))
    name = type(chain[-1]).__name__  # the original error says most

    def has(*kinds: type[Exception]) -> bool:
        """Return whether the error or one of its causes is of these types."""
        return any(isinstance(cause, kinds) for cause in chain)

    if has(httpx.TimeoutException, openai.APITimeoutError):
        return UpstreamTimeoutError("upstream did not answer in time")
    if has(httpx.ReadError, httpx.RemoteProtocolError):
        return UpstreamBrokenError(f"upstream broke off its answer ({name})")
    if has(httpx.TransportError, OSError):
        return UpstreamError(f"could not connect to upstream ({name})")
    status = getattr(error, "status_code", None)
    is_verdict = isinstance(status, int) and 400 <= status <= 599
    if is_verdict and not has(openai.APIConnectionError):  # litellm's name for all other errors
        return None
    text = f"litellm could not translate the request or its answer ({name})"
    return UpstreamError(text, code=_NOT_TRANSLATED)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, from the last that was raised to the first."""
    while error is not None:
        yield error
        wrapped = getattr(error, "original_exception", None)  # in litellm's MidStreamFallbackError
        error = wrapped or error.__cause__ or error.__context__


def error_answer(response: httpx.Response, code: str | None = None) -> UpstreamReply:
    """Return upstream's error as a reply with its status, and its message in OpenAI's envelope.

    `code` replaces upstream's. Raises UpstreamBrokenError for a redirect, which is not followed.
    """
    status = response.status_code
    if status < 400:
        raise UpstreamBrokenError(f"upstream answered {status}, which is not followed")
    try:
        body = response.json()
    except (ValueError, httpx.ResponseNotRead):
        body = None
    body = body[0] if isinstance(body, list) and body else body  # Gemini's streams send an array
    error = body.get("error", body) if isinstance(body, dict) else body
    error = error if isinstance(error, dict) else {"message": error}
    kind = error.get("type") or error.get("status")
    upstream_code = error.get("code")
    envelope = _envelope(
        status,
        error.get("message") or error.get("detail") or f"upstream answered {status}",
        kind=kind,
        param=error.get("param"),
        code=code or (upstream_code if isinstance(upstream_code, str) else kind),
    )
    return json_reply(status, envelope, kept_headers(response.headers))


def _envelope(
    status: int, message: Any, *, kind: Any = None, param: Any = None, code: Any = None
) -> dict[str, Any]:
    """Return OpenAI's error object; the type follows from the status where `kind` is missing."""
    default = "invalid_request_error" if status < 500 else "server_error"
    kind = kind or _TYPES.get(status, default)
    text = message if isinstance(message, str) else json.dumps(message)
    return {"error": {"message": text, "type": kind, "param": param, "code": code or kind}}


def _words(error: Exception) -> str:
    """Return litellm's message without its class names, advice for its users and tracebacks."""
    text = str(getattr(error, "message", error))
    return _WRAPPING.sub("", text).partition("\n")[0].partition(" To drop these")[0]
