"""The head that a client sends again and again, told by its bytes instead of parsed anew.

Clients of an API send the same head with every request of a connection, but for the length of the
body. Where such a head comes at once, with its body, a part of it or none yet, what it says is
known: llhttp read these very bytes before, and `request_heads.py` had nothing against them.
"""

from __future__ import annotations

from typing import Any

from proxy.wire.headers import KnownBytes, known_bytes
from proxy.wire.http import CLIENT, KNOWN, Known, Scope


class KnownHead:
    """A head that was read; `scope` is what it says."""

    __slots__ = ("_position", "_scope", "head", "is_head", "known")

    def __init__(self, head: KnownBytes, scope: Scope) -> None:
        self.head = head
        headers = scope["headers"].copy()  # whoever answers may add to them
        self._scope = {**scope, "headers": headers}
        self._scope.pop(CLIENT, None)
        self.known = self._scope[KNOWN] = Known()
        self.is_head = scope["method"] == "HEAD"
        self._position = [name for name, _ in headers].index(b"content-length")

    def scope(self, length: bytes) -> dict[str, Any]:
        """What the head says with another length; nothing of it is shared but values."""
        scope = self._scope.copy()
        scope["headers"] = headers = scope["headers"].copy()
        headers[self._position] = (b"content-length", length)
        return scope


def known_head(data: bytes, scope: Scope, *, has_body: bool = True) -> KnownHead | None:
    """The head of the request that came alone in `data`, with its whole body or with none of it,
    and was read to its end; None for one that is not worth it, or whose end is not sure."""
    head = known_bytes(data, has_body=has_body)
    return None if head is None else KnownHead(head, scope)
