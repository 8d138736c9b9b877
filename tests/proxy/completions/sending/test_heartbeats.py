"""Replies whose status goes out early: what keeps the connection alive, and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from proxy.completions.sending import heartbeats
from tests.builders.scripted_streams import (
    RawStream,
    ScriptedUpstream,
    closings,
    finish,
    proxies_before,
    recorded,
    stream_request,
    text,
)
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    LiveProxy,
    SlowScorer,
    events_in,
    members_in,
    question,
    text_in,
    without_member,
)
from tests.servers.faulty_upstream import (
    DONE,
    ENCODERS,
    JSON,
    Cut,
    Headers,
    Received,
    Response,
    Step,
    Wait,
)

Fields = dict[str, Any]
EARLY = {"commit_after_s": 0.05}
PING = b": ping\n\n"
STATUS = "x-pinocchio-confidence-status"
SCHEMA = {"response_format": {"type": "json_object"}}


class SlowUpstream(ScriptedUpstream):
    """Answers a plain request with JSON in two chunks and a wait between them."""

    def forget(self) -> None:
        super().forget()
        self.body = b""
        self.body_by_model: dict[str, bytes] = {}
        self.headers: Headers = JSON
        self.framing: Literal["length", "chunked"] = "chunked"
        self.breaks_off = False
        self.answers_late = False
        self.status = 200
        self.json_models: set[str] = set()  # models that never stream

    def respond(self, request: Received) -> Response:
        model = str(request.json()["model"])
        if request.is_stream and self.status == 200 and model not in self.json_models:
            return replace(super().respond(request), waits_first=self.answers_late)
        body = self.body_by_model.get(model, self.body)
        half = len(body) // 2
        end: list[Step] = [Cut()] if self.breaks_off else [body[half:]]
        steps: list[Step] = [body[:half], Wait(), *end]
        return Response(steps, self.status, self.headers, self.framing, self.answers_late)


@pytest.fixture(scope="module")
def running() -> Iterator[SlowUpstream]:
    with SlowUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: SlowUpstream, monkeypatch: pytest.MonkeyPatch) -> SlowUpstream:
    monkeypatch.setattr(heartbeats, "PING_EVERY_S", 0.02)
    running.forget()
    return running


@pytest.fixture(scope="module")
def start(running: SlowUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProxy]:
    with proxies_before(running, tmp_path_factory) as start:
        yield start


def policy(then: str, more: str = "") -> str:
    """Return a policy that does `then` with unsure replies."""
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.3}}}}, then: {then}}}"
    return f"version: 1\nname: desk\n{more}\nrules: [{rule}]\ndefault: deliver\n"


def completion(text: str) -> bytes:
    """Return a completion as upstream writes it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1.0, "model": "m-2099"}
    return json.dumps({**head, "choices": [{**choice, "finish_reason": "stop"}]}).encode()


def gated(*events: bytes) -> list[Step]:
    """Return a stream that stops after its first event."""
    return [events[0], Wait(), *events[1:]]


def late(proxy: LiveProxy, body: Fields, upstream: ScriptedUpstream, ping: bytes) -> RawStream:
    """Return a reply whose status and two pings arrived while the upstream waited.

    The upstream then sends the rest.
    """
    with RawStream(proxy.port, body) as stream:
        stream.until(ping * 2)
        assert stream.head() == 200
        assert (stream.fields[STATUS], stream.fields["x-pinocchio-confidence-reason"]) == (
            "pending",
            "buffered",
        )
        upstream.last.proceed()
        stream.rest()
    return stream


def late_json(proxy: LiveProxy, upstream: SlowUpstream, **fields: Any) -> RawStream:
    return late(proxy, question("do it", "m", **fields), upstream, b" ")


def late_stream(proxy: LiveProxy, upstream: SlowUpstream, answer: str, **fields: Any) -> RawStream:
    upstream.steps = gated(*text(answer), finish(), DONE)
    return late(proxy, stream_request(**fields), upstream, PING)


