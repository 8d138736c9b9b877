"""`/v1/responses` end to end: the same bytes, the confidence, and what policies make of it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.live_proxy import LiveProxy, RawReply, WordScorer, error_of, post_raw, until
from tests.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
Start = Callable[..., LiveProxy]
MODELS = ["ok", "tools", "many", "refusal", "incomplete", "vendor"]
TEXT = "p=0.7 ä🍋"
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
HOLD = "{version: 1, name: all, default: hold}"
UNSURE = """
version: 1
name: desk
mode: enforce
on_score_error: %s
rules:
  - {name: unsure, when: {confidence: {below: 0.5}}, then: %s}
default: deliver
"""
TOOLS = """
version: 1
name: tools
mode: enforce
on_score_error: deliver
rules:
  - {name: unsure tools, when: {tools: any, confidence: {below: 0.5}}, then: %s}
default: deliver
"""


@pytest.fixture(scope="module")
def running() -> Iterator[ResponsesUpstream]:
    with ResponsesUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: ResponsesUpstream) -> ResponsesUpstream:
    running.forget()
    return running


@pytest.fixture(scope="module")
def start(running: ResponsesUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a proxy in front of the upstream, or gives the one that has these options."""
    started: dict[str, LiveProxy] = {}

    def start_one(**options: Any) -> LiveProxy:
        key = repr(sorted(options.items()))
        if key not in started:
            folder = tmp_path_factory.mktemp("proxy")
            started[key] = LiveProxy(running.base_url, folder, **options)
        return started[key]

    yield start_one
    for proxy in started.values():
        proxy.ask_to_stop()
    for proxy in started.values():
        proxy.stop()


@pytest.fixture(scope="module")
def proxy(start: Start) -> LiveProxy:
    """A proxy that only observes."""
    return start()


def ask(proxy: LiveProxy, model: str = "ok", text: Any = TEXT, **fields: Any) -> RawReply:
    return post_raw(f"{proxy.base_url}/responses", {"model": model, "input": text, **fields})


def fetch(proxy: LiveProxy, id: str, query: str = "", key: str = "sk-client") -> httpx.Response:
    return proxy.http.get(f"/v1/responses/{id}{query}", headers={"authorization": f"Bearer {key}"})


def without_member(body: bytes) -> bytes:
    """The bytes without our member, wherever it stands."""
    text = body.decode()
    while (at := text.find(',"pinocchio":')) >= 0:
        _, end = json.JSONDecoder().raw_decode(text, at + len(',"pinocchio":'))
        text = text[:at] + text[end:]
    return text.encode()


def events_in(stream: bytes) -> list[Json]:
    """All events; each is named by its type."""
    events = []
    for block in stream.replace(b": ping\n\n", b"").strip().split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.splitlines())
        event: Json = json.loads(fields[b"data"])
        assert fields[b"event"].decode() == event["type"]
        events.append(event)
    return events


def numbers_in(stream: bytes) -> list[int]:
    return [event["sequence_number"] for event in events_in(stream)]


def final_of(stream: bytes) -> Json:
    response: Json = events_in(stream)[-1]["response"]
    return response


def uncounted(body: bytes) -> bytes:
    """The bytes without the numbers by which the upstream counts its responses."""
    return re.sub(rb"resp_\d+", b"resp_N", body)


def told_by(upstream: ResponsesUpstream, asked: Json) -> bytes:
    """What upstream itself answers."""
    return uncounted(post_raw(f"{upstream.base_url}/responses", asked).body)


def release(proxy: LiveProxy, id: str, state: str = "released") -> None:
    with sqlite3.connect(proxy.store_path) as store:
        store.execute("UPDATE held_replies SET state = ? WHERE id = ?", (state, id))
    store.close()


def held_ids(proxy: LiveProxy) -> list[str]:
    with sqlite3.connect(proxy.store_path) as store:
        ids = [id for (id,) in store.execute("SELECT id FROM held_replies ORDER BY created_at")]
    store.close()
    return ids


