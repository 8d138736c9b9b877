"""`buffer_tools`: text is live, tool calls wait until a policy has decided on them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.calling_streams import CALLING, calling_body
from tests.builders.scripted_streams import (
    CALLS,
    SEEN,
    SURE,
    TEXT,
    UNSURE,
    USAGE,
    RawStream,
    ScriptedUpstream,
    accumulated,
    call,
    call_policy,
    chunk,
    data_in,
    email,
    finish,
    has_no_call,
    only_choice,
    proxies_before,
    recorded,
    result,
    stream_request,
    streamed,
    text,
)
from tests.conftest import StartProxy
from tests.equality.equality_cases import without_members
from tests.running.live_proxy import LiveProxy, SlowScorer, events_in, members_in
from tests.servers.faulty_upstream import DONE, Cut, Wait

Json = dict[str, Any]


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


# Live text, waiting calls


@pytest.mark.parametrize("path", CALLING)
def test_text_is_live_and_no_byte_of_a_call_is(
    blocking: LiveProxy, upstream: ScriptedUpstream, path: str
) -> None:
    """While a call is streamed its text is out and none of its bytes are; then all of them are."""
    _, events, before, word = CALLING[path]
    upstream.steps = [*events[: before + 2], Wait(), *events[before + 2 :]]
    with RawStream(blocking.port, calling_body(path), path) as stream:
        stream.until(word)
        early = stream.for_a_while()
        assert early == b"".join(events[:before])
        upstream.last.proceed()
        whole = stream.rest()
    assert stream.is_whole
    body, members = without_members(whole)
    assert (body, members) == (b"".join(events), 1)


# Delivered


TWO = [*call("a", "{}"), *call("b", '{"p=0.9', '": 1}', number=1)]
LEGACY = [chunk({"function_call": {"name": "f", "arguments": ""}})]
LEGACY += [chunk({"function_call": {"arguments": piece}}) for piece in ('{"p=', '0.9": 1}')]
LOGPROBS = {"logprobs": {"content": [{"token": "x", "logprob": -1e-5, "bytes": None}]}}
DELIVERED: dict[str, tuple[list[Any], int]] = {  # events, and how many of them finish something
    "text and a call": (SURE, 1),
    "a call alone": ([*call("f", "{}", opening={"role": "assistant", "content": None}), CALLS], 1),
    "parallel calls": ([*TWO, CALLS, DONE], 1),
    "text after a call": ([*SURE[:-2], *text("Done. "), CALLS, DONE], 1),
    "a call and its finish in one": ([*TEXT, chunk({"tool_calls": [{"index": 0}]}, "stop")], 1),
    "a call after its finish": ([*TEXT, finish(), *email("0.9"), DONE], 1),
    "a legacy call": ([*TEXT, *LEGACY, finish("function_call"), DONE], 1),
    "usage": ([*SURE[:-1], USAGE, DONE], 1),
    "obfuscation": ([*TEXT, chunk({}, obfuscation="q"), *email("0.9"), CALLS, DONE], 1),
    "reasoning": ([chunk({"reasoning_content": "hm"}), chunk({"reasoning": "hm"}), *SURE], 1),
    "a refusal": ([chunk({"refusal": "I can"}), chunk({"refusal": "not"}), finish(), DONE], 1),
    "empty finish reasons": ([*TEXT, chunk({"content": "x"}, ""), *SURE], 1),
    "a call in one of two choices": (
        [*TEXT, *text("p=0.9", index=1), finish(index=1), *email("0.9"), CALLS, DONE],
        2,
    ),
    "no call": ([*TEXT, finish(), DONE], 1),
    "no calls listed": ([*TEXT, chunk({"tool_calls": []}), finish(), DONE], 1),
    "DONE without a line end": ([*SURE[:-1], b"data: [DONE]"], 1),
    "line ends": ([each.replace(b"\n", b"\r\n") for each in SURE], 1),
    "single bytes": ([bytes([byte]) for byte in b"".join(SURE)], 1),
    "half an event of text": ([*TEXT, chunk({"content": "x"})[:-20]], 0),
}


@pytest.mark.parametrize("name", DELIVERED)
def test_what_is_delivered_is_upstreams(
    start: StartProxy, upstream: ScriptedUpstream, name: str
) -> None:
    """A sure call arrives byte for byte, with the member on its finish chunk."""
    upstream.steps, finishes = DELIVERED[name]
    if name == "a call and its finish in one":
        proxy = start(policy=call_policy("block", when="tools: [no_such_tool]"))
    else:
        proxy = start(policy=call_policy("block"))
    got = streamed(proxy)
    body, members = without_members(bytes(got.seen))
    assert (body, members) == (upstream.step_bytes, finishes)
    assert got.is_whole
    for member in members_in(bytes(got.seen)) if finishes else ():
        assert (member["status"], member["action"]) == ("scored", "deliver")
    with_attach_off = start(policy=call_policy("block"), attach={"body": False})
    assert bytes(streamed(with_attach_off).seen) == upstream.step_bytes


def test_logprobs_beside_calls(blocking: LiveProxy, upstream: ScriptedUpstream) -> None:
    """Log-probabilities of text, and of what follows a call, arrive unchanged."""
    event = chunk({"content": "x"}).replace(
        b'"logprobs": null', json.dumps(LOGPROBS)[1:-1].encode()
    )
    assert b"-1e-05" in event
    upstream.steps = [*TEXT, event, *email("0.9"), event, CALLS, DONE]
    assert without_members(bytes(streamed(blocking).seen)) == (upstream.step_bytes, 1)


def test_shadow_mode_waits_for_nothing(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """In shadow mode calls are live, and the member says what would have happened."""
    proxy = start(policy=call_policy("block", more="mode: shadow"))
    upstream.steps = [*UNSURE[:-2], Wait(), *UNSURE[-2:]]
    with RawStream(proxy.port, stream_request()) as stream:
        stream.until(b"p=0.1")
        upstream.last.proceed()
        body, _ = without_members(stream.rest())
    assert body == b"".join(UNSURE)
    [member] = members_in(bytes(stream.seen))
    assert (member["action"], member["would_action"]) == ("deliver", "block")


def test_without_a_call_nothing_waits(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A stream of text alone is live: a late score is pending there and found later."""
    scorer = SlowScorer("slow@text")
    proxy = start(policy=call_policy("block"), scorer=scorer, limits={"stream_wait_ms": 20})
    upstream.steps = [*text("p=0.1"), finish(), DONE]
    got = streamed(proxy)
    [member] = members_in(bytes(got.seen))
    assert (member["status"], member["reason"]) == ("pending", "late")
    scorer.proceed.set()
    later = result(proxy, got.fields["x-pinocchio-request-id"])
    assert (later["status"], later["confidence"], later["action"]) == ("scored", 0.1, "deliver")


