"""The hostile upstream of `scripts/bench hostile`.

python scripts/benches/hostile/bench_hostile_upstream.py PORT

Its answer depends on the model of the request, and it sends 10 Mbit/s in all.

    hostile-events     a stream of events without data, which never ends
    hostile-bomb       60 KB of Brotli that stand for 60 MB
    hostile-endless    a JSON body that never ends
    hostile-values     a completion of nearly as many values as are read
    hostile-calls      deltas of tens of thousands of tool calls
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import brotli
from bench_attacks import PIECE, Bucket
from bench_http import Reader, chunk, completion

_MODEL: Final = re.compile(rb'"model": ?"(hostile-\w+)"')
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n%b\r\n"
_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"


def replies() -> dict[str, tuple[bytes, bytes, bool]]:
    """Return (head, body, whether the body is repeated endlessly) by model."""
    bomb = json.dumps(completion("a" * 60_000_000)).encode()
    values = json.dumps({**completion("hi"), "x": [[]] * 900_000}).encode()
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls = [{"index": n, "id": f"c{n}", **call} for n in range(2_000)]
    delta = {"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}
    return {
        "hostile-events": (_HEAD % (_EVENTS, b""), b"\n\n" * (PIECE // 2), True),
        "hostile-bomb": (
            _HEAD % (_JSON, b"content-encoding: br\r\n"),
            brotli.compress(bomb, quality=5),
            False,
        ),
        "hostile-endless": (_HEAD % (_JSON, b""), b'{"a": "' + b"a" * PIECE, True),
        "hostile-values": (_HEAD % (_JSON, b""), values, False),
        "hostile-calls": (
            _HEAD % (_EVENTS, b""),
            b"data: " + json.dumps(delta).encode() + b"\n\n",
            True,
        ),
    }


class Upstream:
    """A server that answers each connection's requests, one after the other."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.replies = replies()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends or sends anything else."""
        request = Reader()
        with suppress(OSError, ValueError):
            while data := await reader.read(2**16):
                if request.feed(data):
                    found = _MODEL.search(bytes(request.body))
                    request.reset()
                    await self._answer(writer, found[1].decode() if found else "hostile-values")
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, model: str) -> None:
        """Write the reply of the model in chunks, at the allowed rate."""
        head, body, is_endless = self.replies[model]
        writer.write(head)
        for piece in _pieces(body, is_endless):
            data = chunk(piece)
            await self.bucket.take(len(data))
            writer.write(data)
            await writer.drain()
        writer.write(chunk(b""))


def _pieces(body: bytes, is_endless: bool) -> Iterator[bytes]:
    """Yield the body in pieces, again and again if it is endless."""
    while True:
        for at in range(0, len(body), PIECE):
            yield body[at : at + PIECE]
        if not is_endless:
            return


async def main(port: int) -> None:
    """Serve on the port of loopback forever, and print `ready` at the start."""
    server = await asyncio.start_server(Upstream().serve, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
