"""The head that an upstream sends again and again, told by its bytes instead of parsed anew.

Model servers of one's own send the same head with every whole reply of a connection, but for the
length of the body and, once a second, the date. Where it comes at once with its whole body, what it
says is known: llhttp read these very bytes before.
"""

from __future__ import annotations

from proxy.upstreams.upstream import UpstreamReply
from proxy.wire.headers import KnownBytes, known_bytes, to_client, without


class KnownReply:
    """The head of a whole reply behind which the connection could be kept."""

    __slots__ = ("_crossing", "_headers", "_position", "_status", "_values", "head")

    def __init__(self, head: KnownBytes, reply: UpstreamReply) -> None:
        self.head = head
        self._status = reply.status
        self._headers, self._values = reply.headers.copy(), reply.values.copy()
        self._crossing = without(to_client(reply.headers), b"content-length")
        self._position = [name for name, _ in reply.headers].index(b"content-length")

    def tell(self, reply: UpstreamReply, length: bytes) -> None:
        """Notes in a reply what the head says with another length."""
        reply.status, reply.crossing = self._status, self._crossing
        reply.headers = headers = self._headers.copy()
        headers[self._position] = (b"content-length", length)
        reply.values = values = self._values.copy()
        values[b"content-length"] = length


def known_reply(data: bytes, reply: UpstreamReply) -> KnownReply | None:
    """The head of the reply that came alone in `data`, with its whole body, and was read; None for
    one that is not worth it, or whose end is not sure."""
    head = known_bytes(data)
    return None if head is None else KnownReply(head, reply)