# Not delivered


@pytest.mark.parametrize(
    ("then", "code", "action"),
    [
        ("hold", "held_for_review", "hold"),
        ("{hold: {reply: error}}", "held_for_review", "hold"),
        ("block", "blocked_by_policy", "block"),
    ],
)
@pytest.mark.parametrize("end", [DONE, b"data: [DONE]", b""], ids=["", "open end", "no DONE"])
def test_error_event_replaces_the_call(
    start: StartProxy, upstream: ScriptedUpstream, then: str, code: str, action: str, end: bytes
) -> None:
    """A held or blocked call is an error event after the text, without [DONE] or the call."""
    proxy = start(policy=call_policy(then))
    upstream.steps = [*UNSURE[:-1], end] if end else UNSURE[:-1]
    got = streamed(proxy)
    rest = bytes(got.seen).removeprefix(SEEN)
    [error] = data_in(rest)
    assert rest.startswith(b'data: {"error"')
    assert (error["error"]["code"], got.is_whole) == (code, True)
    assert b"[DONE]" not in rest
    assert has_no_call(bytes(got.seen))
    id = got.fields["x-pinocchio-request-id"]
    row, later = recorded(proxy, id), result(proxy, id)
    assert (row["status"], row["error"]) == (200, code)
    assert row["action"] == later["action"] == action
    assert row["confidence"] == later["confidence"] == 0.1
    assert row["review_id"] == later.get("review_id")


