"""The head that a client sends again and again, told by its bytes instead of parsed anew.

Clients of an API send the same head with every request of a connection, but for the length of the
body. Where such a head comes at once, with its body, a part of it or none yet, what it says is
known: llhttp read these very bytes before, and `request_heads.py` had nothing against them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from proxy.wire.http import CLIENT, Known, Scope

LONGEST_HEAD: Final = 8_192  # bytes that a connection keeps
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]{1,6})\r\n", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_DIGITS: Final = 6
MOST_BODY: Final = 10**_DIGITS - 1  # bytes


class KnownHead:
    """A head that was read; `scope` is what it says, `size` what it has but for the digits."""

    __slots__ = ("_after", "_before", "_begins", "_position", "_scope", "known", "size")

    def __init__(self, before: bytes, after: bytes, scope: Scope) -> None:
        self._before, self._after, self._begins = before, after, len(before)
        headers = scope["headers"].copy()  # whoever answers may add to them
        self._scope = {**scope, "headers": headers}
        del self._scope[CLIENT]
        self.known = Known()
        self.size = len(before) + len(after)
        self._position = [name for name, _ in headers].index(b"content-length")

    def length_in(self, data: bytes) -> bytes | None:
        """The digits of a body's length, if the data are this head but for them, and that body or
        its beginning."""
        begins, after = self._begins, self._after
        ends = data.find(b"\r", begins, begins + _DIGITS + 1)
        if not (data.startswith(self._before) and data.startswith(after, ends) and ends > 0):
            return None
        digits = data[begins:ends]
        if not digits.isdigit():
            return None
        size = int(digits)
        return digits if len(data) - ends - len(after) <= size else None

    def scope(self, length: bytes) -> dict[str, Any]:
        """What the head says with another length; nothing of it is shared but values."""
        scope = self._scope.copy()
        scope["headers"] = headers = scope["headers"].copy()
        headers[self._position] = (b"content-length", length)
        return scope


def known_head(data: bytes, scope: Scope, *, has_body: bool = True) -> KnownHead | None:
    """The head of the request that came alone in `data`, with its whole body or with none of it,
    and was read to its end; None for one that is not worth it, or whose end is not sure."""
    size = data.find(_END) + len(_END)
    if not len(_END) < size <= LONGEST_HEAD:
        return None
    found = _LENGTH.search(data, 0, size)
    # a line end of another kind might have ended the head before, and then the sum is another one
    if found is None or len(data) != size + (int(found[1]) if has_body else 0):
        return None
    return KnownHead(data[: found.start(1)], data[found.end(1) : size], scope)
