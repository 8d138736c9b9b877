"""Live streams: the same bytes at the same time, the confidence on the finish chunk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import (
    LiveProxy,
    SlowScorer,
    error_of,
    events_in,
    left_behind,
    members_in,
    post_raw,
    question,
    streaming,
    text_in,
    until,
    without_member,
)
from tests.servers.faulty_upstream import FaultyUpstream

KINDS = [
    "ok",
    "tools",
    "parallel-tools",
    "vendor",
    "reasoning",
    "empty",
    "large",
    "split",
    "crlf",
    "no-done",
    "cut-after-done",
]
SOON_S = 15  # about a second where no other work uses the machine


@pytest.fixture
def slow(start_proxy: StartProxy) -> Iterator[LiveProxy]:
    """Yield a proxy whose scorer waits for the test, while a stream's finish chunk waits 20 ms."""
    scorer = SlowScorer("slow@1")
    yield start_proxy(scorer=scorer, limits={"stream_wait_ms": 20})
    scorer.proceed.set()


# The bytes


@pytest.mark.parametrize("model", KINDS)
def test_without_member_the_stream_is_upstreams(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """Without the members of the finish chunks the bytes are upstream's, framing included."""
    asked = question("p=0.7 ä🍋", model, stream=True)
    got = proxy.post_raw(asked)
    direct = upstream_bytes(upstream, asked)
    assert got.body.count(b'"pinocchio"') == 1
    assert without_member(got.body) == direct
    assert got.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("model", KINDS)
def test_with_attach_body_off_the_stream_is_identical(
    start_proxy: StartProxy, upstream: FaultyUpstream, model: str
) -> None:
    """With `attach.body: false` every byte of a stream is upstream's."""
    asked = question("p=0.7 ä🍋", model, stream=True)
    proxy = start_proxy(attach={"body": False})
    assert proxy.post_raw(asked).body == upstream_bytes(upstream, asked)


def upstream_bytes(upstream: FaultyUpstream, asked: Any) -> bytes:
    """Return the bytes that the upstream sends directly, up to where it breaks off."""
    parts = []
    url = f"{upstream.base_url}/chat/completions"
    with httpx.stream("POST", url, json=asked) as response:
        try:
            for part in response.iter_raw():
                parts.append(part)
        except httpx.RemoteProtocolError:
            assert asked["model"] == "cut-after-done"
    return b"".join(parts)


def test_finish_chunk_has_the_confidence(proxy: LiveProxy) -> None:
    """The confidence is on the chunk with the finish_reason, and nowhere else."""
    chunks = events_in(proxy.ask("p=0.7", stream=True).content)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if "pinocchio" in chunk]
    assert reasons == ["stop"]
    [member] = members_in(proxy.ask("p=0.7", stream=True).content)
    assert (member["confidence"], member["status"]) == (0.7, "scored")
    assert member["choices"] == [
        {
            "index": 0,
            "confidence": 0.7,
            "status": "scored",
            "basis": ["likeness"],
            "action": "deliver",
        }
    ]


def test_each_choice_of_a_stream_has_its_confidence(proxy: LiveProxy) -> None:
    """With n > 1 each finish chunk has its own choice's confidence."""
    stream = proxy.ask("p=0.9|p=0.2|p=0.6", n=3, stream=True).content
    pairs = [(c["index"], c["confidence"]) for m in members_in(stream) for c in m["choices"]]
    assert pairs == [(0, 0.9), (1, 0.2), (2, 0.6)]


