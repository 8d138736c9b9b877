"""Heads that a client repeats, recognized by their bytes instead of being parsed again.

API clients send the same head with every request of a connection, except for the body's length. If
such a head arrives at once, with its body, a part of it or none yet, its meaning is known: llhttp
has read these very bytes before, and `request_heads.py` has accepted them.
"""

from __future__ import annotations

from typing import Any

from proxy.http.wire.headers import KnownBytes, known_bytes
from proxy.http.wire.http import CLIENT, KNOWN, Scope, SeenHead


class KnownHead:
    """A head that was read before, with its ASGI `scope`."""

    __slots__ = ("_position", "_scope", "head", "is_head", "known")

    def __init__(self, head: KnownBytes, scope: Scope) -> None:
        self.head = head
        headers = scope["headers"].copy()  # the application may add to the original
        self._scope = {**scope, "headers": headers}
        self._scope.pop(CLIENT, None)
        self.known = self._scope[KNOWN] = SeenHead()
        self.is_head = scope["method"] == "HEAD"
        self._position = [name for name, _ in headers].index(b"content-length")

    def scope(self, length: bytes) -> dict[str, Any]:
        """Return a new scope of the head with another length; only the values are shared."""
        scope = self._scope.copy()
        scope["headers"] = headers = scope["headers"].copy()
        headers[self._position] = (b"content-length", length)
        return scope


def known_head(data: bytes, scope: Scope, *, has_body: bool = True) -> KnownHead | None:
    """Return the head of the single request in `data`, which was read to its end.

    `has_body` says whether its whole body is in the data, or none of it. None for a head that is
    too long or without a length, or whose end is not certain.
    """
    head = known_bytes(data, has_body=has_body)
    return None if head is None else KnownHead(head, scope)
