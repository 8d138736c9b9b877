"""Messages between the supervisor and its processes, over a pair of Unix sockets.

Only processes that the supervisor forked hold an end of a pair, so what arrives is theirs, and is
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
    """`kind` says what it is about, `number` to which question it belongs; 0 for none."""

    kind: str
    number: int = 0
    body: Any = None


def packed(message: Message) -> bytes:
    """A message as bytes on the wire."""
    value = pickle.dumps(tuple(message), pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(value)) + value


class Unpacker:
    """Puts messages together from the parts in which their bytes arrive."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, part: bytes) -> Iterator[Message]:
        """The messages that are whole by now."""
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
    """A worker's end: whoever sends may wait, and one thread reads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._unpacker = Unpacker()

    def send(self, message: Message) -> None:
        """From any thread; raises OSError where the supervisor is gone."""
        text = packed(message)
        with self._lock:
            self._end.sendall(text)

    def messages(self) -> Iterator[Message]:
        """All that come, until the supervisor is gone."""
        while part := self._received():
            yield from self._unpacker.feed(part)

    def _received(self) -> bytes:
        try:
            return self._end.recv(_AT_ONCE)
        except OSError:
            return b""


class Link:
    """The supervisor's end: it never waits, so that a process that is stuck delays no other."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self._unsent = bytearray()
        self._unpacker = Unpacker()

    @property
    def has_unsent(self) -> bool:
        """Whether there is something to write once the socket takes it."""
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Writes now what the socket takes, and keeps the rest."""
        self._unsent += packed(message)
        self.flush()

    def flush(self) -> None:
        """Writes on; a process that is gone is noticed elsewhere."""
        try:
            while self._unsent:
                del self._unsent[: self.end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[Message]:
        """What has arrived by now."""
        found: list[Message] = []
        try:
            while part := self.end.recv(_AT_ONCE):
                found += self._unpacker.feed(part)
        except OSError:  # nothing more for now, or it is gone
            pass
        return found

    def close(self) -> None:
        self.end.close()