# Delivered


def test_a_late_body_follows_white_space(start: StartProxy, upstream: SlowUpstream) -> None:
    """After the white space the body is upstream's, with the outcome in its member."""
    proxy = start(policy=policy("hold"), limits=EARLY)
    upstream.body = completion("p=0.9")
    got = late_json(proxy, upstream)
    body = bytes(got.seen)
    assert got.is_whole
    assert without_member(body.lstrip(b" ")) == upstream.body
    member = json.loads(body)["pinocchio"]
    assert (member["confidence"], member["status"], member["action"]) == (0.9, "scored", "deliver")
    assert got.fields["content-type"] == "application/json"
    assert "content-length" not in got.fields
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["status"], row["error"], row["confidence"]) == (200, None, 0.9)


def test_a_late_stream_follows_comments(start: StartProxy, upstream: SlowUpstream) -> None:
    """After the comments the events are upstream's, with the outcome on the finish chunk."""
    proxy = start(policy=policy("hold"), limits=EARLY)
    got = late_stream(proxy, upstream, "p=0.9")
    events = b"".join(step for step in upstream.steps if isinstance(step, bytes))
    assert without_member(bytes(got.seen).replace(PING, b"")) == events
    assert members_in(bytes(got.seen))[0]["confidence"] == 0.9
    assert got.is_whole


@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_a_late_body_is_decoded(
    start: StartProxy, upstream: SlowUpstream, encoding: str, attach: bool
) -> None:
    """A late body is sent decoded, since white space cannot precede an encoded one."""
    proxy = start(policy=policy("hold"), limits=EARLY, attach={"body": attach})
    body = completion("p=0.9")
    upstream.body = ENCODERS[encoding](body)
    upstream.headers = (*JSON, ("Content-Encoding", encoding))
    got = late_json(proxy, upstream)
    assert "content-encoding" not in got.fields
    assert without_member(bytes(got.seen).lstrip(b" ")) == body


@pytest.mark.parametrize("observes", [True, False])
def test_late_json_that_is_no_completion(
    start: StartProxy, upstream: SlowUpstream, observes: bool
) -> None:
    """Late JSON that is no completion arrives unchanged where
    the policy only observes; otherwise the body breaks off.
    """
    more = "mode: shadow" if observes else ""
    proxy = start(policy=policy("hold", more), limits=EARLY)
    body = b'{"something": "else", "n": 1.0}'
    upstream.body = ENCODERS["gzip"](body)
    upstream.headers = (*JSON, ("Content-Encoding", "gzip"))
    got = late_json(proxy, upstream)
    assert got.is_whole is observes
    assert bytes(got.seen).strip() == (body if observes else b"")


# Held and blocked


@pytest.mark.parametrize("fields", [{}, SCHEMA], ids=["text", "json"])
@pytest.mark.parametrize("reply", ["placeholder", "error"])
def test_a_late_hold_of_a_body_is_a_placeholder(
    start: StartProxy, upstream: SlowUpstream, reply: str, fields: Fields
) -> None:
    """Once white space is out a hold can have no error status, so the body is the placeholder."""
    proxy = start(policy=policy(f"{{hold: {{reply: {reply}}}}}"), limits=EARLY)
    upstream.body = completion("secret p=0.1")
    got = late_json(proxy, upstream, **fields)
    body = json.loads(got.seen)
    assert (got.is_whole, b"secret" in got.seen) == (True, False)
    assert body["choices"][0]["finish_reason"] == "content_filter"
    assert (body["pinocchio"]["action"], body["pinocchio"]["review_id"]) == ("hold", body["id"])
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["status"], row["action"], row["review_id"]) == (200, "hold", body["id"])


