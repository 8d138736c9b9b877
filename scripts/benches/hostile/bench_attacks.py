"""A hostile client of `scripts/bench hostile`.

python scripts/benches/hostile/bench_attacks.py NAME PORT

It sends as much as 10 Mbit/s allow, over as many connections as it likes, until it is ended. The
attacks named `upstream: ..` are an ordinary client of a hostile upstream: it asks, and reads
everything that comes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import brotli

BYTES_A_SECOND: Final = 10_000_000 / 8
CONNECTION_BYTES: Final = 240  # bytes of packets that open and close a connection
PIECE: Final = 2**14
MOST_OPEN: Final = 3_000
ASKING: Final = 4  # clients of the hostile upstream
UPSTREAM: Final = "upstream: "


class Bucket:
    """A rate limit on all bytes sent; `take` waits until they may be sent."""

    def __init__(self, per_s: float = BYTES_A_SECOND) -> None:
        self._per_s = per_s
        self._free_at = time.monotonic()

    async def take(self, size: int) -> None:
        """Wait until `size` more bytes may be sent."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now - PIECE / self._per_s) + size / self._per_s
        await asyncio.sleep(max(0.0, self._free_at - now))


class Attacker:
    """A client on a port, whose bytes are counted against the limit."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.bucket = Bucket()

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, whose packets count as bytes sent, and return its two streams."""
        await self.bucket.take(CONNECTION_BYTES)
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Write the data in pieces, at the allowed rate."""
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            await self.bucket.take(len(piece))
            writer.write(piece)
            await writer.drain()

    async def send(self, data: bytes, patience_s: float = 20) -> bytes:
        """Send the data on a new connection, and return the answer until the connection ends.

        Return b"" after `patience_s` seconds, or where the connection breaks.
        """
        reader, writer = await self.opened()
        try:
            await self.write(writer, data)
            async with asyncio.timeout(patience_s):
                return await reader.read()
        except (OSError, TimeoutError):
            return b""
        finally:
            writer.close()


async def over(work: Callable[[], Awaitable[object]], at_once: int) -> None:
    """Repeat the work forever, `at_once` at a time, ignoring broken connections."""

    async def again() -> None:
        """Repeat the work forever."""
        while True:
            with suppress(OSError):
                await work()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(again())


# --- heads and connections -----------------------------------------------------------------------

_LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"


async def slow_heads(attacker: Attacker) -> None:
    """Open thousands of connections, and send a byte of a head each second, forever."""

    async def one() -> None:
        """Send one head byte by byte, then close the connection."""
        _, writer = await attacker.opened()
        try:
            for byte in _LINE + b"a" * 10_000:
                await attacker.write(writer, bytes([byte]))
                await asyncio.sleep(1)
        finally:
            writer.close()

    await over(one, MOST_OPEN)


async def large_heads(attacker: Attacker) -> None:
    """Send heads of nearly the accepted size and number of fields, and beyond, forever.

    Each has a connection of its own; some have long, ever new targets.
    """
    fields = b"".join(b"x-%d: %b\r\n" % (n, b"a" * 300) for n in range(190))
    whole = (
        b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n" + fields + b"\r\n"
    )
    beyond = _LINE + b"x: " + b"a" * 200_000
    targets = b"GET /v1/models?%b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    turn = 0

    async def one() -> None:
        """Send the next of three heads on a new connection."""
        nonlocal turn
        turn += 1
        unlike = targets % (b"%d&" % turn + b"a" * 60_000)
        await attacker.send((whole, beyond, unlike)[turn % 3])

    await over(one, 20)


async def connections(attacker: Attacker) -> None:
    """Open as many silent connections as possible, and again when they are closed, forever."""

    async def one() -> None:
        """Open a connection, and wait until the server closes it."""
        reader, writer = await attacker.opened()
        try:
            await reader.read()
        finally:
            writer.close()

    await over(one, MOST_OPEN)


async def requests(attacker: Attacker) -> None:
    """Send small requests that are refused, each on a connection of its own, forever."""
    request = b"GET /nothing HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    await over(lambda: attacker.send(request), 50)


async def slow_bodies(attacker: Attacker) -> None:
    """Send bodies of 60 MB that never end, over 50 connections that share the rate, forever."""
    head = _LINE + b"content-length: 60000000\r\n\r\n"

    async def one() -> None:
        """Send one endless body, until the connection breaks."""
        _, writer = await attacker.opened()
        try:
            await attacker.write(writer, head + b"[" * 1_000)
            while True:
                await attacker.write(writer, b" " * PIECE)
        finally:
            writer.close()

    await over(one, 50)


# --- bodies --------------------------------------------------------------------------------------


def posted(body: bytes, fields: bytes = b"") -> bytes:
    """Return a request with this body; `fields` are further lines of the head, each with CRLF."""
    return _LINE + b"connection: close\r\n%bcontent-length: %d\r\n\r\n" % (fields, len(body)) + body


def chat(messages: str, more: str = "") -> bytes:
    """Return the body of a chat request; `messages` is JSON, `more` JSON text for its end.

    An example of `more` is `, "x": 1`.
    """
    return f'{{"model": "bench", "messages": {messages}{more}}}'.encode()


def _message_json(text: str = "hi") -> str:
    """Return the JSON of a conversation with this one message of the user."""
    return json.dumps([{"role": "user", "content": text}])


async def bombs(attacker: Attacker) -> None:
    """Send Brotli of a few hundred bytes, with as many values as allowed or far more, forever."""
    field = b"content-encoding: br\r\n"
    allowed = chat(_message_json(), ', "x": [' + "[]," * 80_000 + "0]")
    beyond = chat(_message_json(), ', "x": [' + "[]," * 20_000_000 + "0]")
    bodies = [posted(brotli.compress(each, quality=5), field) for each in (allowed, beyond)]
    turn = 0

    async def one() -> None:
        nonlocal turn
        turn += 1
        await attacker.send(bodies[turn % 2])

    await over(one, 50)


async def many_values(attacker: Attacker) -> None:
    """Send arrays with nearly as many values as are read, and with more, forever."""
    bodies = [
        posted(chat(_message_json(), f', "x": [{"[]," * count}0]'))
        for count in (900_000, 2_000_000)
    ]
    await _in_turns(attacker, bodies, 8)


async def odd_bodies(attacker: Attacker) -> None:
    """Send unusual bodies in turns, forever.

    They are deep, or have many messages, calls or members, long texts, numbers or names.
    """
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
             for n in range(3_000)]  # fmt: skip
    bodies = [
        chat(_message_json(), ', "x": ' + "[" * 400_000 + "]" * 400_000),
        chat(_message_json(), ', "x": ' + '{"a":' * 100_000 + "1" + "}" * 100_000),
        chat(json.dumps([{"role": "user", "content": "a"}] * 12_000)),
        chat(json.dumps([{"role": "assistant", "tool_calls": calls}, {"role": "user"}])),
        chat(_message_json("word " * 100_000)),
        chat(_message_json("a" * 500_000)),
        chat(_message_json("((((" * 100_000)),
        chat(_message_json(), ', "stop": ' + "9" * 300_000),
        chat(_message_json(), "".join(f', "m{n}": 1' for n in range(40_000))),
        json.dumps({"model": "m" * 400_000, "messages": []}).encode(),
    ]
    await _in_turns(attacker, [posted(body) for body in bodies], 8)


async def _in_turns(attacker: Attacker, bodies: list[bytes], at_once: int) -> None:
    """Send the requests in turns forever, `at_once` at a time."""
    turn = 0

    async def one() -> None:
        nonlocal turn
        turn += 1
        await attacker.send(bodies[turn % len(bodies)])

    await over(one, at_once)


# --- clients of a hostile upstream ---------------------------------------------------------------


def asking(model: str) -> Callable[[Attacker], Awaitable[None]]:
    """Return an attack that asks for a model of the hostile upstream, forever.

    Plain and streamed requests take turns.
    """

    async def attack(attacker: Attacker) -> None:
        """Ask for the model, plain and streamed in turns, forever."""
        for_it = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]})
        streamed = for_it[:-1] + ', "stream": true}'
        await _in_turns(attacker, [posted(each.encode()) for each in (for_it, streamed)], ASKING)

    return attack


MODELS: Final = {
    f"{UPSTREAM}events without data": "hostile-events",
    f"{UPSTREAM}bomb": "hostile-bomb",
    f"{UPSTREAM}endless body": "hostile-endless",
    f"{UPSTREAM}many values": "hostile-values",
    f"{UPSTREAM}calls": "hostile-calls",
}
ATTACKS: Final[dict[str, Callable[[Attacker], Awaitable[None]]]] = {
    "slow heads": slow_heads,
    "large heads": large_heads,
    "connections": connections,
    "requests": requests,
    "slow bodies": slow_bodies,
    "bombs": bombs,
    "many values": many_values,
    "odd bodies": odd_bodies,
    **{name: asking(model) for name, model in MODELS.items()},
}


def main() -> None:
    """Run the attack named on the command line against the port, until the process is ended."""
    name, port = sys.argv[1], int(sys.argv[2])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, MOST_OPEN + 1_000)), hard))
    with suppress(KeyboardInterrupt):
        asyncio.run(_attack(name, port))


async def _attack(name: str, port: int) -> None:
    await ATTACKS[name](Attacker(port))


if __name__ == "__main__":
    main()
