"""`/v1/responses` end to end: the same bytes, the confidence, and what policies do."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, WordScorer, error_of, post_raw, until
from tests.running.responses_requests import (
    TEXT,
    TOOLS,
    UNSURE,
    ask,
    events_in,
    events_in_order,
    fetch,
    final_of,
    numbers_in,
    release,
    uncounted,
    upstream_answer,
    without_member,
)
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
MODELS = ["ok", "tools", "many", "refusal", "incomplete", "vendor"]
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
HOLD = "{version: 1, name: all, default: hold}"


@pytest.fixture(scope="module")
def proxy(start_responses: StartProxy) -> LiveProxy:
    """Start a proxy that only observes."""
    return start_responses()


# The bytes


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "split", "bare-end"])
def test_without_member_the_bytes_are_upstreams(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream, model: str, is_stream: bool
) -> None:
    """Without the member the bytes are upstream's, whole or streamed."""
    asked = {"model": model, "input": TEXT, "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert got.body.count(b'"pinocchio":') == 1
    assert uncounted(without_member(got.body)) == upstream_answer(responses_upstream, asked)
    assert json.loads(responses_upstream.received[0].body) == asked


@pytest.mark.parametrize("is_stream", [False, True])
def test_with_attach_body_off_the_bytes_are_identical(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """With `attach.body: false` the bytes are upstream's."""
    asked = {"model": "many", "input": TEXT, "stream": is_stream}
    got = post_raw(f"{start_responses(attach={'body': False}).base_url}/responses", asked)
    assert uncounted(got.body) == upstream_answer(responses_upstream, asked)


@pytest.mark.parametrize("policy", [None, UNSURE % ("hold", "hold")])
@pytest.mark.parametrize("model", MODELS)
def test_the_member_stands_in_the_response_of_the_last_event(
    start_responses: StartProxy, model: str, policy: str | None
) -> None:
    """A stream's confidence is in the finished response and nowhere else, live or buffered."""
    proxy = start_responses(policy=policy) if policy else start_responses()
    body = ask(proxy, model, stream=True).body
    assert body.count(b'"pinocchio":') == 1
    member = final_of(body)["pinocchio"]
    assert member["confidence"] == (0.42 if model == "vendor" else 0.7)
    assert member["choices"][0]["status"] == "scored"


def test_a_buffered_stream_is_the_live_one(start_responses: StartProxy) -> None:
    """A stream that waited for its score has the same events as a live one."""
    events = [
        without_member(ask(p, "many", stream=True).body).replace(b" ", b"")
        for p in (start_responses(), start_responses(policy=UNSURE % ("hold", "hold")))
    ]
    first, second = ([{**e, "response": None} for e in events_in_order(t)] for t in events)
    assert first == second


# What official clients see


def test_the_openai_client_reads_it(proxy: LiveProxy) -> None:
    """The official client gets its response, with the member beside the fields that it knows."""
    response = proxy.openai.responses.create(model="many", input="p=0.9")
    assert response.output_text == "p=0.9"
    assert (response.model_extra or {})["pinocchio"]["confidence"] == 0.9
    assert [item.type for item in response.output][2:] == [
        "custom_tool_call",
        "shell_call",
        "mcp_call",
    ]


def test_the_openai_client_streams_it(proxy: LiveProxy) -> None:
    """The official client's stream has upstream's events, the last one with the member."""
    *_, last = proxy.openai.responses.create(model="ok", input="p=0.9", stream=True)
    assert last.type == "response.completed"
    assert (last.response.model_extra or {})["pinocchio"]["confidence"] == 0.9


class City(BaseModel):
    name: str
    p: str


@pytest.mark.parametrize("policy", [None, UNSURE % ("hold", "hold")])
def test_the_stream_helper_parses_structured_output(
    start_responses: StartProxy, policy: str | None
) -> None:
    """`responses.stream` accumulates and parses a stream that passed the proxy."""
    proxy = start_responses(policy=policy) if policy else start_responses()
    text = '{"name":"Paris","p":"p=0.8"}'
    with proxy.openai.responses.stream(model="ok", input=text, text_format=City) as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == text
    assert final.output_parsed == City(name="Paris", p="p=0.8")


def test_the_stream_helper_accumulates_calls(start_responses: StartProxy) -> None:
    """`responses.stream` joins the arguments of a call that waited for its score."""
    proxy = start_responses(policy=TOOLS % "hold")
    with proxy.openai.responses.stream(model="tools", input="p=0.9", tools=[WEATHER]) as stream:  # type: ignore[list-item]  # a plain dict
        deltas = [e for e in stream if e.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert json.loads(deltas[-1].snapshot) == {"city": "p=0.9"}
    assert final.output[1].type == "function_call"


# Scores


def test_the_question_is_written_as_for_chat(start_responses: StartProxy) -> None:
    """The question has earlier turns, results and offered tools but no instructions, as in chat."""
    proxy = start_responses(scorer=(scorer := WordScorer("seen@1")))
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
    ("fields", "reason"),
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
    """A question whose text is not in the request has no number, and a reason."""
    got = ask(proxy, **fields)
    assert got.status == 200
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == reason


def test_a_prompt_template_needs_no_model(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A request whose model is in upstream's prompt template is relayed."""
    got = post_raw(f"{proxy.base_url}/responses", {"prompt": {"id": "pmpt_1"}})
    assert got.status == 200
    assert responses_upstream.last.json() == {"prompt": {"id": "pmpt_1"}}


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_conversation_goes_on(start_responses: StartProxy, is_stream: bool) -> None:
    """With `previous_response_id` the question has the remembered turns of the same key."""
    proxy = start_responses(scorer=(scorer := WordScorer(f"turns@{is_stream}")))
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


def test_a_result_belongs_to_the_call_before_it(start_responses: StartProxy) -> None:
    """A turn of nothing but a tool's result is scored with the question that led to the call."""
    proxy = start_responses(scorer=(scorer := WordScorer("results@1")))
    id = json.loads(ask(proxy, "tools", text="Oslo").body)["id"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain p=0.8"}
    ask(proxy, text=[result], previous_response_id=id)
    assert scorer.seen[-1].question == (
        'Oslo\n\n[assistant] Let me look.  [get_weather(city="Oslo")]\n[tool] rain p=0.8'
    )


# Policies on whole responses


def test_a_held_response_is_a_valid_placeholder(start_responses: StartProxy) -> None:
    """The client gets an incomplete response as placeholder, and later the reply under its id."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
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


def test_headers_of_a_held_response_do_not_lead_to_it(start_responses: StartProxy) -> None:
    """Nothing in the reply to a held request has upstream's id or the text."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    got = ask(proxy, text="secret p=0.2")
    sent = got.body + str(got.headers.raw).encode()
    assert b"secret" not in sent
    assert b"resp_" not in sent.replace(b"resp_held_", b"")


@pytest.mark.parametrize(
    ("model", "fields"), [("tools", {}), ("ok", {"text": {"format": {"type": "json_schema"}}})]
)
def test_what_a_client_would_parse_is_held_with_an_error(
    start_responses: StartProxy, model: str, fields: Json
) -> None:
    """A tool call or JSON is replaced by an error with the review's id, never by prose."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    body = {"model": model, "input": "p=0.2", **fields}
    got = proxy.http.post("/v1/responses", json=body)
    assert got.status_code == 422
    assert error_of(got)["code"] == "held_for_review"
    id = got.headers["x-pinocchio-review-id"]
    assert f"/v1/responses/{id}" in error_of(got)["message"]


def test_clarify_asks_in_place_of_the_answer(start_responses: StartProxy) -> None:
    """A clarifying question is a completed response with one message; ids and usage stay."""
    proxy = start_responses(policy=UNSURE % ("hold", '{clarify: {text: "Which one?"}}'))
    response = proxy.openai.responses.create(model="many", input="p=0.2")
    assert response.output_text == "Which one?"
    assert [item.type for item in response.output] == ["message"]
    assert response.status == "completed"
    with proxy.openai.responses.stream(model="ok", input="p=0.2") as stream:
        final = stream.get_final_response()
    assert final.output_text == "Which one?"


def test_block_is_an_error(start_responses: StartProxy) -> None:
    """A blocked response is a 422 in OpenAI's envelope, streamed or not."""
    proxy = start_responses(policy=UNSURE % ("block", "block"))
    for is_stream in (False, True):
        got = proxy.http.post(
            "/v1/responses", json={"model": "ok", "input": "p=0.2", "stream": is_stream}
        )
        assert (got.status_code, error_of(got)["code"]) == (422, "blocked_by_policy")


def test_escalate_keeps_the_surer_response(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A second model gets the same body under its own name, and its answer is delivered."""
    proxy = start_responses(policy=UNSURE % ("hold", "{escalate: {to: vendor, keep: best}}"))
    response = proxy.openai.responses.create(model="ok", input="p=0.2")
    assert response.output_text == "café p=0.42 🍋"
    assert (response.model_extra or {})["pinocchio"]["escalated_from"] == "ok"
    assert [r.json() for r in responses_upstream.received] == [
        {"model": "ok", "input": "p=0.2"},
        {"model": "vendor", "input": "p=0.2"},
    ]


def test_policies_see_every_kind_of_call(start_responses: StartProxy) -> None:
    """Conditions on tools find the names of all calls; a call without a name has its type."""
    rule = "{tools: [%s]}"
    for name in ("run_sql", "shell_call", "send_email"):
        policy = (
            "{version: 1, name: t, rules: [{name: r, when: %s, then: block}], default: deliver}"
        )
        proxy = start_responses(policy=policy % (rule % name))
        assert ask(proxy, "many", "p=0.9").status == 422
        assert ask(proxy, "tools", "p=0.9").status == 200


def test_shadow_changes_nothing(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """In shadow mode the reply is upstream's, and the label says what would have happened."""
    proxy = start_responses()
    asked = {"model": "ok", "input": "p=0.2"}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert uncounted(without_member(got.body)) == upstream_answer(responses_upstream, asked)
    assert got.headers["x-pinocchio-would-action"] == "hold"


# Policies on streams


def test_a_buffered_hold_is_a_whole_stream(start_responses: StartProxy) -> None:
    """A held stream is the stream of a placeholder, numbered and incomplete at its end."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
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
def test_a_refused_call_ends_the_stream_with_an_error(
    start_responses: StartProxy, then: str
) -> None:
    """Text is live; in place of the call the official client raises the policy's error."""
    proxy = start_responses(policy=TOOLS % then)
    events: list[Any] = []
    stream = proxy.openai.responses.create(model="tools", input="p=0.2", stream=True)
    with pytest.raises(openai.APIError) as raised:
        events.extend(stream)
    texts = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(texts) == "Let me look. "
    assert "function_call" not in str(events)
    assert raised.value.code in ("held_for_review", "blocked_by_policy")
    last = events_in(ask(proxy, "tools", "p=0.2", stream=True).body)[-1]
    assert set(last) == {"type", "code", "message", "param", "sequence_number", "error"}


@pytest.mark.parametrize("then", ["{hold: {reply: placeholder}}", "{clarify: {text: Where to}}"])
def test_what_replaces_a_call_continues_the_stream(start_responses: StartProxy, then: str) -> None:
    """Numbers and indices continue; the final response has the live text and the replacement."""
    proxy = start_responses(policy=TOOLS % then)
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


def test_the_stream_helper_reads_a_continuation(start_responses: StartProxy) -> None:
    """`responses.stream` accumulates live text and a clarifying question into one response."""
    proxy = start_responses(policy=TOOLS % "{clarify: {text: Where to}}")
    with proxy.openai.responses.stream(model="tools", input="p=0.2") as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-2:] == ["Let me look. ", "Where to"]
    assert final.output_text == "Let me look. Where to"


def test_an_escalated_answer_continues_the_stream(start_responses: StartProxy) -> None:
    """Another model's items follow the live text, in place of the call."""
    proxy = start_responses(policy=TOOLS % "{escalate: {to: many, keep: last}}")
    body = ask(proxy, "tools", "p=0.2", stream=True).body
    assert numbers_in(body) == list(range(len(numbers_in(body))))
    kinds = [item["type"] for item in final_of(body)["output"]]
    assert kinds[:3] == ["message", "reasoning", "message"]


def test_text_does_not_wait_for_calls(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """Under a policy on tools a stream without calls is live, byte for byte."""
    proxy = start_responses(policy=TOOLS % "hold")
    asked = {"model": "ok", "input": "p=0.2", "stream": True}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert got.headers["x-pinocchio-confidence-status"] == "pending"
    assert uncounted(without_member(got.body)) == upstream_answer(responses_upstream, asked)


# Failures


def test_a_stream_that_breaks_off_ends_with_an_error(proxy: LiveProxy) -> None:
    """After what arrived, the official client raises an error with our code."""
    with pytest.raises(openai.APIError) as raised:
        list(proxy.openai.responses.create(model="cut", input="p=0.9", stream=True))
    assert raised.value.code == "upstream_broke_off"


@pytest.mark.parametrize("model", ["cut", "no-end"])
def test_half_a_stream_is_not_decided_on(start_responses: StartProxy, model: str) -> None:
    """A buffered stream without its last event is an error, never half an answer."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    got = proxy.http.post("/v1/responses", json={"model": model, "input": TEXT, "stream": True})
    assert (got.status_code, error_of(got)["code"]) == (502, "upstream_broke_off")


@pytest.mark.parametrize("policy", [None, TOOLS % "hold"])
def test_an_error_event_of_upstreams_stays(start_responses: StartProxy, policy: str | None) -> None:
    """An error in upstream's stream arrives byte for byte, and nothing follows it."""
    proxy = start_responses(policy=policy) if policy else start_responses()
    body = ask(proxy, "error-event", stream=True).body
    assert body.endswith(b'data: {"error":{"message":"oops","code":"boom","v":1.0}}\n\n')


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failed_response_is_upstreams_own_error(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """A failed response is relayed unchanged, without a number, and no policy decides on it."""
    asked = {"model": "failed", "input": TEXT, "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", asked)
    assert uncounted(got.body) == upstream_answer(responses_upstream, asked)
    if not is_stream:
        assert got.headers["x-pinocchio-confidence-status"] == "skipped"
        assert got.headers["x-pinocchio-confidence-reason"] == "upstream_error"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failure_brings_no_undecided_text(start_responses: StartProxy, is_stream: bool) -> None:
    """Where a policy decides, half an answer is left out of a failed response."""
    got = ask(start_responses(policy=HOLD), "failed", "secret p=0.9", stream=is_stream)
    assert got.status == 200
    assert b"secret" not in got.body
    assert b"oops" in got.body


def test_upstreams_errors_are_unchanged(
    proxy: LiveProxy, responses_upstream: ResponsesUpstream
) -> None:
    """Upstream's error arrives unchanged, and the official client raises its typed error."""
    got = ask(proxy, "status-429")
    assert (got.status, json.loads(got.body)["error"]["vendor"]) == (429, 1.0)
    with pytest.raises(openai.RateLimitError):
        proxy.openai.responses.create(model="status-429", input="x")


def test_outcomes_of_live_streams_are_kept(proxy: LiveProxy) -> None:
    """A live stream's outcome is at /pinocchio/v1/results for the key that asked."""
    id = ask(proxy, stream=True).headers["x-pinocchio-request-id"]
    until(lambda: proxy.http.get(f"/pinocchio/v1/results/{id}").json()["status"] == "scored")
