"""What one stream may cost: bytes in transit, memory, time; and a hundred of them at once."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import UpstreamBrokenError
from proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Format
from tests.builders.live_streams import MB, live, peak_of, play
from tests.builders.scripted_streams import (
    TEXT,
    RawStream,
    ScriptedUpstream,
    call,
    chunk,
    email,
    finish,
    proxies_before,
    recorded,
    result,
    stream_request,
    streamed,
    text,
)
from tests.conftest import StartProxy
from tests.running.live_proxy import ROOT, LiveProxy, WordScorer, environment, events_in, members_in
from tests.running.warm_cli import Program, run_warm
from tests.servers.faulty_upstream import DONE, Cut, Step, Wait

LONG = 40 * MB
ON_THEIR_WAY = 24 * MB  # in the buffers of two systems, and a little of ours
SMALL = {"max_body": MB}
SPEECH = "/v1/audio/speech"
HOLD = "{version: 1, name: all, default: hold}"
TOOLS = """
version: 1
name: tools
rules: [{name: unsure calls, when: {tools: any, confidence: {below: 0.3}}, then: block}]
default: deliver
"""


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: ScriptedUpstream) -> ScriptedUpstream:
    running.forget()
    return running


@pytest.fixture(scope="module")
def start(
    running: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartProxy]:
    with proxies_before(running, tmp_path_factory) as start:
        yield start


class Counted:
    """Steps of a stream; `taken` counts the bytes that the upstream could send."""

    def __init__(self, steps: Iterable[bytes]) -> None:
        self._steps = steps
        self.taken = 0

    def __iter__(self) -> Iterator[Step]:
        for step in self._steps:
            self.taken += len(step)
            yield step

    def wait_until_still(self) -> int:
        """Return how much was taken when no more was, for a while."""
        before, deadline = -1, time.monotonic() + 20
        while before != self.taken:
            assert time.monotonic() < deadline, "it never stops"
            before = self.taken
            time.sleep(0.25)
        return before


def pieces_of(size: int, piece: int = 2**16) -> list[bytes]:
    """Return a stream of about `size` bytes, from the role to [DONE]."""
    one = chunk({"content": "x" * (piece - 200)})
    return [*text(), *[one] * (size // len(one)), finish(), DONE]


# Back-pressure


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/v1/chat/completions", {}),
        pytest.param("/v1/chat/completions", {"limits": SMALL}, marks=pytest.mark.slow),
        ("/v1/chat/completions", {"policy": TOOLS}),
        (SPEECH, {}),
    ],
    ids=["passthrough", "too long to be kept", "buffer_tools", "relayed"],
)
def test_a_slow_client_stops_upstream(
    start: StartProxy, upstream: ScriptedUpstream, path: str, options: Any
) -> None:
    """Upstream sends no more than buffers hold until its client reads; nothing is lost."""
    proxy = start(attach={"body": False}, **options)
    pieces = pieces_of(LONG)
    upstream.steps = counted = Counted(pieces)
    with RawStream(proxy.port, stream_request(), path, receive_bytes=2**16) as stream:
        stream.head()
        assert counted.wait_until_still() < ON_THEIR_WAY
        upstream.by_model = {"other": [*TEXT, finish(), DONE]}
        assert streamed(proxy, stream_request(model="other")).is_whole  # nobody else waits
        body = stream.rest()
    assert stream.is_whole
    assert body == b"".join(pieces)
    assert len(body) > 36 * MB


def test_a_slow_client_that_leaves(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A client that stops reading and then closes soon ends the call to upstream."""
    proxy = start(attach={"body": False})
    upstream.steps = counted = Counted(pieces_of(LONG))
    with RawStream(proxy.port, stream_request(), receive_bytes=2**16) as stream:
        stream.head()
        counted.wait_until_still()
        received = upstream.last
    assert received.is_cut_off(within_s=15)
    id = stream.fields["x-pinocchio-request-id"]
    assert result(proxy, id)["reason"] == "client_left"
    assert recorded(proxy, id)["reason"] == "client_left"


# Memory