def test_a_held_call_is_stored_whole(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """A reviewer sees, and a client fetches after the release, both text and call."""
    proxy = start(policy=call_policy("hold"))
    upstream.steps = UNSURE
    got = streamed(proxy)
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    with sqlite3.connect(proxy.store_path) as store:
        store.execute("UPDATE held_replies SET state = 'released' WHERE id = ?", [row["review_id"]])
    store.close()
    assert row["review_id"] in bytes(got.seen).decode()
    [choice] = proxy.openai.chat.completions.retrieve(row["review_id"]).choices
    assert (choice.message.content, choice.finish_reason) == ("Let me look. ", "tool_calls")
    [held] = choice.message.tool_calls or []
    assert held.type == "function"
    assert json.loads(held.function.arguments) == {"to": "ann", "about": "p=0.1"}


@pytest.mark.parametrize(
    ("then", "text", "reason"),
    [
        ("{hold: {reply: placeholder}}", "held for review", "content_filter"),
        ("{hold: {reply: refusal}}", "Not done: send_email.", "stop"),
        ("{clarify: {text: Which Ann}}", "Which Ann", "stop"),
    ],
)
def test_words_stand_for_the_call(
    start: StartProxy, upstream: ScriptedUpstream, then: str, text: str, reason: str
) -> None:
    """What replaces a call continues the text; official clients join both."""
    proxy = start(policy=call_policy(then))
    upstream.steps = [*UNSURE[:-1], USAGE, DONE]
    got = streamed(proxy, stream_request(stream_options={"include_usage": True}))
    body = bytes(got.seen)
    assert body.startswith(SEEN)
    assert has_no_call(body.replace(b"Not done: send_email.", b""))
    assert body.endswith(b"data: [DONE]\n\n")
    assert body.count(b"[DONE]") == body.count(b'"role"') == 1
    assert [m["action"] for m in members_in(body)] == [then[1:].split(":")[0]]
    assert events_in(body)[-1]["usage"]["total_tokens"] == 7
    choice = only_choice(accumulated(proxy))
    assert choice.message.content.startswith("Let me look. ")
    assert text in choice.message.content
    assert (choice.finish_reason, choice.message.tool_calls) == (reason, None)


def test_withheld_role_is_sent(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """Where a stream begins with the call, its replacement begins with the role."""
    proxy = start(policy=call_policy("{clarify: {text: Which Ann}}"))
    opening = call("f", '{"a": "p=0.1"}', opening={"role": "assistant", "content": None})
    upstream.steps = [*opening, CALLS, DONE]
    choice = only_choice(accumulated(proxy))
    assert (choice.message.content, choice.finish_reason) == ("Which Ann", "stop")


def test_nothing_of_upstreams_follows_what_replaces_a_call(
    start: StartProxy, upstream: ScriptedUpstream
) -> None:
    """Upstream's unfinished last line is not repeated after the replacement."""
    proxy = start(policy=call_policy("{clarify: {text: Which Ann}}"))
    upstream.steps = [*UNSURE[:-1], b"data: [DONE]"]
    body = bytes(streamed(proxy).seen)
    assert body.endswith(b"data: [DONE]\n\n")
    assert body.count(b"[DONE]") == 1


# Escalation


def escalating(start: StartProxy, keep: str = "best") -> LiveProxy:
    return start(policy=call_policy(f"{{escalate: {{to: strong, keep: {keep}}}}}"))


def test_an_escalation_that_keeps_the_call(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """Where the first answer is surer than the other model's, the bytes are upstream's."""
    proxy = escalating(start)
    upstream.steps = UNSURE
    upstream.by_model = {"strong": [*text("p=0.05"), finish(), DONE]}
    got = streamed(proxy)
    assert without_members(bytes(got.seen)) == (b"".join(UNSURE), 1)
    [member] = members_in(bytes(got.seen))
    assert (member["action"], member["confidence"]) == ("escalate", 0.1)
    assert "escalated_from" not in member


def test_an_escalation_to_other_calls(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """Another model's text and calls follow the text sent already; clients join them."""
    proxy = escalating(start)
    upstream.steps = UNSURE
    other = [*call("look_up", '{"who":', '"p=0.8"}'), *call("wait", "{}", number=1)]
    upstream.by_model = {"strong": [*text("Wait. "), *other, CALLS, DONE]}
    got = streamed(proxy)
    assert bytes(got.seen).startswith(SEEN)
    assert has_no_call(bytes(got.seen).replace(b"tool_calls", b"").replace(b"call_0", b""))
    [member] = members_in(bytes(got.seen))
    assert (member["escalated_from"], member["confidence"]) == ("m", 0.8)
    choice = only_choice(accumulated(proxy))
    assert choice.message.content == "Let me look. Wait. "
    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls]
    assert calls == [("call_0", "look_up", '{"who":"p=0.8"}'), ("call_1", "wait", "{}")]
    assert choice.finish_reason == "tool_calls"
    row = recorded(proxy, got.fields["x-pinocchio-request-id"])
    assert (row["action"], row["escalated_from"]) == ("escalate", "m")


def test_an_escalation_that_fails(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """Where the other model breaks off, the first answer is decided on."""
    proxy = escalating(start, keep="last")
    upstream.steps = UNSURE
    upstream.by_model = {"strong": [*TEXT, Cut()]}
    assert without_members(bytes(streamed(proxy).seen)) == (b"".join(UNSURE), 1)


# Several calls, several choices


def test_parallel_calls_are_judged_together(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """One risky call among several holds all of them; there is one score."""
    proxy = start(policy=call_policy("{hold: {reply: error}}", when="tools: [send_*]"))
    upstream.steps = [*call("look_up", "{}"), *call("send_email", "{}", number=1), CALLS, DONE]
    got = streamed(proxy)
    [error] = data_in(bytes(got.seen))
    assert error["error"]["code"] == "held_for_review"
    assert b"look_up" not in got.seen
    upstream.steps = [*call("look_up", "{}"), *call("look_on", "{}", number=1), CALLS, DONE]
    assert without_members(bytes(streamed(proxy).seen)) == (upstream.step_bytes, 1)


def test_a_choice_that_has_finished_stays_so(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """With n > 1 only choices that were withheld are replaced, each finished once."""
    proxy = start(policy=call_policy("{clarify: {text: Which Ann}}"))
    two = call("f", '{"a": "p=0.1"}', index=1, opening={"role": "assistant"})
    ends = [finish("tool_calls", index=1), finish(index=2), DONE]
    upstream.steps = [*text("p=0.9"), finish(), *text("half", index=2), *two, *ends]
    body = bytes(streamed(proxy, stream_request(n=3)).seen)
    texts: dict[int, str] = {}
    ended: list[int] = []
    for event in events_in(body):
        for choice in event["choices"]:
            assert choice["index"] not in ended
            texts[choice["index"]] = texts.get(choice["index"], "") + (
                choice["delta"].get("content") or ""
            )
            ended += [choice["index"]] if choice["finish_reason"] else []
    assert texts == {0: "p=0.9", 1: "Which Ann", 2: "halfWhich Ann"}
    assert sorted(ended) == [0, 1, 2]
    assert [m["action"] for m in members_in(body)] == ["deliver", "clarify"]


def test_a_placeholder_finishes_every_choice(start: StartProxy, upstream: ScriptedUpstream) -> None:
    """One placeholder replaces all choices that were withheld."""
    proxy = start(policy=call_policy("{hold: {reply: placeholder}}"))
    both = [*call("f", '{"a": "p=0.1"}'), *call("g", "{}", index=1)]
    upstream.steps = [*text("a"), *text("b", index=1), *both, CALLS, finish(index=1), DONE]
    body = bytes(streamed(proxy, stream_request(n=2)).seen)
    ends = [c["index"] for e in events_in(body) for c in e["choices"] if c["finish_reason"]]
    assert ends == [0, 1]
    assert has_no_call(body)
