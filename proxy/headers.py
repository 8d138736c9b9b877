"""Which header fields cross the proxy, and the names of our own."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.upstream import Headers

PREFIX = "x-pinocchio-"

CONFIDENCE = PREFIX + "confidence"
STATUS = PREFIX + "confidence-status"
REASON = PREFIX + "confidence-reason"
ACTION = PREFIX + "action"
POLICY = PREFIX + "policy"
MODE = PREFIX + "mode"
WOULD_ACTION = PREFIX + "would-action"
CALIBRATOR = PREFIX + "calibrator"
REQUEST_ID = PREFIX + "request-id"
REVIEW_ID = PREFIX + "review-id"
OVERHEAD_MS = PREFIX + "overhead-ms"
SCORE_MS = PREFIX + "score-ms"
ERROR = PREFIX + "error"
DOMAIN = PREFIX + "domain"
TAGS = PREFIX + "tags"

# RFC 9110, 7.6.1, and what belongs to one connection by custom
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
REPLACED_IN_REQUESTS = HOP_BY_HOP | {"host", "content-length", "expect"}


def _crossing(headers: Iterable[tuple[str, str]], dropped: frozenset[str]) -> Headers:
    headers = list(headers)
    lists = [value.lower().split(",") for name, value in headers if name == "connection"]
    named = {part.strip() for listed in lists for part in listed}
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and name not in named and not name.startswith(PREFIX)
    ]


def to_upstream(headers: Iterable[tuple[str, str]]) -> Headers:
    """A client's header fields without those of its connection and ours."""
    return _crossing(headers, REPLACED_IN_REQUESTS)


def to_client(headers: Iterable[tuple[str, str]]) -> Headers:
    """Upstream's header fields without those of its connection and any in our name."""
    return _crossing(headers, HOP_BY_HOP)


def without(headers: Iterable[tuple[str, str]], *names: str) -> Headers:
    return [(name, value) for name, value in headers if name not in names]


def with_header(headers: Iterable[tuple[str, str]], name: str, value: str) -> Headers:
    return [*without(headers, name), (name, value)]
