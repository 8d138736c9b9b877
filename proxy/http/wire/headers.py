"""Header fields: which ones the proxy passes on, and the names of its own.

`exchange/outcome.py` decides which reply carries our own fields, and `holds/held.py` does so for a
held reply that is fetched. The end of this module recognizes a head that was sent before by its
bytes, either a client's (`http/listener/http_cycle.py`) or an upstream's
(`http/pool/known_reply.py`). If llhttp parsed a head once, alone and from its first byte, the
same bytes mean the same again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import compress
from operator import itemgetter
from typing import Final

from proxy.http.wire.session_cookie import sets_session, without_session

Headers = list[tuple[bytes, bytes]]
"""Header fields in their order, names in lower case; a name may occur more than once."""

PREFIX = b"x-pinocchio-"

CONFIDENCE = PREFIX + b"confidence"
STATUS = PREFIX + b"confidence-status"
REASON = PREFIX + b"confidence-reason"
SUPPORT = PREFIX + b"support"
BASIS = PREFIX + b"basis"
ACTION = PREFIX + b"action"
POLICY = PREFIX + b"policy"
MODE = PREFIX + b"mode"
WOULD_ACTION = PREFIX + b"would-action"
LABEL = PREFIX + b"label"
CALIBRATOR = PREFIX + b"calibrator"
REQUEST_ID = PREFIX + b"request-id"
REVIEW_ID = PREFIX + b"review-id"
FALLBACK_FROM = PREFIX + b"fallback-from"
CLARIFICATION = PREFIX + b"clarification"
OVERHEAD_MS = PREFIX + b"overhead-ms"
SCORE_MS = PREFIX + b"score-ms"
ERROR = PREFIX + b"error"
DOMAIN = PREFIX + b"domain"
TAGS = PREFIX + b"tags"
VIA = PREFIX + b"via"  # the proxies that a request has passed, see loops.py

# RFC 9110, 7.6.1, and fields that belong to one connection by convention.
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
name_of: Callable[[tuple[bytes, bytes]], bytes] = itemgetter(0)
_LINE_OF: Final = b": ".join
MAX_NAMES = 2_000  # names to remember; bounded because clients choose them
LONGEST_NAME = 64  # bytes
LONGEST_HEAD: Final = 8_192  # bytes of a head that a connection keeps
HEADS_LEARNT: Final = 3  # heads in a row that a connection learns although none was repeated
MOST_DIGITS: Final = 6  # digits of the length of the body that follows
REPLACED_IN_REQUESTS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}


class _ForwardedNames(dict[bytes, bool]):
    """Whether fields of a name are passed on, cached per name because names are few."""

    def __init__(self, dropped: frozenset[bytes]) -> None:
        self._dropped = dropped

    def __missing__(self, name: bytes) -> bool:
        """Return whether fields of a name are passed on; the answer is stored for short names."""
        crosses = name not in self._dropped and not name.startswith(PREFIX)
        if len(self) < MAX_NAMES and len(name) <= LONGEST_NAME:
            self[name] = crosses
        return crosses


_NAMES_NO_FIELD = (b"keep-alive", b"close")  # nearly all values of `connection`
_COOKIES = frozenset({b"cookie", b"set-cookie"})  # may hold the review desk's session
_TO_UPSTREAM = _ForwardedNames(REPLACED_IN_REQUESTS.union(_COOKIES))
_TO_CLIENT = _ForwardedNames(HOP_BY_HOP.union(_COOKIES))
_TO_UPSTREAM[VIA] = True


def _select_fields(headers: Headers, crosses: _ForwardedNames) -> Headers:
    """Return the fields whose names `crosses` lets pass, without those that `connection` names.

    Cookies are kept except the review desk's session.
    """
    values = dict(headers)
    is_plain = _COOKIES.isdisjoint(values) and len(values) == len(headers)
    if is_plain and values.get(b"connection", b"close") in _NAMES_NO_FIELD:  # the fast path
        return [*compress(headers, map(crosses.__getitem__, values))]
    kept: Headers = []
    names: list[bytes] = []
    for field in headers:
        if crosses[field[0]]:
            kept.append(field)
        elif field[0] == b"connection" and field[1] not in _NAMES_NO_FIELD:
            names += [part.strip() for part in field[1].lower().split(b",")]
        elif field[0] in _COOKIES:
            kept += _without_session(field)
    if not names:
        return kept
    dropped = frozenset(names)
    return [field for field in kept if field[0] not in dropped]


def _without_session(field: tuple[bytes, bytes]) -> Headers:
    """Return a cookie field as a list without the desk's session; empty if nothing is left."""
    name, value = field
    if name == b"set-cookie":
        return [] if sets_session(value) else [field]
    cookies = without_session(value)
    return [(name, cookies)] if cookies is not None else []


