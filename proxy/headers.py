"""Which header fields cross the proxy, and the names of our own."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.upstream import Headers

PREFIX = b"x-pinocchio-"

CONFIDENCE = PREFIX + b"confidence"
STATUS = PREFIX + b"confidence-status"
REASON = PREFIX + b"confidence-reason"
ACTION = PREFIX + b"action"
POLICY = PREFIX + b"policy"
MODE = PREFIX + b"mode"
WOULD_ACTION = PREFIX + b"would-action"
CALIBRATOR = PREFIX + b"calibrator"
REQUEST_ID = PREFIX + b"request-id"
REVIEW_ID = PREFIX + b"review-id"
OVERHEAD_MS = PREFIX + b"overhead-ms"
SCORE_MS = PREFIX + b"score-ms"
ERROR = PREFIX + b"error"
DOMAIN = PREFIX + b"domain"
TAGS = PREFIX + b"tags"

# RFC 9110, 7.6.1, and what belongs to one connection by custom
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
MAX_NAMES = 10_000  # that are remembered; clients choose them
REPLACED_IN_REQUESTS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}


class _Fates(dict[bytes, bool]):
    """Whether fields of a name cross; names are few, and each is looked at once."""

    def __init__(self, dropped: frozenset[bytes]) -> None:
        self._dropped = dropped

    def __missing__(self, name: bytes) -> bool:
        crosses = name not in self._dropped and not name.startswith(PREFIX)
        if len(self) < MAX_NAMES:
            self[name] = crosses
        return crosses


_TO_UPSTREAM, _TO_CLIENT = _Fates(REPLACED_IN_REQUESTS), _Fates(HOP_BY_HOP)


def _crossing(headers: Iterable[tuple[bytes, bytes]], crosses: _Fates) -> Headers:
    named: set[bytes] = set()
    kept = []
    for field in headers:
        if crosses[field[0]]:
            kept.append(field)
        elif field[0] == b"connection":
            named.update(part.strip() for part in field[1].lower().split(b","))
    if named and not named.isdisjoint(name for name, _ in kept):
        return [field for field in kept if field[0] not in named]
    return kept


def to_upstream(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A client's header fields without those of its connection and ours."""
    return _crossing(headers, _TO_UPSTREAM)


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Upstream's header fields without those of its connection and any in our name."""
    return _crossing(headers, _TO_CLIENT)


def without(headers: Iterable[tuple[bytes, bytes]], *names: bytes) -> Headers:
    return [field for field in headers if field[0] not in names]


def with_header(headers: Iterable[tuple[bytes, bytes]], name: bytes, value: bytes) -> Headers:
    return [*without(headers, name), (name, value)]


def encoded(headers: Iterable[tuple[str, str]]) -> Headers:
    """Fields that another library gives as text."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