def test_a_long_stream_is_delivered_unscored(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A stream longer than `limits.max_body` arrives byte for byte, labelled and unscored."""
    scorer = WordScorer("words@long")
    proxy = start(limits=SMALL, scorer=scorer)
    upstream.steps = pieces_of(3 * MB, 1_000)
    got = streamed(proxy)
    assert bytes(got.seen) == upstream.step_bytes
    id = got.fields["x-pinocchio-request-id"]
    for status in (result(proxy, id)["status"], recorded(proxy, id)["confidence_status"]):
        assert status == "skipped"
    assert result(proxy, id)["reason"] == recorded(proxy, id)["reason"] == "too_long"
    assert [item.answer for item in scorer.seen] == ["warm-up"]


def test_a_long_stream_that_breaks_off(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A long stream that upstream breaks off does not look whole to the client."""
    pieces = pieces_of(2 * MB, 1_000)[:-2]
    upstream.steps = [*pieces, Cut()]
    got = streamed(start(limits=SMALL))
    assert bytes(got.seen) == b"".join(pieces)
    assert not got.is_whole


def test_a_long_stream_that_had_to_be_decided_on(
    start: StartProxy, upstream: ScriptedUpstream
) -> None:
    """A buffered stream beyond `limits.max_body` is an error, and upstream's call ends."""
    upstream.steps = [*pieces_of(2 * MB), Wait()]
    got = streamed(start(policy=HOLD, limits=SMALL))
    assert got.status == 502
    assert json.loads(got.seen)["error"]["code"] == "upstream_broke_off"
    assert b"limits.max_body" in got.seen
    assert upstream.is_left()


def test_a_long_stream_whose_calls_had_to_be_decided_on(
    start: StartProxy, upstream: ScriptedUpstream
) -> None:
    """A stream with waiting calls ends in an error event beyond `limits.max_body`."""
    proxy = start(policy=TOOLS, limits=SMALL)
    calls = [*email("0.9"), *[call("f", "y" * 1_000)[1]] * 2_000]
    upstream.steps = [*TEXT, *calls, Wait()]
    got = streamed(proxy)
    output = bytes(got.seen)
    assert output.startswith(b"".join(TEXT))
    [error] = events_in(output.removeprefix(b"".join(TEXT)).replace(b": ping\n\n", b""))
    assert error["error"]["code"] == "upstream_broke_off"
    assert got.is_whole
    assert upstream.is_left()
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert row["reason"] == "too_long"


@pytest.mark.parametrize("policy", [None, HOLD, TOOLS], ids=["observe", "hold", "tools"])
def test_one_gigantic_event(
    start: StartProxy, upstream: ScriptedUpstream, policy: str | None
) -> None:
    """An event of 17 MB passes where nothing has to be decided, and is an error elsewhere."""
    giant = [b"data: {", *[b"x" * MB] * 17, b"}\n\n"]
    upstream.steps = [*TEXT, *giant, finish(), DONE]
    proxy = start(policy=policy) if policy else start()
    got = streamed(proxy)
    body = bytes(got.seen)
    if policy == HOLD:
        assert (got.status, json.loads(body)["error"]["code"]) == (502, "upstream_broke_off")
    elif policy == TOOLS:
        assert body.startswith(b"".join(TEXT) + b'data: {"error"')
        assert len(body) < 2_000
    else:
        assert body == upstream.step_bytes
        id = got.fields["x-pinocchio-request-id"]
        assert result(proxy, id)["reason"] == "too_long"


# One stream, without sockets


@pytest.mark.parametrize("settles", [False, True], ids=["passthrough", "buffer_tools"])
def test_stream_memory_is_bounded(settles: bool) -> None:
    """The memory for a stream far beyond `max_bytes` is a small multiple of that bound."""
    one, count = chunk({"content": "x" * 100}), 50_000
    stream = live(max_bytes=MB, settles=settles)
    size, peak = peak_of(stream, (one for _ in range(count)))
    assert (size == len(one) * count) is not settles
    assert peak < 4 * MB
    assert stream.reason == "too_long"


def test_byte_by_byte_event_costs_its_size(tmp_path: Path) -> None:
    """An event that arrives byte by byte costs its own size, not its number of parts."""
    file = tmp_path / "program.py"  # its own process, so that no thread of another test allocates
    file.write_text(
        "from tests.builders.live_streams import peak_of_event\nprint(*peak_of_event())\n"
    )
    env = environment() | {"PYTHONPATH": str(ROOT)}
    done = run_warm([], cwd=ROOT, env=env, timeout_s=60, program=Program(file))
    assert done.returncode == 0, done.stderr
    whole, peak = map(int, done.stdout.split())
    assert peak < 2 * whole  # 50,000 parts would take four times that


def test_unkept_broken_stream_raises() -> None:
    """Where no error fits into the bytes, the break itself is passed on."""

    def parts() -> Iterator[bytes]:
        yield from [b"data: " + b"x" * MB] * 2
        raise UpstreamBrokenError("it broke off")

    with pytest.raises(UpstreamBrokenError):
        asyncio.run(play(live(max_bytes=MB), parts()))


# Time


def _named(data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), json.dumps(data).encode())


def _responses(kind: str, **facts: Any) -> bytes:
    return _named({"type": f"response.{kind}", "output_index": 0, **facts})


