"""Parts that skip their request's task, and are sent as the task would have sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.completions.sending.live_stream import FinishEvent, LiveStream, ShortWay
from proxy.exchange.exchange import Clock
from proxy.formats import CHAT, COMPLETIONS, Format
from proxy.http.pool.connection import Connection, HttpReply
from proxy.http.wire.http import Client
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.outlet import Bursts
from proxy.http.wire.sse import event_bytes
from tests.builders.live_streams import live

HEAD = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "text": delta.get("content"), "finish_reason": reason}
    return event_bytes(dumps({**HEAD, "choices": [choice], **more}))


EVENT = st.one_of(
    st.text(max_size=6).map(lambda text: chunk({"content": text})),
    st.sampled_from(
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "b"}, vendor=1),
            chunk({"reasoning_content": "hm"}),
            chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]}),
            chunk({}, "stop"),
            b": ping\n\n",
            b"data: [DONE]\n\n",
            b"data: no JSON\n\n",
            chunk({"content": "c"}).replace(b"\n", b"\r\n"),
        ]
    ),
)


def fed(stream: LiveStream, part: bytes) -> bytes:
    """Return the output for a part, with a mark after each event that waits for its outcome."""
    return b"".join(
        piece.event.raw + b"|" if isinstance(piece, FinishEvent) else cast(bytes, piece)
        for piece in stream.feed(part)
    )


@given(
    st.lists(EVENT, max_size=24),
    st.lists(st.integers(1, 400), max_size=8),
    st.booleans(),
    st.sampled_from([CHAT, COMPLETIONS]),
    st.sampled_from([2**20, 600]),
)
def test_a_part_that_is_taken_is_as_if_it_was_fed(
    events: list[bytes], cuts: list[int], is_each: bool, format: Format, limit: int
) -> None:
    """Bytes, choices and waiting events are the same however the stream is cut and bounded."""
    whole = b"".join(events)
    ends = [*sorted({min(cut, len(whole)) for cut in cuts}), len(whole)]
    parts = events if is_each else [whole[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    plain, short = live(format, max_bytes=limit), live(format, max_bytes=limit)
    out = [b"", b""]
    for part in filter(None, parts):
        out[0] += fed(plain, part)
        out[1] += part if short.takes(part) else fed(short, part)
    assert out[0] + plain.end() == out[1] + short.end()
    assert short.assembler.completion() == plain.assembler.completion()
    assert (short.reason, short.is_opaque) == (plain.reason, plain.is_opaque)


class HeldClient:
    """A client's end that takes parts, or is slow."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_slow = False

    def takes_parts(self) -> bool:
        return not self.is_slow

    def write_part(self, part: bytes) -> None:
        self.sent += part


@pytest.fixture
def client() -> HeldClient:
    return HeldClient()


def opened(client: HeldClient, stream: LiveStream) -> tuple[HttpReply, Callable[[bytes], None]]:
    """Return a reply on the short way, and a function that lets one more piece arrive."""
    exchange = HttpReply(asyncio.get_running_loop(), "POST")
    exchange.connection = cast(Any, SimpleNamespace(resume=lambda: None))
    ShortWay(stream, exchange, Clock()).open(cast(Client, client))

    def arrive(part: bytes) -> None:
        exchange.parts.append(part)
        exchange.size += len(part)
        exchange.hand_on()

    return exchange, arrive


async def test_only_what_its_reader_waits_for_takes_the_short_way(client: HeldClient) -> None:
    """No part overtakes one that the reader has not passed on yet, or is about to pass on."""
    exchange, arrive = opened(client, live())
    first, second, third = (chunk({"content": text}) for text in "abc")
    arrive(first)  # nobody waits
    assert client.sent == b""
    assert await anext(exchange) == first
    reading = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0)
    arrive(second)
    assert client.sent == second
    client.is_slow = True
    arrive(third)
    arrive(second)  # behind what wakes the reader
    client.is_slow = False
    arrive(first)
    assert await reading == third + second + first
    assert client.sent == second


async def test_what_has_to_wait_is_left_to_the_reader(client: HeldClient) -> None:
    """An event that finishes a choice waits for its score, and what follows stays behind it."""
    stream = live()
    exchange, arrive = opened(client, stream)
    reading = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0)
    text, end = chunk({"content": "a"}), chunk({}, "stop")
    arrive(text)
    arrive(end)
    arrive(text)
    assert client.sent == text
    assert await reading == end + text
    assert [type(piece) for piece in stream.feed(end)] == [FinishEvent]


async def test_a_reader_that_was_cancelled_ends_the_short_way(client: HeldClient) -> None:
    """After a client left, nothing more is sent to it."""
    exchange, arrive = opened(client, live())
    reading = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0)
    reading.cancel()
    arrive(chunk({"content": "a"}))
    assert client.sent == b""


async def test_whole_reply_has_no_short_way(client: HeldClient) -> None:
    """A reply that is whole before its head is out has no short way, which would keep it alive."""
    exchange = HttpReply(asyncio.get_running_loop(), "POST")
    ShortWay(live(), exchange, Clock()).open(cast(Client, client))
    assert exchange.taker is None


async def test_a_connection_that_ends_lets_the_stream_go(client: HeldClient) -> None:
    """A connection that ends releases the stream, whether the reply was whole or broke off."""
    for end in (b"0\r\n\r\n", b"no chunk\r\n"):
        freed: list[Connection] = []
        connection = Connection(
            asyncio.get_running_loop(), "here", 9.0, freed.append, lambda _: None, Bursts()
        )
        connection.connection_made(cast(Any, Transport()))
        exchange = HttpReply(asyncio.get_running_loop(), "POST")
        connection.start(exchange, b"", b"")
        connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        ShortWay(live(), exchange, Clock()).open(cast(Client, client))
        assert exchange.taker is not None
        connection.data_received(end)
        assert exchange.taker is None


class Transport:
    """A transport without a peer."""

    def get_extra_info(self, _: str) -> Any:
        return SimpleNamespace(fileno=lambda: 0)

    def write(self, _: bytes) -> None:
        """Drop the data."""

    def abort(self) -> None:
        """Do nothing, as the transport is not open."""
