"""Recognition of a reply's head that upstream has sent before, without parsing it again.

Local model servers send the same head with each whole reply of a connection, except for the length
of the body and, once a second, the date. If it arrives together with its whole body, its meaning is
known: llhttp parsed the same bytes before.
"""

from __future__ import annotations

from proxy.http.wire.headers import KnownBytes, known_bytes, to_client, without
from proxy.http.wire.upstream import UpstreamReply


class KnownReply:
    """The head of a whole reply after which the connection could be kept."""

    __slots__ = ("_crossing", "_headers", "_position", "_status", "_values", "head")

    def __init__(self, head: KnownBytes, reply: UpstreamReply) -> None:
        """Keep a parsed reply's status and fields; it must have a `content-length`."""
        self.head = head
        self._status = reply.status
        self._headers, self._values = reply.headers.copy(), reply.values.copy()
        self._crossing = without(to_client(reply.headers), b"content-length")
        self._position = [name for name, _ in reply.headers].index(b"content-length")

    def tell(self, reply: UpstreamReply, length: bytes) -> None:
        """Fill in status and headers of a reply, with another content length."""
        reply.status, reply.crossing = self._status, self._crossing
        reply.headers = headers = self._headers.copy()
        headers[self._position] = (b"content-length", length)
        reply.values = values = self._values.copy()
        values[b"content-length"] = length


def known_reply(data: bytes, reply: UpstreamReply) -> KnownReply | None:
    """Return a recognizer of a reply's head, or None if none can be made.

    `data` must hold the parsed reply alone, with its whole body. None for a head of more than 8,192
    bytes, one without a length, or one whose end is not certain.
    """
    head = known_bytes(data)
    return None if head is None else KnownReply(head, reply)
