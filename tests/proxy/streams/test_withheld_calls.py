"""`buffer_tools` where something fails or takes long while calls are withheld."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.completions.sending import heartbeats
from tests.builders.calling_streams import CALLING, calling_body
from tests.builders.scripted_streams import (
    CALLS,
    SEEN,
    SURE,
    TEXT,
    UNSURE,
    RawStream,
    ScriptedUpstream,
    accumulated,
    call,
    call_policy,
    closings,
    data_in,
    email,
    has_no_call,
    only_choice,
    proxies_before,
    recorded,
    result,
    stream_request,
    streamed,
)
from tests.conftest import StartProxy
from tests.equality.equality_cases import without_members
from tests.running.live_proxy import LiveProxy, SlowScorer
from tests.servers.faulty_upstream import DONE, Cut, Pause, Step, Wait


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


@pytest.fixture
def blocking(start: StartProxy) -> LiveProxy:
    return start(policy=call_policy("block"))


# Upstreams that fail within a call


@pytest.mark.parametrize("path", CALLING)
@pytest.mark.parametrize("end", ["breaks off", "ends"])
def test_half_a_call_is_never_sent(
    blocking: LiveProxy, upstream: ScriptedUpstream, path: str, end: str
) -> None:
    """Where upstream breaks off or ends within a call, an error event replaces the call."""
    _, events, before, _ = CALLING[path]
    cut: list[Step] = [events[before + 2][:30], Cut()] if end == "breaks off" else []
    upstream.steps = [*events[: before + 2], *cut]
    got = streamed(blocking, calling_body(path), path)
    output = bytes(got.seen)
    assert output.startswith(b"".join(events[:before]))
    [error] = data_in(output.removeprefix(b"".join(events[:before])))
    assert error["error"]["code"] == "upstream_broke_off"
    assert got.is_whole
    row = recorded(blocking, got.fields["x-pinocchio-request-id"])
    assert (row["confidence_status"], row["reason"]) == ("skipped", "stream_broke_off")


def test_a_call_without_a_finish_is_half_a_call(
    blocking: LiveProxy, upstream: ScriptedUpstream
) -> None:
    """A call without its finish is half a call even after [DONE], and is not sent."""
    upstream.steps = [*TEXT, *email("0.1"), DONE]
    rest = bytes(streamed(blocking).seen).removeprefix(SEEN)
    assert data_in(rest)[0]["error"]["code"] == "upstream_broke_off"
    assert has_no_call(rest)
    assert b"[DONE]" not in rest


def test_one_whole_call_does_not_let_half_of_another_through(
    blocking: LiveProxy, upstream: ScriptedUpstream
) -> None:
    """With n > 1 a choice that never finishes keeps all withheld calls back."""
    upstream.steps = [*email("0.9"), *call("g", '{"half', index=1), CALLS, DONE]
    [error] = data_in(bytes(streamed(blocking, stream_request(n=2)).seen))
    assert error["error"]["code"] == "upstream_broke_off"


@pytest.mark.parametrize("where", ["within a call", "behind its finish", "before a call"])
def test_upstream_error_is_sent_alone(
    start: StartProxy, upstream: ScriptedUpstream, where: str
) -> None:
    """Upstream's error arrives unchanged, without a call before or after it, and is not held."""
    proxy = start(policy=call_policy("hold"))
    error = b'data: {"error":{"message":"oops","code":"boom","v":1.0}}\n\n'
    calls = email("0.1")
    upstream.steps = {
        "within a call": [*TEXT, *calls, error],
        "behind its finish": [*TEXT, *calls, CALLS, error],
        "before a call": [*TEXT, error, *calls, CALLS],
    }[where]
    got = streamed(proxy)
    assert bytes(got.seen) == SEEN + error
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["confidence_status"], row["reason"]) == ("skipped", "upstream_error")
    assert row["review_id"] is None


def test_an_open_last_event_holds_no_call(blocking: LiveProxy, upstream: ScriptedUpstream) -> None:
    """A last event without a blank line becomes an error if it has a call."""
    upstream.steps = [*TEXT, call("send_email")[0][:-1]]
    got = streamed(blocking)
    assert bytes(got.seen).startswith(SEEN)
    assert has_no_call(bytes(got.seen))
    assert b'"upstream_broke_off"' in bytes(got.seen)[len(SEEN) :]
    assert got.is_whole


# Heartbeats, and clients that leave


def test_pings_while_a_score_takes_its_time(
    start: StartProxy, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments keep the connection alive until the score is there; then the call is sent."""
    monkeypatch.setattr(heartbeats, "PING_EVERY_S", 0.02)
    scorer = SlowScorer("slow@calls")
    proxy = start(policy=call_policy("block"), scorer=scorer, calibrator={"timeout_s": 10.0})
    upstream.steps = SURE
    with RawStream(proxy.port, stream_request()) as stream:
        stream.until(b": ping\n\n: ping\n\n")
        assert bytes(stream.seen).startswith(SEEN + b": ping\n\n")
        assert has_no_call(bytes(stream.seen))
        scorer.proceed.set()
        body = stream.rest().replace(b": ping\n\n", b"")
    assert without_members(body) == (b"".join(SURE), 1)


def test_pings_while_a_call_is_streamed(
    blocking: LiveProxy, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments also go out while a long call arrives that must still wait."""
    monkeypatch.setattr(heartbeats, "PING_EVERY_S", 0.02)
    long: list[Step] = [call("f", "x")[1], Pause(0.03)] * 4
    upstream.steps = [*TEXT, *email("0.9"), *long, Wait(), CALLS, DONE]
    with RawStream(blocking.port, stream_request()) as stream:
        stream.until(b": ping\n\n")
        upstream.last.proceed()
        body = stream.rest()
    assert body.startswith(SEEN + b": ping\n\n")
    assert without_members(body.replace(b": ping\n\n", b"")) == (upstream.step_bytes, 1)


def test_the_official_client_reads_pings(
    start: StartProxy, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pings between text and call do not disturb the official client's accumulator."""
    monkeypatch.setattr(heartbeats, "PING_EVERY_S", 0.01)
    upstream.steps = [*TEXT, *email("0.9"), Pause(0.05), *call("f", "", number=1), CALLS, DONE]
    choice = only_choice(accumulated(start(policy=call_policy("block"))))
    arguments = '{"to": "ann", "about": "p=0.9"}'
    assert [c.function.arguments for c in choice.message.tool_calls] == [arguments, ""]


@pytest.mark.parametrize("when", ["while a call arrives", "while it is scored"])
def test_a_client_that_leaves(
    start: StartProxy, upstream: ScriptedUpstream, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves while a call is withheld ends the work; row and result say so."""
    closed = closings(monkeypatch)
    scorer = SlowScorer("slow@left")
    proxy = start(policy=call_policy("block"), scorer=scorer, calibrator={"timeout_s": 9.0})
    is_early = when == "while a call arrives"
    upstream.steps = [*UNSURE[:-2], Wait(), *UNSURE[-2:]] if is_early else UNSURE
    with RawStream(proxy.port, stream_request()) as stream:
        stream.until(b"look. ")
        stream.for_a_while()
    assert not is_early or upstream.is_left()
    id = stream.fields["x-pinocchio-request-id"]
    assert result(proxy, id)["reason"] == "client_left"
    row = recorded(proxy, id)
    assert (row["reason"], row["error"]) == (
        ("client_left", None) if is_early else (None, "client_left")
    )
    assert closed.count(id) == 1
    scorer.proceed.set()