def test_a_late_block_of_a_body(start: StartProxy, upstream: SlowUpstream) -> None:
    """A late block of a body is a completion that says so and has nothing of the answer."""
    proxy = start(policy=policy("block"), limits=EARLY)
    upstream.body = completion("secret p=0.1")
    got = late_json(proxy, upstream)
    body = json.loads(got.seen)
    assert (body["choices"][0]["finish_reason"], body["pinocchio"]["action"]) == (
        "content_filter",
        "block",
    )
    assert b"secret" not in got.seen


@pytest.mark.parametrize(
    ("then", "code"),
    [("{hold: {reply: error}}", "held_for_review"), ("block", "blocked_by_policy")],
)
def test_a_late_error_of_a_stream_is_an_event(
    start: StartProxy, upstream: SlowUpstream, then: str, code: str
) -> None:
    """A late block of a stream, or a hold with an error,
    is an error event without [DONE], under status 200.
    """
    proxy = start(policy=policy(then), limits=EARLY)
    got = late_stream(proxy, upstream, "secret p=0.1")
    [error] = events_in(bytes(got.seen))
    assert error["error"]["code"] == code
    assert (b"[DONE]" in got.seen, b"secret" in got.seen, got.is_whole) == (False, False, True)
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["status"], row["error"]) == (200, code)


def test_a_late_placeholder_of_a_stream(start: StartProxy, upstream: SlowUpstream) -> None:
    """A late hold of a text stream is the whole stream of the placeholder."""
    proxy = start(policy=policy("hold"), limits=EARLY)
    got = late_stream(proxy, upstream, "secret p=0.1")
    assert events_in(bytes(got.seen))[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert bytes(got.seen).endswith(DONE)
    assert b"secret" not in got.seen


# Upstream breaks off


def test_half_a_late_body_breaks_off(start: StartProxy, upstream: SlowUpstream) -> None:
    """Where upstream breaks off a late body, the body breaks
    off too, so no client takes white space for an answer.
    """
    proxy = start(policy=policy("hold"), limits=EARLY)
    upstream.body, upstream.breaks_off = completion("p=0.9"), True
    got = late_json(proxy, upstream)
    assert (got.is_whole, bytes(got.seen).strip()) == (False, b"")
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["status"], row["error"]) == (200, "upstream_broke_off")


def test_half_a_late_stream_is_an_error_event(start: StartProxy, upstream: SlowUpstream) -> None:
    """A late stream that upstream breaks off ends with an error, without undecided text."""
    proxy = start(policy=policy("hold"), limits=EARLY)
    upstream.steps = [text("p=0.9")[1], Wait(), Cut()]
    got = late(proxy, stream_request(), upstream, PING)
    [error] = events_in(bytes(got.seen))
    assert (error["error"]["code"], got.is_whole) == ("upstream_broke_off", True)
    assert b"[DONE]" not in got.seen


# Escalations


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_slow_escalation(start: StartProxy, upstream: SlowUpstream, is_stream: bool) -> None:
    """Pings go out while another model is asked; then its answer arrives."""
    proxy = start(policy=policy("{escalate: {to: strong, keep: last}}"), limits=EARLY)
    upstream.body = completion("weak p=0.1")
    upstream.body_by_model = {"strong": completion("strong p=0.8")}
    upstream.steps = [*text("weak p=0.1"), finish(), DONE]
    upstream.by_model = {"strong": gated(*text("strong p=0.8"), finish(), DONE)}
    with RawStream(proxy.port, question("do it", "m", stream=is_stream)) as stream:
        upstream.wait_for_request().proceed()
        second = upstream.wait_for_request(2)
        stream.until((PING if is_stream else b" ") * 2)
        second.proceed()
        body = stream.rest()
    member = members_in(body)[0] if is_stream else json.loads(body)["pinocchio"]
    assert (member["action"], member["confidence"], member["escalated_from"]) == (
        "escalate",
        0.8,
        "m",
    )
    assert (stream.is_whole, b"strong p=0.8" in body, b"weak" in body) == (True, True, False)


