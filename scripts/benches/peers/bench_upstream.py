"""The canned upstream of the peer benchmark.

python scripts/benches/peers/bench_upstream.py PORT

It parses no JSON: its answer depends on the path and on the model name in the body.

    bench            a completion of about 1 KB; with "stream": true, 60 deltas in one write
    bench-spaced     60 deltas, each a write of its own, about 1 ms apart; the first one carries
                     the time at which it was written
    bench-big        a completion of 1 MB
    bench-varied     a completion of about 1 KB, in other words each time
    /v1/embeddings   an embedding of about 1 KB
    GET /stats       the numbers of connections and requests so far; other GETs: an empty list
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from itertools import cycle
from typing import cast

import uvloop
from bench_http import (
    ANSWER,
    BIG,
    BIG_ANSWER,
    EMBED,
    HEADERS,
    LAST_SENTENCE,
    SPACED,
    STAMP,
    VARIANTS,
    VARIED,
    WORDS,
    Reader,
    chunk,
    completion,
    embedding,
    event,
    events,
    json_reply,
    other_words,
)

SPACE_S = 0.001

_COMPLETION = json_reply(completion(ANSWER))
_BIG = json_reply(completion(BIG_ANSWER))
_VARIED = cycle(
    json_reply(completion(f"{other_words(ANSWER, number)} {LAST_SENTENCE}"))
    for number in range(VARIANTS)
)
_EMBEDDING = json_reply(embedding())
_EMPTY = json_reply({"object": "list", "data": [], "status": "ok"})
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\n" + HEADERS % b"text/event-stream" + b"transfer-encoding: chunked\r\n\r\n"
)
_EVENTS = [chunk(data) for data in events()]
_LAST = b"".join(_EVENTS[len(WORDS) :]) + chunk(b"")
_STREAM = _STREAM_HEAD + b"".join(_EVENTS[: len(WORDS)]) + _LAST
_STAMPED = chunk(event({"role": "assistant", "content": STAMP % 0 + WORDS[0]}))
_STAMP_AT = _STAMPED.index(b"@")
_AFTER_STAMP = _STAMPED[_STAMP_AT + len(STAMP % 0) :]


class Upstream(asyncio.Protocol):
    """One connection, which stays open."""

    connections = 0
    requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and prepare to read requests."""
        Upstream.connections += 1
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self.reader = Reader()
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        """Read data, and answer a whole request; close the connection for anything but HTTP."""
        try:
            is_whole = self.reader.feed(data)
        except ValueError:  # sglang-router asks first whether we speak gRPC
            self.transport.close()
            return
        if not is_whole:
            return
        head, body = self.reader.head, bytes(self.reader.body)
        self.reader.reset()
        if head.startswith(b"get"):
            self.transport.write(_stats() if head.startswith(b"get /stats") else _EMPTY)
            return
        Upstream.requests += 1
        self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        """Write the canned reply that the path, the model's name and `stream` ask for."""
        if b'"stream":true' in body or b'"stream": true' in body:
            if SPACED.encode() in body:
                now = STAMP.encode() % time.monotonic_ns()
                self.transport.write(_STREAM_HEAD + _STAMPED[:_STAMP_AT] + now + _AFTER_STAMP)
                self.loop.call_later(SPACE_S, self._go_on, 1)
            else:
                self.transport.write(_STREAM)
        elif head.startswith(b"post " + EMBED.encode()):
            self.transport.write(_EMBEDDING)
        elif VARIED.encode() in body:
            self.transport.write(next(_VARIED))
        else:
            self.transport.write(_BIG if BIG.encode() in body else _COMPLETION)

    def _go_on(self, number: int) -> None:
        """Write delta `number` of a spaced stream, and schedule the next one.

        Does nothing for a closed connection.
        """
        if self.transport.is_closing():
            return
        if number == len(WORDS):
            self.transport.write(_LAST)
            return
        self.transport.write(_EVENTS[number])
        self.loop.call_later(SPACE_S, self._go_on, number + 1)


def _stats() -> bytes:
    """Return the reply with the numbers of connections and requests so far."""
    return json_reply({"connections": Upstream.connections, "requests": Upstream.requests})


async def serve(port: int) -> None:
    """Serve on the port of loopback forever."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=2_048)
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