SAYS = {"id": "m", "type": "message", "role": "assistant", "content": []}
CALLS = {"id": "c", "type": "function_call", "name": "f", "arguments": ""}
BLOCK = {"type": "content_block_delta", "index": 0}
DELTAS: dict[str, tuple[Format, list[bytes], bytes, list[bytes]]] = {  # beginning, delta, end
    "chat": (CHAT, [*TEXT], chunk({"content": "y"}), [finish(), DONE]),
    "chat reasoning": (CHAT, [*TEXT], chunk({"reasoning_content": "y"}), [finish(), DONE]),
    "chat calls": (CHAT, call("f"), call("f", "y")[1], [finish("tool_calls"), DONE]),
    "chat choices": (
        CHAT,
        [finish(index=n) for n in range(1, 20)],
        chunk({"content": "y"}),
        [finish(), DONE],
    ),
    "completions": (
        COMPLETIONS,
        [],
        b'data: {"choices":[{"index":0,"text":"y"}]}\n\n',
        [b'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\n', DONE],
    ),
    "messages": (
        MESSAGES,
        [
            _named({"type": "message_start", "message": {"content": []}}),
            _named({**BLOCK, "type": "content_block_start"} | {"content_block": {"type": "text"}}),
        ],
        _named(BLOCK | {"delta": {"type": "text_delta", "text": "y"}}),
        [_named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})],
    ),
    "responses": (
        RESPONSES,
        [_responses("output_item.added", item=SAYS)],
        _responses("output_text.delta", content_index=0, delta="y"),
        [_responses("completed", response={"status": "completed", "output": []})],
    ),
    "responses calls": (
        RESPONSES,
        [_responses("output_item.added", item=CALLS)],
        _responses("function_call_arguments.delta", delta="y"),
        [_responses("completed", response={"status": "completed", "output": []})],
    ),
}
FEW, MANY = 800, 6_400


@pytest.mark.parametrize("name", DELTAS)
@pytest.mark.parametrize("settles", [False, True], ids=["passthrough", "buffer_tools"])
def test_many_deltas_cost_linear_time(name: str, settles: bool) -> None:
    """Eight times the deltas, each in a part of its own, cost about eight times the CPU."""
    format, beginning, delta, end = DELTAS[name]

    def cost(count: int) -> float:
        stream = live(format, settles=settles)
        parts = [*beginning, *[delta] * count, *end]
        gc.disable()  # it would collect what other tests have left
        started = time.process_time()
        assert asyncio.run(play(stream, parts)) == sum(map(len, parts))
        took_s = time.process_time() - started
        gc.enable()
        return took_s

    few = min(cost(FEW), cost(FEW))
    assert cost(MANY) < 3 * (MANY / FEW) * few + 0.1


def test_200_000_deltas(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A stream of 200,000 tiny deltas arrives whole and scored, in a bounded time."""
    proxy = start()
    many = chunk({"content": "y"}) * 100  # as many as a busy connection brings at once
    upstream.steps = [*TEXT, *[many] * 2_000, chunk({"content": " p=0.7"}), finish(), DONE]
    started = time.monotonic()
    got = streamed(proxy, stream_request())
    assert time.monotonic() - started < 60
    assert got.is_whole
    tail = bytes(got.seen[-2_000:])
    [member] = members_in(tail[tail.index(b"\n\n") + 2 :])
    assert (member["confidence"], member["status"]) == (0.7, "scored")
    assert len(got.seen) > 200_000 * len(chunk({"content": "y"}))


# Many at once


@pytest.mark.parametrize("policy", [None, TOOLS], ids=["passthrough", "buffer_tools"])
def test_a_hundred_streams_at_once(
    start: StartProxy, upstream: ScriptedUpstream, policy: str | None
) -> None:
    """A hundred open streams all have their first text before any ends, and all end scored."""
    proxy: LiveProxy = start(policy=policy) if policy else start()
    upstream.steps = [*TEXT, Wait(), *email("0.9"), finish("tool_calls"), DONE]
    with ExitStack() as opened:
        streams = [
            opened.enter_context(RawStream(proxy.port, stream_request())) for _ in range(100)
        ]
        for stream in streams:
            stream.until(b"look. ")
        for request in upstream.requests:
            request.proceed()
        for stream in streams:
            [member] = members_in(stream.rest())
            assert (member["confidence"], stream.is_whole) == (0.9, True)
    ids = {stream.fields["x-pinocchio-request-id"] for stream in streams}
    assert len(ids) == len(streams)
    assert all(recorded(proxy, id)["confidence"] == 0.9 for id in ids)
