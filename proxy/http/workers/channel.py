"""Messages between the supervisor and its processes, over a pair of Unix sockets.

Only processes that the supervisor forked hold an end of a pair, so messages are trusted and
unpickled. A message is its length (4 bytes), then the pickled value.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_LENGTH: Final = struct.Struct(">I")
_AT_ONCE: Final = 2**18


class Message(NamedTuple):
    """A message of a kind; `number` is that of the question it belongs to, 0 for none."""

    kind: str
    number: int = 0
    body: Any = None


def pack_message(message: Message) -> bytes:
    """Return a message as bytes on the wire."""
    value = pickle.dumps(tuple(message), pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(value)) + value


class Unpacker:
    """Assembles messages from the parts in which their bytes arrive."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, part: bytes) -> Iterator[Message]:
        """Add a part, and yield the messages that are whole now."""
        self._unread += part
        while len(self._unread) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._unread)
            end = _LENGTH.size + length
            if len(self._unread) < end:
                return
            message = Message(*pickle.loads(self._unread[_LENGTH.size : end]))
            del self._unread[:end]
            yield message


class Channel:
    """A worker's end of a pair: sending may block, and one thread reads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._unpacker = Unpacker()

    def send(self, message: Message) -> None:
        """Send a message, from any thread; raises OSError where the supervisor is gone."""
        text = pack_message(message)
        with self._lock:
            self._end.sendall(text)

    def messages(self) -> Iterator[Message]:
        """Yield all messages that arrive, until the supervisor is gone."""
        while part := self._receive_bytes():
            yield from self._unpacker.feed(part)

    def _receive_bytes(self) -> bytes:
        """Wait for bytes and return them; empty once the supervisor is gone."""
        try:
            return self._end.recv(_AT_ONCE)
        except OSError:
            return b""


class WorkerLink:
    """The supervisor's end of a pair: it never blocks, so a stuck process delays no other."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self._unsent = bytearray()
        self._unpacker = Unpacker()

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait for the socket to accept them."""
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Send as much as the socket accepts now, and keep the rest."""
        self._unsent += pack_message(message)
        self.flush()

    def flush(self) -> None:
        """Send the kept bytes as far as possible; a dead process is noticed elsewhere."""
        try:
            while self._unsent:
                del self._unsent[: self.end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[Message]:
        """Return the messages that have arrived whole."""
        found: list[Message] = []
        try:
            while part := self.end.recv(_AT_ONCE):
                found += self._unpacker.feed(part)
        except OSError:  # nothing more for now, or the process is gone
            pass
        return found

    def close(self) -> None:
        self.end.close()