# The bytes


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "split", "bare-end"])
def test_without_member_the_bytes_are_upstreams(
    proxy: LiveProxy, upstream: ResponsesUpstream, model: str, is_stream: bool
) -> None:
    """Taking out the one member gives upstream's bytes, whole or streamed."""
    asked = {"model": model, "input": TEXT, "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert got.body.count(b'"pinocchio":') == 1
    assert uncounted(without_member(got.body)) == told_by(upstream, asked)
    assert json.loads(upstream.received[0].body) == asked


@pytest.mark.parametrize("is_stream", [False, True])
def test_with_attach_body_off_the_bytes_are_identical(
    start: Start, upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """With `attach.body: false` not even a member is added."""
    asked = {"model": "many", "input": TEXT, "stream": is_stream}
    got = post_raw(f"{start(attach={'body': False}).base_url}/responses", asked)
    assert uncounted(got.body) == told_by(upstream, asked)


@pytest.mark.parametrize("policy", [None, UNSURE % ("hold", "hold")])
@pytest.mark.parametrize("model", MODELS)
def test_the_member_stands_in_the_response_of_the_last_event(
    start: Start, model: str, policy: str | None
) -> None:
    """A stream's confidence stands in the finished response and nowhere else, live or buffered."""
    proxy = start(policy=policy) if policy else start()
    body = ask(proxy, model, stream=True).body
    assert body.count(b'"pinocchio":') == 1
    member = final_of(body)["pinocchio"]
    assert member["confidence"] == (0.42 if model == "vendor" else 0.7)
    assert member["choices"][0]["status"] == "scored"


def test_a_buffered_stream_is_the_live_one(start: Start) -> None:
    """A stream that waited for its score has the events that it has live."""
    told = [
        without_member(ask(p, "many", stream=True).body).replace(b" ", b"")
        for p in (start(), start(policy=UNSURE % ("hold", "hold")))
    ]
    first, second = ([{**e, "response": None} for e in events_in_order(t)] for t in told)
    assert first == second


def events_in_order(stream: bytes) -> list[Json]:
    lines = (line for line in stream.splitlines() if line.startswith(b"data:"))
    return [json.loads(line[5:]) for line in lines]


# What official clients see


def test_the_openai_client_reads_it(proxy: LiveProxy) -> None:
    """The official client gets its response, with the member beside what it knows."""
    response = proxy.openai.responses.create(model="many", input="p=0.9")
    assert response.output_text == "p=0.9"
    assert (response.model_extra or {})["pinocchio"]["confidence"] == 0.9
    assert [item.type for item in response.output][2:] == [
        "custom_tool_call",
        "shell_call",
        "mcp_call",
    ]


def test_the_openai_client_streams_it(proxy: LiveProxy) -> None:
    """The official client's stream has the same events, the member in the last one."""
    *_, last = proxy.openai.responses.create(model="ok", input="p=0.9", stream=True)
    assert last.type == "response.completed"
    assert (last.response.model_extra or {})["pinocchio"]["confidence"] == 0.9


class City(BaseModel):
    name: str
    p: str


@pytest.mark.parametrize("policy", [None, UNSURE % ("hold", "hold")])
def test_the_stream_helper_parses_structured_output(start: Start, policy: str | None) -> None:
    """`responses.stream` accumulates and parses a stream that passed the proxy."""
    proxy = start(policy=policy) if policy else start()
    text = '{"name":"Paris","p":"p=0.8"}'
    with proxy.openai.responses.stream(model="ok", input=text, text_format=City) as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == text
    assert final.output_parsed == City(name="Paris", p="p=0.8")


def test_the_stream_helper_accumulates_calls(start: Start) -> None:
    """`responses.stream` puts a call's arguments together that waited for its score."""
    proxy = start(policy=TOOLS % "hold")
    with proxy.openai.responses.stream(model="tools", input="p=0.9", tools=[WEATHER]) as stream:  # type: ignore[list-item]  # a plain dict
        deltas = [e for e in stream if e.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert json.loads(deltas[-1].snapshot) == {"city": "p=0.9"}
    assert final.output[1].type == "function_call"


# Scores


def test_the_question_is_written_as_for_chat(start: Start) -> None:
    """Instructions stay out, earlier turns, results and offered tools are in, as in chat."""
    proxy = start(scorer=(scorer := WordScorer("seen@1")))
    items = [
        {"role": "user", "content": "Where am I?"},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "locate", "arguments": '{"ip":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "Paris p=0.6"},
    ]
    ask(proxy, text=items, tools=[WEATHER], instructions="Be brief.")
    question = scorer.seen[-1].question
    assert question == (
        "User request: Where am I?\n\n"
        "[assistant] [locate(ip=1)]\n[tool] Paris p=0.6\n\n"
        "Available functions (JSON):\n"
        '[{"name": "get_weather", "parameters": {"type": "object"}}]'
    )


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({"text": [{"role": "user", "content": [{"type": "input_image"}]}]}, "image"),
        ({"text": [{"role": "user", "content": [{"type": "input_file"}]}]}, "file"),
        ({"text": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        ({"text": [{"type": "brand_new", "id": "x"}]}, "unknown_item"),
        ({"text": "p=0.9", "previous_response_id": "resp_x"}, "unknown_previous_response"),
        ({"text": "p=0.9", "conversation": "conv_1"}, "conversation"),
        ({"text": "p=0.9", "prompt": {"id": "pmpt_1"}}, "prompt_template"),
        ({"text": 7}, "input"),
    ],
)
def test_what_cannot_be_scored_says_why(proxy: LiveProxy, fields: Json, reason: str) -> None:
    """A question whose text is not in the request has no number and a machine word."""
    got = ask(proxy, **fields)
    assert got.status == 200
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == reason


def test_a_prompt_template_needs_no_model(proxy: LiveProxy, upstream: ResponsesUpstream) -> None:
    """The model may stand in a template of upstream's; such a request is relayed."""
    got = post_raw(f"{proxy.base_url}/responses", {"prompt": {"id": "pmpt_1"}})
    assert got.status == 200
    assert upstream.last.json() == {"prompt": {"id": "pmpt_1"}}
    refused = post_raw(f"{proxy.base_url}/responses", {"input": "x"})
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, "missing_model")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_conversation_goes_on(start: Start, is_stream: bool) -> None:
    """With `previous_response_id` the question has the remembered turns, of this key only."""
    proxy = start(scorer=(scorer := WordScorer(f"turns@{is_stream}")))
    first = ask(proxy, text="I am Ada.", stream=is_stream)
    id = final_of(first.body)["id"] if is_stream else json.loads(first.body)["id"]
    second = ask(proxy, text="Who am I? p=0.8", previous_response_id=id)
    assert scorer.seen[-1].question == "[user] I am Ada.\n[assistant] I am Ada.\n\nWho am I? p=0.8"
    third = ask(proxy, text="Sure?", previous_response_id=json.loads(second.body)["id"])
    assert third.headers["x-pinocchio-confidence-status"] == "scored"
    assert scorer.seen[-1].question.startswith(
        "[user] I am Ada.\n[assistant] I am Ada.\n[user] Who"
    )
    fields = {"model": "ok", "input": "x", "previous_response_id": id}
    other = post_raw(f"{proxy.base_url}/responses", fields, authorization="Bearer sk-other")
    assert other.headers["x-pinocchio-confidence-reason"] == "unknown_previous_response"


def test_a_result_belongs_to_the_call_before_it(start: Start) -> None:
    """A turn of nothing but a tool's result is scored with the question that led to the call."""
    proxy = start(scorer=(scorer := WordScorer("results@1")))
    id = json.loads(ask(proxy, "tools", text="Oslo").body)["id"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain p=0.8"}
    ask(proxy, text=[result], previous_response_id=id)
    assert scorer.seen[-1].question == (
        'Oslo\n\n[assistant] Let me look.  [get_weather(city="Oslo")]\n[tool] rain p=0.8'
    )


# Policies on whole responses


def test_a_held_response_is_a_valid_placeholder(start: Start) -> None:
    """The client gets an incomplete response that says so, and later the reply under its id."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    held = proxy.openai.responses.create(model="ok", input="secret p=0.2")
    assert held.id.startswith("resp_held_")
    assert (held.status, held.model) == ("incomplete", "ok-2099")
    assert held.incomplete_details is not None
    assert held.incomplete_details.reason == "content_filter"
    assert "held for review" in held.output_text
    assert held.usage is not None
    assert held.usage.total_tokens == 7
    assert proxy.openai.responses.retrieve(held.id).status == "incomplete"
    assert fetch(proxy, held.id, key="sk-other").status_code == 404
    release(proxy, held.id)
    released = proxy.openai.responses.retrieve(held.id)
    assert (released.id, released.output_text) == (held.id, "secret p=0.2")
    events = list(proxy.openai.responses.retrieve(held.id, stream=True))
    assert [e.type for e in events][-1] == "response.completed"


def test_headers_of_a_held_response_do_not_lead_to_it(start: Start) -> None:
    """Nothing in the reply to a held request names upstream's id or the text."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    got = ask(proxy, text="secret p=0.2")
    told = got.body + str(got.headers.raw).encode()
    assert b"secret" not in told
    assert b"resp_" not in told.replace(b"resp_held_", b"")


@pytest.mark.parametrize(
    "model, fields", [("tools", {}), ("ok", {"text": {"format": {"type": "json_schema"}}})]
)
def test_what_a_client_would_parse_is_held_with_an_error(
    start: Start, model: str, fields: Json
) -> None:
    """In place of a tool call or of JSON stands an error with the review's id, never prose."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    body = {"model": model, "input": "p=0.2", **fields}
    got = proxy.http.post("/v1/responses", json=body)
    assert got.status_code == 422
    assert error_of(got)["code"] == "held_for_review"
    id = got.headers["x-pinocchio-review-id"]
    assert f"/v1/responses/{id}" in error_of(got)["message"]


def test_clarify_asks_in_place_of_the_answer(start: Start) -> None:
    """A clarifying question is a completed response with one message; ids and usage stay."""
    proxy = start(policy=UNSURE % ("hold", '{clarify: {text: "Which one?"}}'))
    response = proxy.openai.responses.create(model="many", input="p=0.2")
    assert response.output_text == "Which one?"
    assert [item.type for item in response.output] == ["message"]
    assert response.status == "completed"
    with proxy.openai.responses.stream(model="ok", input="p=0.2") as stream:
        final = stream.get_final_response()
    assert final.output_text == "Which one?"


def test_block_is_an_error(start: Start) -> None:
    """A blocked response is a 422 in OpenAI's envelope, streamed or not."""
    proxy = start(policy=UNSURE % ("block", "block"))
    for is_stream in (False, True):
        got = proxy.http.post(
            "/v1/responses", json={"model": "ok", "input": "p=0.2", "stream": is_stream}
        )
        assert (got.status_code, error_of(got)["code"]) == (422, "blocked_by_policy")


def test_escalate_keeps_the_surer_response(start: Start, upstream: ResponsesUpstream) -> None:
    """A second model is asked with the same body but for its name; its answer is delivered."""
    proxy = start(policy=UNSURE % ("hold", "{escalate: {to: vendor, keep: best}}"))
    response = proxy.openai.responses.create(model="ok", input="p=0.2")
    assert response.output_text == "café p=0.42 🍋"
    assert (response.model_extra or {})["pinocchio"]["escalated_from"] == "ok"
    assert [r.json() for r in upstream.received] == [
        {"model": "ok", "input": "p=0.2"},
        {"model": "vendor", "input": "p=0.2"},
    ]


def test_policies_see_every_kind_of_call(start: Start) -> None:
    """Names and arguments of all calls reach the conditions on tools; a nameless one has its type."""
    rule = "{tools: [%s]}"
    for name in ("run_sql", "shell_call", "send_email"):
        policy = (
            "{version: 1, name: t, rules: [{name: r, when: %s, then: block}], default: deliver}"
        )
        proxy = start(policy=policy % (rule % name))
        assert ask(proxy, "many", "p=0.9").status == 422
        assert ask(proxy, "tools", "p=0.9").status == 200


def test_shadow_changes_nothing(start: Start, upstream: ResponsesUpstream) -> None:
    """In shadow the reply is upstream's, the label says what would have been."""
    proxy = start()
    asked = {"model": "ok", "input": "p=0.2"}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert uncounted(without_member(got.body)) == told_by(upstream, asked)
    assert got.headers["x-pinocchio-would-action"] == "hold"


# Policies on streams


def test_a_buffered_hold_is_a_whole_stream(start: Start) -> None:
    """A held stream is a numbered stream of a placeholder that ends incomplete."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    body = ask(proxy, text="secret p=0.2", stream=True).body
    events = events_in(body)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert numbers_in(body) == list(range(9))
    assert b"secret" not in body
    final = final_of(body)
    assert final["id"].startswith("resp_held_")
    assert final["pinocchio"]["action"] == "hold"
    assert "pinocchio" not in events[0]["response"]


@pytest.mark.parametrize("then", ["hold", "block"])
def test_a_refused_call_ends_the_stream_with_an_error(start: Start, then: str) -> None:
    """Text goes out live; in place of the call the official client raises the policy's error."""
    proxy = start(policy=TOOLS % then)
    texts = []
    with pytest.raises(openai.APIError, match="held for review|blocks") as raised:
        for event in proxy.openai.responses.create(model="tools", input="p=0.2", stream=True):
            assert "function_call" not in str(event)
            texts += [event.delta] if event.type == "response.output_text.delta" else []
    assert "".join(texts) == "Let me look. "
    assert raised.value.code in ("held_for_review", "blocked_by_policy")
    last = events_in(ask(proxy, "tools", "p=0.2", stream=True).body)[-1]
    assert set(last) == {"type", "code", "message", "param", "sequence_number", "error"}


@pytest.mark.parametrize("then", ["{hold: {reply: placeholder}}", "{clarify: {text: Where to}}"])
def test_what_replaces_a_call_continues_the_stream(start: Start, then: str) -> None:
    """Numbers and indices go on, and the final response has the live text and the replacement."""
    proxy = start(policy=TOOLS % then)
    body = ask(proxy, "tools", "secret p=0.2", stream=True).body
    assert numbers_in(body) == list(range(len(numbers_in(body))))
    assert b"secret" not in body
    final = final_of(body)
    first, second = final["output"]
    assert first["content"][0]["text"] == "Let me look. "
    assert "held for review" in str(second) or "Where to" in str(second)
    assert final["pinocchio"]["action"] in then
    added = [e for e in events_in(body) if e["type"] == "response.output_item.added"]
    assert [e["output_index"] for e in added] == [0, 1]


def test_the_stream_helper_reads_a_continuation(start: Start) -> None:
    """`responses.stream` accumulates live text and a clarifying question into one response."""
    proxy = start(policy=TOOLS % "{clarify: {text: Where to}}")
    with proxy.openai.responses.stream(model="tools", input="p=0.2") as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-2:] == ["Let me look. ", "Where to"]
    assert final.output_text == "Let me look. Where to"


def test_an_escalated_answer_continues_the_stream(start: Start) -> None:
    """Where another model answers in place of a call, its items follow on the live text."""
    proxy = start(policy=TOOLS % "{escalate: {to: many, keep: last}}")
    body = ask(proxy, "tools", "p=0.2", stream=True).body
    assert numbers_in(body) == list(range(len(numbers_in(body))))
    kinds = [item["type"] for item in final_of(body)["output"]]
    assert kinds[:3] == ["message", "reasoning", "message"]


def test_text_does_not_wait_for_calls(start: Start, upstream: ResponsesUpstream) -> None:
    """Under a policy on tools a stream without calls passes live, byte for byte."""
    proxy = start(policy=TOOLS % "hold")
    asked = {"model": "ok", "input": "p=0.2", "stream": True}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert got.headers["x-pinocchio-confidence-status"] == "pending"
    assert uncounted(without_member(got.body)) == told_by(upstream, asked)


# Failures


@pytest.mark.parametrize("model", ["cut", "no-end"])
def test_a_stream_that_breaks_off_ends_with_an_error(proxy: LiveProxy, model: str) -> None:
    """After what arrived the official client raises an error with our code."""
    with pytest.raises(openai.APIError) as raised:
        list(proxy.openai.responses.create(model=model, input="p=0.9", stream=True))
    assert raised.value.code == "upstream_broke_off"


@pytest.mark.parametrize("policy", [None, TOOLS % "hold"])
def test_an_error_event_of_upstreams_stays(start: Start, policy: str | None) -> None:
    """An error in upstream's stream reaches the client byte for byte, and nothing follows it."""
    proxy = start(policy=policy) if policy else start()
    body = ask(proxy, "error-event", stream=True).body
    assert body.endswith(b'data: {"error":{"message":"oops","code":"boom","v":1.0}}\n\n')


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failed_response_is_upstreams_own_error(
    proxy: LiveProxy, upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """What failed is relayed as it came, with no number, and no policy decides on it."""
    asked = {"model": "failed", "input": TEXT, "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert uncounted(got.body) == told_by(upstream, asked)
    if not is_stream:
        assert got.headers["x-pinocchio-confidence-status"] == "skipped"
        assert got.headers["x-pinocchio-confidence-reason"] == "upstream_error"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failure_brings_no_undecided_text(start: Start, is_stream: bool) -> None:
    """Half an answer in a failed response is left out where a policy would have had to decide."""
    got = ask(start(policy=HOLD), "failed", "secret p=0.9", stream=is_stream)
    assert got.status == 200
    assert b"secret" not in got.body
    assert b"oops" in got.body


def test_upstreams_errors_are_unchanged(proxy: LiveProxy, upstream: ResponsesUpstream) -> None:
    """Status and body of upstream's error arrive as they came; the client raises its typed error."""
    got = ask(proxy, "status-429")
    assert (got.status, json.loads(got.body)["error"]["vendor"]) == (429, 1.0)
    with pytest.raises(openai.RateLimitError):
        proxy.openai.responses.create(model="status-429", input="x")


# In the background, and by id


def queued(proxy: LiveProxy, text: str = "p=0.7", model: str = "ok") -> str:
    got = ask(proxy, model, text, background=True)
    assert json.loads(got.body)["status"] == "queued"
    assert got.headers["x-pinocchio-confidence-status"] == "pending"
    assert got.headers["x-pinocchio-confidence-reason"] == "background"
    id: str = json.loads(got.body)["id"]
    return id


def test_a_background_response_is_scored_when_it_is_there(start: Start) -> None:
    """Queued and in progress it is relayed; completed it is scored with its own question."""
    proxy = start(scorer=(scorer := WordScorer("background@1")), policy=UNSURE % ("hold", "hold"))
    id = queued(proxy)
    assert fetch(proxy, id).json()["status"] == "in_progress"
    assert fetch(proxy, id).headers["x-pinocchio-confidence"] == "0.7000"
    assert scorer.seen[-1].question == "p=0.7"
    events = events_in(fetch(proxy, id, "?stream=true").content)
    assert events[-1]["response"]["pinocchio"]["confidence"] == 0.7


def test_a_background_response_is_held_when_it_is_there(start: Start) -> None:
    """A poller gets the placeholder, once, under upstream's id and under ours."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    before = held_ids(proxy)
    assert fetch(proxy, id).json()["status"] == "in_progress"
    held = proxy.openai.responses.retrieve(id)
    assert held.id.startswith("resp_held_")
    for again in (fetch(proxy, id), proxy.http.post(f"/v1/responses/{id}/cancel")):
        assert again.json()["id"] == held.id
        assert "secret" not in again.text
    assert held_ids(proxy) == [*before, held.id]
    release(proxy, held.id)
    assert proxy.openai.responses.retrieve(id).output_text == "secret p=0.2"


def test_cancelling_is_no_way_past_the_policy(start: Start) -> None:
    """The answer in the reply to a cancellation is decided on like any other."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    got = proxy.http.post(f"/v1/responses/{id}/cancel")
    assert got.json()["id"].startswith("resp_held_")
    cut = proxy.http.post(f"/v1/responses/{queued(proxy, 'secret p=0.2', 'split')}/cancel").json()
    assert (cut["status"], cut["output"]) == ("cancelled", [])


def test_a_response_of_another_process_has_no_confidence(
    start: Start, upstream: ResponsesUpstream
) -> None:
    """What is not remembered says so; an enforced policy decides on the missing score."""
    asked = {"model": "ok", "input": "secret p=0.9"}
    id = json.loads(post_raw(f"{upstream.base_url}/responses", asked).body)["id"]
    watched = fetch(start(), id)
    assert watched.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert watched.headers["x-pinocchio-confidence-reason"] == "unknown_response"
    assert watched.json()["output"][0]["content"][0]["text"] == "secret p=0.9"
    assert "secret" not in fetch(start(policy=UNSURE % ("block", "hold")), id).text
    strict = start(policy=UNSURE % ("hold", "hold"))
    assert fetch(strict, id).json()["id"].startswith("resp_held_")
    assert "secret" not in fetch(strict, id, "?stream=true").text
    lenient = start(policy=UNSURE % ("deliver", "hold"))
    assert fetch(lenient, id).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1//responses/{id}", "/v1/responses/{id}/", "/v1/responses//{id}"]
)
def test_no_spelling_of_the_path_leads_past_the_policy(start: Start, path: str) -> None:
    """A held response is not readable under another spelling of its path."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    id = queued(proxy, "secret p=0.2")
    for _ in range(3):
        assert "secret" not in proxy.http.get(path.format(id=id)).text


def test_a_held_call_is_not_readable_by_the_id_of_its_stream(start: Start) -> None:
    """A stream tells upstream's id before its call is held; fetching it finds the placeholder."""
    proxy = start(policy=TOOLS % "{hold: {reply: placeholder}}")
    body = ask(proxy, "tools", "secret p=0.2", stream=True).body
    id = events_in(body)[0]["response"]["id"]
    assert id != final_of(body)["id"]
    got = fetch(proxy, id)
    assert got.json()["id"] == final_of(body)["id"]
    assert "secret" not in got.text


def test_the_rest_of_the_surface_is_relayed(proxy: LiveProxy, upstream: ResponsesUpstream) -> None:
    """Deletions and listings go through, labelled as not judged."""
    id = json.loads(ask(proxy).body)["id"]
    assert proxy.openai.responses.delete(id) is None
    got = fetch(proxy, f"{id}/input_items")
    assert got.json() == {"object": "list", "data": []}
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert [r.method for r in upstream.received] == ["POST", "DELETE", "GET"]


def test_nothing_is_remembered_that_upstream_does_not_store(start: Start) -> None:
    """With `store: false` there is no later request that could name the response."""
    proxy = start()
    id = json.loads(ask(proxy, store=False).body)["id"]
    got = ask(proxy, previous_response_id=id)
    assert got.headers["x-pinocchio-confidence-reason"] == "unknown_previous_response"


# Legacy completions


def completion(proxy: LiveProxy, prompt: Any = "p=0.7 ä", **fields: Any) -> RawReply:
    body = {"model": "ok", "prompt": prompt, **fields}
    return post_raw(f"{proxy.base_url}/completions", body)


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 2}])
def test_completions_without_member_are_upstreams(
    proxy: LiveProxy, upstream: ResponsesUpstream, fields: Json
) -> None:
    """Legacy completions are scored, and are upstream's bytes but for the member."""
    got = completion(proxy, **fields)
    direct = post_raw(f"{upstream.base_url}/completions", upstream.last.body)
    assert b'"confidence":0.7' in got.body
    assert without_member(got.body) == direct.body