def test_another_model_answers_in_another_form(start: StartProxy, upstream: SlowUpstream) -> None:
    """Where a stream has begun and the other model answers with JSON, the first answer is kept."""
    proxy = start(policy=policy("{escalate: {to: strong, keep: last}}"), limits=EARLY)
    upstream.steps = gated(*text("weak p=0.1"), finish(), DONE)
    upstream.json_models = {"strong"}
    upstream.body = completion("strong p=0.8")
    with RawStream(proxy.port, stream_request()) as stream:
        stream.until(PING)
        upstream.wait_for_request().proceed()
        upstream.wait_for_request(2).proceed()
        assert text_in(stream.rest()) == "weak p=0.1"


# Before the status is out


@pytest.mark.parametrize("is_stream", [True, False])
def test_in_time_every_status_is_possible(
    start: StartProxy, upstream: SlowUpstream, is_stream: bool
) -> None:
    """A reply that is ready within `commit_after_s` has its own status and headers, and no ping."""
    proxy = start(policy=policy("block"), limits={"commit_after_s": 30})
    upstream.body = completion("p=0.1")
    upstream.steps = gated(*text("p=0.1"), finish(), DONE)
    with RawStream(proxy.port, question("do it", "m", stream=is_stream)) as stream:
        assert stream.for_a_while() == b""
        assert stream.status == 0
        upstream.last.proceed()
        assert stream.head() == 422
        body = json.loads(stream.rest())
    assert body["error"]["code"] == "blocked_by_policy"
    assert stream.fields["x-pinocchio-confidence"] == "0.1000"


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("is_stream", [True, False])
def test_without_upstreams_head_nothing_is_sent(
    start: StartProxy, upstream: SlowUpstream, is_stream: bool, status: int
) -> None:
    """Nothing is sent before upstream's head arrives, and its status is the client's."""
    proxy = start(policy=policy("hold"), limits=EARLY)
    upstream.answers_late, upstream.status = True, status
    upstream.body = completion("p=0.9") if status == 200 else b'{"error": {"code": "c"}}'
    upstream.steps = [*text("p=0.9"), finish(), DONE]
    with RawStream(proxy.port, question("do it", "m", stream=is_stream)) as stream:
        assert stream.for_a_while(0.2) == b""
        assert stream.status == 0
        upstream.last.proceed()
        assert stream.head() == status


def test_a_slow_score_of_a_whole_body(start: StartProxy, upstream: SlowUpstream) -> None:
    """Pings also go out while a whole body waits for its score longer than `commit_after_s`."""
    scorer = SlowScorer("slow@whole")
    patience = {"timeout_s": 10.0}
    proxy = start(policy=policy("hold"), limits=EARLY, scorer=scorer, calibrator=patience)
    upstream.body, upstream.framing = completion("p=0.9"), "length"
    with RawStream(proxy.port, question("do it", "m")) as stream:
        upstream.wait_for_request().proceed()
        stream.until(b"  ")
        scorer.proceed.set()
        assert json.loads(stream.rest())["pinocchio"]["confidence"] == 0.9


# Clients that leave


@pytest.mark.parametrize("is_stream", [True, False])
def test_leaving_after_the_status_is_out(
    start: StartProxy,
    upstream: SlowUpstream,
    is_stream: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that leaves after the status is out cancels upstream; there is one record."""
    closed = closings(monkeypatch)
    proxy = start(policy=policy("hold"), limits=EARLY)
    upstream.body = completion("p=0.9")
    upstream.steps = gated(*text("p=0.9"), finish(), DONE)
    with RawStream(proxy.port, question("do it", "m", stream=is_stream)) as stream:
        stream.until(PING if is_stream else b" ")
    assert upstream.is_left()
    id = stream.fields["x-pinocchio-request-id"]
    assert recorded(proxy, id)["error"] == "client_left"
    assert closed.count(id) == 1
