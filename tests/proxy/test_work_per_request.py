"""What a relayed request may cost, in bytecodes, as a clock would measure the machine too.

The cost grows with every feature that looks at a request, and a raised bound shows by how much.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest
import structlog

from scripts.checks.counted_work import CountedWork
from tests.proxy.observe.otlp_receiver import OtlpReceiver
from tests.running.live_proxy import PATIENCE_S, Json, LiveProxy, chat_request, question
from tests.servers.faulty_upstream import FaultyUpstream

REQUESTS, TIMES = 20, 12
TURN = "What somebody says in a conversation with a model has a sentence or two. " * 2
TOLD = 1_400  # additional bytecodes where OpenTelemetry is on; a thread of its own sends
SHORT, LONG, STREAMED = 7_100, 9_500, 11_850  # bytecodes of CPython 3.11 on the event loop
RECORD, RECORD_OF_STREAM = 1_010, 1_420  # bytecodes for the record, less than 15 %


@pytest.fixture
def counted() -> Iterator[CountedWork]:
    found = CountedWork()
    with found.tracing():
        yield found


@pytest.fixture
def quiet() -> Iterator[None]:
    """Switch off the log line of each request, which costs a tenth of all else."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.configure(**before)


@pytest.fixture
def telling_proxy(
    quiet: None, counted: CountedWork, upstream: FaultyUpstream, tmp_path: Path
) -> Iterator[LiveProxy]:
    """Yield a proxy that exports each request to an OpenTelemetry collector."""
    with OtlpReceiver() as receiver:
        telemetry = {"otel": {"endpoint": receiver.url}}
        proxy = LiveProxy(upstream.base_url, tmp_path, telemetry=telemetry)
        counted.watched = proxy._thread.ident
        yield proxy
        proxy.stop()


@pytest.fixture
def proxy(
    quiet: None, counted: CountedWork, upstream: FaultyUpstream, tmp_path: Path
) -> Iterator[LiveProxy]:
    proxy = LiveProxy(upstream.base_url, tmp_path)
    counted.watched = proxy._thread.ident
    yield proxy
    proxy.stop()


def conversation(messages: int) -> Json:
    turns = [
        {"role": "assistant" if number % 2 else "user", "content": f"Turn {number}. {TURN}"}
        for number in range(messages - 1)
    ]
    return {"model": "ok", "messages": [*turns, {"role": "user", "content": "p=0.7"}]}


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        pytest.param(conversation(11), SHORT, id="11 messages"),
        pytest.param(conversation(201), LONG, id="201 messages"),
        pytest.param(question("p=0.7", "at-once", stream=True), STREAMED, id="a stream"),
    ],
)
def test_a_request_runs_no_more_bytecodes_than_it_may(
    proxy: LiveProxy, counted: CountedWork, asked: Json, most: int
) -> None:
    count_bytecodes(proxy, counted, asked, most)


@pytest.mark.parametrize("is_stream", [False, True])
def test_exporting_costs_little_more(
    telling_proxy: LiveProxy, counted: CountedWork, is_stream: bool
) -> None:
    """Exporting a request costs ids, a header for upstream and a queue; a thread does the rest."""
    asked = question("p=0.7", "at-once", stream=True) if is_stream else conversation(11)
    most = (STREAMED if is_stream else SHORT) + TOLD
    count_bytecodes(telling_proxy, counted, asked, most)


def count_bytecodes(proxy: LiveProxy, counted: CountedWork, asked: Json, most: int) -> None:
    """Ask again and again, and count the bytecodes of a request and of its record.

    A busy machine adds a batch of the record or a read of a socket, so the least count of each room
    is compared. Head and body go out in one piece, since the listener reads two of them at twice
    the cost.
    """
    fields = "accept: */*", "accept-encoding: identity", "connection: keep-alive"
    request = chat_request(asked, *fields, "user-agent: python-httpx/0.28")
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)

    def ask() -> None:
        connection.sendall(request)
        reply = HTTPResponse(connection)
        reply.begin()
        assert reply.status == 200
        assert b'"confidence":0.7' in reply.read()

    ask()
    ask()  # the first request fills the caches
    most_of_record = RECORD_OF_STREAM if asked.get("stream") else RECORD
    least: dict[str, float] = {}
    for _ in range(TIMES):
        with counted.counting() as work:
            for _ in range(REQUESTS):
                ask()
        by_room = work.by_room(work.bytecodes, REQUESTS)
        least = {room: min(count, least.get(room, count)) for room, count in by_room.items()}
        each = sum(least.values())
        print(f"{each:,.0f} bytecodes a request, at most {most:,}: {by_room}")
        if each < most and least["record"] < most_of_record:
            break
    connection.close()
    for (room, code), count in work.bytecodes.most_common(30):
        name = Path(code.co_filename).name
        print(f"{count / REQUESTS:7.0f} {room:10} {code.co_qualname} {name}")
    assert most / 3 < each < most
    assert least["record"] < most_of_record