def test_usage_is_sent_only_on_request(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A usage chunk is sent only where the client asked for one."""
    without = proxy.ask(stream=True)
    assert "stream_options" not in upstream.last.json()
    assert not any(chunk.get("usage") for chunk in events_in(without.content))
    reply = proxy.ask(stream=True, stream_options={"include_usage": True})
    assert events_in(reply.content)[-1]["usage"]["total_tokens"] == 7


def test_headers_say_that_the_confidence_follows(proxy: LiveProxy) -> None:
    """A live stream's status is `pending`, without a number but with the id to ask for it."""
    headers = proxy.ask(stream=True).headers
    assert headers["x-pinocchio-confidence-status"] == "pending"
    assert headers["x-pinocchio-confidence-reason"] == "stream"
    assert headers["x-pinocchio-request-id"].startswith("req_")
    assert "x-pinocchio-confidence" not in headers
    assert headers["x-request-id"] == "req_upstream_1"


def test_no_named_events(proxy: LiveProxy, start_proxy: StartProxy) -> None:
    """No stream of ours has a line `event:`, which official clients hand to the application."""
    enforced = start_proxy(policy="{version: 1, name: all, default: hold}")
    for stream in (
        proxy.ask(stream=True).content,
        proxy.ask(model="cut", stream=True).content,
        enforced.ask(stream=True).content,
    ):
        assert not any(line.startswith(b"event") for line in stream.splitlines())


# The timing


def test_chunks_are_not_delayed(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """The first chunks reach the client before upstream has sent the rest."""
    with streaming(proxy, "p=0.7", "gated") as (_, parts):
        first = next(parts)
        while b'"p="' not in first:
            first += next(parts)
        assert b'finish_reason": "stop' not in first
        upstream.last.proceed()
        assert text_in(first + b"".join(parts)) == "p=0.7"


def test_a_late_score_keeps_nothing_waiting(slow: LiveProxy) -> None:
    """A score that misses its chunk is `pending` there, and found by the request's id later."""
    response = slow.ask("p=0.7", stream=True)
    [member] = members_in(response.content)
    assert (member["status"], member["reason"]) == ("pending", "late")
    assert member["confidence"] is None
    id = response.headers["x-pinocchio-request-id"]

    def result() -> Any:
        return slow.http.get(f"/pinocchio/v1/results/{id}").json()

    assert result()["status"] == "pending"
    assert isinstance(slow.scorer, SlowScorer)
    slow.scorer.proceed.set()
    until(lambda: result()["status"] == "scored")
    assert (result()["request_id"], result()["confidence"]) == (id, 0.7)
    assert result()["choices"][0]["confidence"] == 0.7


# Results


def test_other_keys_get_404_for_result(proxy: LiveProxy) -> None:
    """Another key gets the same 404 for a result as for one that does not exist."""
    id = proxy.ask(stream=True).headers["x-pinocchio-request-id"]
    path = f"/pinocchio/v1/results/{id}"
    assert proxy.http.get(path).status_code == 200
    for response in (
        proxy.http.get(path, headers={"authorization": "Bearer sk-other"}),
        proxy.http.get("/pinocchio/v1/results/req_unknown"),
    ):
        assert response.status_code == 404
        assert error_of(response)["code"] == "result_not_found"


def test_result_has_all_choices(proxy: LiveProxy) -> None:
    """The result of a stream with several choices has all of them, and the lowest confidence."""
    response = proxy.ask("p=0.9|p=0.2|p=0.6", n=3, stream=True)
    path = f"/pinocchio/v1/results/{response.headers['x-pinocchio-request-id']}"
    until(lambda: proxy.http.get(path).json()["status"] != "pending")
    result = proxy.http.get(path).json()
    assert result["confidence"] == 0.2
    assert [choice["confidence"] for choice in result["choices"]] == [0.9, 0.2, 0.6]
    assert result["would_action"] == "hold"


# Failures


def test_a_stream_that_breaks_off_ends_in_an_error(proxy: LiveProxy) -> None:
    """What arrived is passed on; then an error event follows, and no [DONE]."""
    stream = proxy.ask("p=0.7", "cut", stream=True).content
    *chunks, last = events_in(stream)
    assert last["error"]["code"] == "upstream_broke_off"
    assert len(chunks) == 2
    assert b"[DONE]" not in stream
    assert b'"pinocchio"' not in stream


@pytest.mark.parametrize("model", ["no-finish", "half-event"])
def test_early_end_adds_nothing(proxy: LiveProxy, upstream: FaultyUpstream, model: str) -> None:
    """Where upstream ends a stream too early but in order, nothing is added."""
    response = proxy.ask("p=0.7", model, stream=True)
    direct = httpx.post(
        f"{upstream.base_url}/chat/completions", json=question("p=0.7", model, stream=True)
    )
    assert response.content == direct.content
    path = f"/pinocchio/v1/results/{response.headers['x-pinocchio-request-id']}"
    until(lambda: proxy.http.get(path).json()["status"] == "skipped")
    assert proxy.http.get(path).json()["reason"] == "no_finish_chunk"


def test_silence_in_a_stream_ends_in_an_error(start_proxy: StartProxy) -> None:
    """Silence for longer than `timeout_s` ends a stream with an error event."""
    proxy = start_proxy(upstream={"timeout_s": 0.2})
    stream = proxy.ask("p=0.7", "gated", stream=True).content
    assert events_in(stream)[-1]["error"]["code"] == "upstream_timeout"
    assert b"[DONE]" not in stream


def test_upstreams_own_error_event_is_the_last(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """An error event of upstream's passes unchanged, and none of ours is added."""
    asked = question("p=0.7", "error-event", stream=True)
    got = proxy.post_raw(asked)
    assert got.body == upstream_bytes(upstream, asked)
    assert b"boom" in got.body


def test_nothing_follows_done(proxy: LiveProxy) -> None:
    """After [DONE] nothing is sent, also if upstream breaks off then."""
    stream = proxy.ask("p=0.7", "cut-after-done", stream=True).content
    assert stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("model", ["html", "gzip", "huge-event"])
def test_a_stream_that_we_cannot_read_is_relayed(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """A stream that cannot be read is relayed byte for byte and labelled as not judged."""
    asked = question("p=0.7", model, stream=True)
    got, direct = proxy.post_raw(asked), post_raw(f"{upstream.base_url}/chat/completions", asked)
    assert got.body == direct.body
    told_later = "pending" if model == "huge-event" else "not_supported"
    assert got.headers["x-pinocchio-confidence-status"] == told_later


# Clients that leave


@pytest.mark.parametrize("model", ["endless", "gated"])
def test_leaving_a_stream_cancels_upstream(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """A client that closes its stream closes upstream's within a second."""
    with streaming(proxy, "p=0.7", model) as (_, parts):
        next(parts)
    assert upstream.last.is_cut_off(SOON_S)


@pytest.mark.parametrize("policy", [None, "{version: 1, name: all, default: hold}"])
@pytest.mark.parametrize(
    ("model", "is_stream"), [("slow", False), ("slow", True), ("gated", False), ("endless", False)]
)
def test_leaving_before_the_answer_cancels_upstream(
    start_proxy: StartProxy,
    upstream: FaultyUpstream,
    policy: str | None,
    model: str,
    is_stream: bool,
) -> None:
    """A client that gives up before its answer cancels the call to upstream within a second."""
    proxy = start_proxy(policy=policy) if policy else start_proxy()
    count_before = len(upstream.requests)
    with left_behind(proxy.port, question("p=0.7", model, stream=is_stream)):
        until(lambda: len(upstream.requests) > count_before)
    assert upstream.last.is_cut_off(SOON_S)


@pytest.mark.parametrize("commit_after_s", [0.05, 15])
def test_leaving_a_buffered_stream_cancels_upstream(
    start_proxy: StartProxy, upstream: FaultyUpstream, commit_after_s: float
) -> None:
    """Leaving a buffered stream cancels upstream, before or after its status is out."""
    proxy = start_proxy(
        policy="{version: 1, name: all, default: hold}", limits={"commit_after_s": commit_after_s}
    )
    count_before = len(upstream.requests)
    with left_behind(proxy.port, question("p=0.7", "endless", stream=True)):
        until(lambda: len(upstream.requests) > count_before)
        time.sleep(0.2)  # its status is out by then, or is not
    assert upstream.last.is_cut_off(SOON_S)


def test_a_client_that_left_costs_nothing_afterwards(
    proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """After a client left, the proxy answers the next request as usual."""
    for _ in range(3):
        with streaming(proxy, "p=0.7", "endless") as (_, parts):
            next(parts)
    started = time.perf_counter()
    assert json.loads(proxy.ask("p=0.7").content)["pinocchio"]["confidence"] == 0.7
    assert time.perf_counter() - started < SOON_S
    until(lambda: all(request.is_cut_off(0) for request in upstream.requests[:3]))