def test_completions_are_held_and_fetched(start: Start) -> None:
    """A held completion is fetched where chat completions are, by the client that asked."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    held = proxy.openai.completions.create(model="ok", prompt="secret p=0.2")
    assert held.id.startswith("cmpl-held-")
    assert held.choices[0].finish_reason == "content_filter"
    release(proxy, held.id)
    got = proxy.http.get(f"/v1/chat/completions/{held.id}")
    assert (got.json()["object"], got.json()["id"]) == ("text_completion", held.id)
    assert got.json()["choices"][0]["text"] == " secret p=0.2"


def test_a_held_stream_of_completions_is_one_of_chunks(start: Start) -> None:
    """A buffered, held stream has the placeholder's text, usage where asked for, and [DONE]."""
    proxy = start(policy=UNSURE % ("hold", "hold"))
    chunks = list(
        proxy.openai.completions.create(
            model="ok", prompt="p=0.2", stream=True, stream_options={"include_usage": True}
        )
    )
    assert "held for review" in chunks[0].choices[0].text
    assert chunks[-1].usage is not None
    assert completion(proxy, "p=0.2", stream=True).body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "prompt, fields, reason",
    [
        (["p=0.1", "p=0.2"], {}, "several_prompts"),
        ([1, 2, 3], {}, "tokens"),
        ([[1, 2], [3]], {}, "several_prompts"),
        ("p=0.9", {"echo": True}, "echo"),
        ("p=0.9", {"suffix": "x"}, "suffix"),
        (None, {}, "prompt"),
    ],
)
def test_completions_that_cannot_be_scored_say_why(
    proxy: LiveProxy, prompt: Any, fields: Json, reason: str
) -> None:
    """Tokens, several prompts and answers with their prompt in them have no number."""
    got = completion(proxy, prompt, **fields)
    if got.headers["x-pinocchio-confidence-reason"] != "not_a_completion":
        assert got.headers["x-pinocchio-confidence-reason"] == reason


def test_outcomes_of_live_streams_are_kept(proxy: LiveProxy) -> None:
    """A live stream's outcome is at /pinocchio/v1/results for the key that asked."""
    id = ask(proxy, stream=True).headers["x-pinocchio-request-id"]
    until(lambda: proxy.http.get(f"/pinocchio/v1/results/{id}").json()["status"] == "scored")