class KeptHeaders(list[tuple[bytes, bytes]]):
    """Header fields that many requests share, with values derived from them; never modified."""

    __slots__ = ("opening", "upstream", "written")

    def __init__(self, fields: Headers) -> None:
        """Keep a copy of the fields; nothing is derived from them yet."""
        super().__init__(fields)
        self.upstream: KeptHeaders | None = None  # the fields that are passed on to upstream
        self.opening = b""  # the opening of the last head that these fields were written to
        self.written = b""  # that head without the length of the body


def to_upstream(headers: Headers) -> Headers:
    """Return the client's header fields that go upstream.

    Fields of the client's connection and our own are removed, except `VIA`, and so are the cookies
    of the review desk.
    """
    if type(headers) is not KeptHeaders:
        return _select_fields(headers, _TO_UPSTREAM)
    if headers.upstream is None:
        headers.upstream = KeptHeaders(_select_fields(headers, _TO_UPSTREAM))
    return headers.upstream


def to_client(headers: Headers) -> Headers:
    """Return upstream's header fields that go to the client.

    Fields of upstream's connection are removed, and so are those with our names or cookies.
    """
    return _select_fields(headers, _TO_CLIENT)


def serialize_fields(headers: Headers) -> bytes:
    """Serialize fields as lines of a head, each with its line end.

    Raises ValueError for a field that contains a line end.
    """
    lines = [*map(_LINE_OF, headers)]
    text = b"".join(lines)
    if text.find(b"\r") >= 0 or text.find(b"\n") >= 0:  # faster: `in` tries an integer first
        raise ValueError("a header field with a line end")
    lines.append(b"")
    return b"\r\n".join(lines)


def with_length(headers: Headers, length: int) -> Headers:
    """Return the fields with `content-length` set to `length`, in its old place or at the end."""
    field = (b"content-length", b"%d" % length)
    names = [*map(name_of, headers)]
    if b"content-length" not in names:
        return [*headers, field]
    changed = headers.copy()
    changed[names.index(b"content-length")] = field
    return changed


def without(headers: Headers, *names: bytes) -> Headers:
    """Return the fields whose name is none of `names`; the same list if none has one of them."""
    for field in headers:
        if field[0] in names:
            return [field for field in headers if field[0] not in names]
    return headers


def with_header(headers: Headers, name: bytes, value: bytes) -> Headers:
    """Return the fields with one field `name`, at the end, in place of all others of that name."""
    return [*without(headers, name), (name, value)]


def encode_fields(headers: Iterable[tuple[str, str]]) -> Headers:
    """Encode text fields of another library: names in lower case, values in latin-1."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the first value of `name` (lower case), or None."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def first_values(headers: Headers) -> dict[bytes, bytes]:
    """Return the first value of each name."""
    values = dict(headers)
    return values if len(values) == len(headers) else dict(reversed(headers))


class WithHeaders:
    """A base for classes with header fields; `values` has the first value of each name."""

    __slots__ = ()
    values: dict[bytes, bytes]

    def header(self, name: bytes) -> str | None:
        """Return the first value of `name` (lower case), or None."""
        value = self.values.get(name)
        return None if value is None else value.decode("latin-1")


_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]{1,6})\r\n", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


class KnownBytes:
    """A head without the digits of its content length; `size` is its length in bytes."""

    __slots__ = ("_after", "_before", "_begins", "size")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after, self._begins = before, after, len(before)
        self.size = len(before) + len(after)

    def length_in(self, data: bytes) -> bytes | None:
        """Return the digits of the body's length if `data` begins with this head, else None.

        Also returns None if more bytes follow the head than that length.
        """
        begins, after = self._begins, self._after
        ends = data.find(b"\r", begins, begins + MOST_DIGITS + 1)
        if not (data.startswith(self._before) and data.startswith(after, ends) and ends > 0):
            return None
        digits = data[begins:ends]
        if not digits.isdigit():
            return None
        size = int(digits)
        return digits if len(data) - ends - len(after) <= size else None


def known_bytes(data: bytes, *, has_body: bool = True) -> KnownBytes | None:
    """Return the head of the single message in `data`, to be recognized when it is sent again.

    With `has_body`, `data` must hold the whole body too, else none of it. Returns None for a head
    that is too long, has no length, or whose end is uncertain.
    """
    size = data.find(_END) + len(_END)
    if not len(_END) < size <= LONGEST_HEAD:
        return None
    match = _LENGTH.search(data, 0, size)
    # If another kind of line end had ended the head earlier, the sizes would not add up.
    if match is None or len(data) != size + (int(match[1]) if has_body else 0):
        return None
    return KnownBytes(data[: match.start(1)], data[match.end(1) : size])
