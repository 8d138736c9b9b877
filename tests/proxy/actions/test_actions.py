"""A policy's decisions are carried out: hold, escalate, clarify, block; in shadow mode, nothing."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

import httpx
import pytest
from openai import NotFoundError, UnprocessableEntityError
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.store.reviews.held_replies import REJECTED, RELEASED
from tests.conftest import StartProxy
from tests.running import reviewing
from tests.running.live_proxy import (
    FailingScorer,
    LiveProxy,
    SlowScorer,
    error_of,
    events_in,
    members_in,
    post_raw,
    question,
    streaming,
    text_in,
    without_member,
)
from tests.servers.faulty_upstream import FaultyUpstream

HOLD = """
version: 1
name: desk
rules:
  - name: very unsure
    when: {confidence: {below: 0.3}}
    then: {hold: {queue: seniors}}
default: deliver
"""
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
SCHEMA = {"type": "json_object"}
ACTION = "x-pinocchio-action"


def policy(then: str, **more: str) -> str:
    """Return a policy that does `then` with replies below 0.3."""
    lines = [f"{key}: {value}" for key, value in more.items()]
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.3}}}}, then: {then}}}"
    return "\n".join(["version: 1", "name: desk", *lines, f"rules: [{rule}]", "default: deliver"])


@pytest.fixture
def holding(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD)


def decide(proxy: LiveProxy, id: str, state: str) -> bool:
    """Decide in the proxy's store, as another process does."""
    return reviewing.decide(f"sqlite:///{proxy.store_path}", id, state)


def held_rows(proxy: LiveProxy) -> list[dict[str, Any]]:
    with sqlite3.connect(proxy.store_path) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM held_replies")]
    database.close()
    return rows


# Deliver


def test_a_sure_answer_is_delivered(holding: LiveProxy, upstream: FaultyUpstream) -> None:
    """A reply that no rule matches has upstream's bytes, and the default as its action."""
    got = holding.post_raw(question("p=0.7"))
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.7"))
    assert without_member(got.body) == direct.body
    assert got.headers[ACTION] == "deliver"
    assert got.headers["x-pinocchio-mode"] == "enforce"
    assert "x-pinocchio-would-action" not in got.headers
    assert got.headers["x-pinocchio-policy"].startswith("desk/default@")


def test_shadow_mode_changes_nothing(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """In shadow mode the reply is upstream's, and a header says what would have happened."""
    proxy = start_proxy(policy=policy("block", mode="shadow"))
    got = proxy.post_raw(question("p=0.1"))
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.1"))
    assert (got.status, without_member(got.body)) == (200, direct.body)
    assert got.headers[ACTION] == "deliver"
    assert got.headers["x-pinocchio-would-action"] == "block"
    assert got.headers["x-pinocchio-mode"] == "shadow"
    assert got.headers["x-pinocchio-policy"].startswith("desk/unsure@")
    assert json.loads(got.body)["pinocchio"]["would_action"] == "block"


# Hold: the placeholder


def test_a_held_reply_is_replaced_by_a_placeholder(holding: LiveProxy) -> None:
    """A held text becomes a valid completion that says so and has nothing of the answer."""
    raw = holding.openai.chat.completions.with_raw_response.create(**question("secret p=0.1"))
    completion = ChatCompletion.model_validate(json.loads(raw.content), strict=True)
    [choice] = completion.choices
    assert choice.finish_reason == "content_filter"
    assert completion.id.startswith("chatcmpl-held-")
    assert completion.id not in (choice.message.content or "")  # the id is for the application
    assert completion.model == "ok-2099"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 7
    assert b"secret" not in raw.content
    assert raw.headers[ACTION] == "hold"
    assert raw.headers["x-pinocchio-review-id"] == completion.id
    assert raw.headers["x-pinocchio-confidence"] == "0.1000"
    member = (completion.model_extra or {})["pinocchio"]
    assert (member["action"], member["review_id"]) == ("hold", completion.id)


def test_what_is_held_is_stored(holding: LiveProxy, upstream: FaultyUpstream) -> None:
    """Upstream's bytes, question, queue and policy are stored before the client has a reply."""
    id = holding.ask("why? p=0.1").json()["id"]
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("why? p=0.1"))
    [row] = [row for row in held_rows(holding) if row["id"] == id]
    assert row["reply"] == direct.body
    assert (row["question"], row["queue"], row["state"]) == ("why? p=0.1", "seniors", "held")
    assert (row["model"], row["confidence"], row["calibrator"]) == ("ok", 0.1, "words@1")
    assert row["policy"].startswith("desk/very-unsure@")
    assert row["expires_at"] == pytest.approx(row["created_at"] + 7 * 86_400)
    assert "sk-client" not in str(row)


def test_a_held_reply_is_fetched_once_it_is_released(
    holding: LiveProxy, upstream: FaultyUpstream
) -> None:
    """OpenAI's own `retrieve(id)` gives the placeholder, and after the release the reply."""
    chat = holding.openai.chat.completions
    id = chat.create(**question("Paris p=0.1")).id
    upstream.forget()
    waiting = chat.retrieve(id)
    assert (waiting.id, waiting.choices[0].finish_reason) == (id, "content_filter")
    assert decide(holding, id, RELEASED)
    for _ in range(2):
        released = chat.retrieve(id)
        assert (released.id, released.choices[0].message.content) == (id, "Paris p=0.1")
    assert upstream.requests == []


def test_a_released_reply_is_upstreams_but_for_its_id(
    holding: LiveProxy, upstream: FaultyUpstream
) -> None:
    """The released bytes are upstream's, under the id that the client asked for."""
    id = holding.ask("p=0.1", "say p=0.1").json()["id"]
    decide(holding, id, RELEASED)
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.1", "say p=0.1"))
    released = holding.http.get(f"/v1/chat/completions/{id}")
    assert without_member(released.content) == direct.body.replace(
        b'"chatcmpl-1"', json.dumps(id).encode()
    )
    assert released.headers[ACTION] == "deliver"


def test_a_fetched_reply_has_the_fields_of_any(holding: LiveProxy) -> None:
    """A held reply has `status` and `request_id` like any other, and accepts feedback."""
    reply = holding.ask("p=0.1", "say p=0.1")
    first, id = reply.json()["pinocchio"], reply.json()["id"]
    for action in ("hold", "deliver"):
        fetched = holding.http.get(f"/v1/chat/completions/{id}")
        member = fetched.json()["pinocchio"]
        same = ("request_id", "confidence", "status", "policy", "calibrator", "review_id")
        assert [member[name] for name in same] == [first[name] for name in same]
        assert member["action"] == action
        assert fetched.headers["x-pinocchio-confidence-status"] == "scored"
        assert "x-pinocchio-confidence-reason" not in fetched.headers
        decide(holding, id, RELEASED)


def test_a_rejected_reply_is_gone(holding: LiveProxy) -> None:
    """A rejected reply is 404 with a code of its own."""
    id = holding.ask("p=0.1").json()["id"]
    decide(holding, id, REJECTED)
    with pytest.raises(NotFoundError) as caught:
        holding.openai.chat.completions.retrieve(id)
    assert caught.value.code == "held_reply_rejected"


def test_an_expired_reply_is_gone(start_proxy: StartProxy) -> None:
    """A reply that nobody released in time is 404 with a code of its own, and stays so."""
    proxy = start_proxy(policy=policy("{hold: {expires: 1s}}"))
    id = proxy.ask("p=0.1").json()["id"]
    with sqlite3.connect(proxy.store_path) as database:
        database.execute("UPDATE held_replies SET expires_at = ?", (time.time() - 1,))
    database.close()
    assert error_of(proxy.http.get(f"/v1/chat/completions/{id}"))["code"] == "held_reply_expired"
    assert not decide(proxy, id, RELEASED)
    assert error_of(proxy.http.get(f"/v1/chat/completions/{id}"))["code"] == "held_reply_expired"


def test_a_held_reply_is_for_the_key_that_asked(holding: LiveProxy) -> None:
    """Another key gets the same 404 as for an unknown id, before and after the release."""
    id = holding.ask("p=0.1").json()["id"]
    other = {"authorization": "Bearer sk-other"}
    unknown = holding.http.get(f"/v1/chat/completions/chatcmpl-held-{'0' * 32}")
    for _ in range(2):
        response = holding.http.get(f"/v1/chat/completions/{id}", headers=other)
        assert (response.status_code, unknown.status_code) == (404, 404)
        assert error_of(response)["code"] == error_of(unknown)["code"] == "held_reply_not_found"
        decide(holding, id, RELEASED)


def test_other_ids_are_upstreams_business(
    holding: LiveProxy, proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """A request for an id that is not the proxy's goes upstream, unless a policy
    decides: then a client reads only what its own key made through the proxy.
    """
    proxy.http.get("/v1/chat/completions/chatcmpl-abc?x=1")
    assert upstream.last.target == "/v1/chat/completions/chatcmpl-abc?x=1"
    upstream.requests.clear()
    refused = holding.http.get("/v1/chat/completions/chatcmpl-abc?x=1")
    assert (refused.status_code, upstream.requests) == (404, [])


def test_a_held_stream_is_replaced_by_a_placeholder(holding: LiveProxy) -> None:
    """A held stream becomes the placeholder's stream, and is released as one object."""
    body = question("secret p=0.1", stream=True, stream_options={"include_usage": True})
    got = holding.post_raw(body)
    chunks = [ChatCompletionChunk.model_validate(c, strict=True) for c in events_in(got.body)]
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.body.endswith(b"data: [DONE]\n\n")
    assert b"secret" not in got.body
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None, "content_filter"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 7
    id = got.headers["x-pinocchio-review-id"]
    assert {chunk.id for chunk in chunks} == {id}
    assert members_in(got.body)[0]["action"] == "hold"
    decide(holding, id, RELEASED)
    released = holding.openai.chat.completions.retrieve(id)
    assert released.choices[0].message.content == "secret p=0.1"


@pytest.mark.parametrize("is_stream", [False, True])
def test_half_characters_are_held_and_released(holding: LiveProxy, is_stream: bool) -> None:
    """An answer with half a surrogate pair, which UTF-8 has no bytes for, is held like any."""
    asked = b'{"model":"ok","stream":%b,"messages":[{"role":"user","content":"p=0.1 \\ud83c"}]}'
    got = holding.post_raw(asked % (b"true" if is_stream else b"false"))
    assert got.status == 200
    id = got.headers["x-pinocchio-review-id"]
    assert decide(holding, id, RELEASED)
    released = holding.http.get(f"/v1/chat/completions/{id}").json()
    assert released["choices"][0]["message"]["content"] == "p=0.1 \ud83c"


# Hold: the error


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_hold_may_answer_with_an_error(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """`reply: error` is a 422 that official clients do not retry, so upstream is paid once."""
    proxy = start_proxy(policy=policy("{hold: {reply: error}}"))
    client = proxy.openai.with_options(max_retries=2)
    with pytest.raises(UnprocessableEntityError) as caught:
        client.chat.completions.create(**question("secret p=0.1", stream=is_stream))
    assert caught.value.code == "held_for_review"
    assert len(upstream.requests) == 1
    headers = caught.value.response.headers
    assert headers["x-should-retry"] == "false"
    assert headers["x-pinocchio-error"] == "true"
    assert headers[ACTION] == "hold"
    assert headers["x-pinocchio-confidence"] == "0.1000"
    id = headers["x-pinocchio-review-id"]
    assert id in caught.value.message
    assert "secret" not in caught.value.response.text
    decide(proxy, id, RELEASED)
    released = proxy.openai.chat.completions.retrieve(id)
    assert released.choices[0].message.content == "secret p=0.1"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tools", "tools": [WEATHER]},
        {"response_format": SCHEMA},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        *({name: {"type": "object"}} for name in ("guided_json", "structured_outputs", "format")),
        *({name: "[0-9]+"} for name in ("guided_regex", "grammar", "regex", "ebnf")),
        {"guided_choice": ["yes", "no"]},
        {"guided_json": {}},
    ],
    ids=lambda fields: ", ".join(fields),
)
def test_prose_never_stands_for_a_call_or_for_json(
    holding: LiveProxy, fields: dict[str, Any], is_stream: bool
) -> None:
    """Held tool calls and formatted replies are errors unless the policy says otherwise."""
    response = holding.ask("p=0.1", **fields, stream=is_stream)
    assert response.status_code == 422
    assert error_of(response)["code"] == "held_for_review"


def test_a_plain_response_format_is_plain_text(holding: LiveProxy) -> None:
    """`response_format: {type: text}` gets the placeholder."""
    assert holding.ask("p=0.1", response_format={"type": "text"}).status_code == 200


def test_a_policy_may_ask_for_placeholders_everywhere(start_proxy: StartProxy) -> None:
    """`reply: placeholder` also replaces a held tool call, without any call in it."""
    proxy = start_proxy(policy=policy("{hold: {reply: placeholder}}"))
    response = proxy.ask("p=0.1", "tools", tools=[WEATHER])
    [choice] = response.json()["choices"]
    assert choice["finish_reason"] == "content_filter"
    assert "tool_calls" not in choice["message"]


def test_a_released_tool_call_is_the_stored_one(holding: LiveProxy) -> None:
    """A held stream of tool calls is released as calls whose arguments are joined."""
    response = holding.ask("p=0.1", "parallel-tools", tools=[WEATHER], stream=True)
    id = response.headers["x-pinocchio-review-id"]
    decide(holding, id, RELEASED)
    calls = holding.openai.chat.completions.retrieve(id).choices[0].message.tool_calls or []
    arguments = [json.loads(call.function.arguments) for call in calls if call.type == "function"]
    assert arguments == [{"city": "p=0.1", "number": 0}, {"city": "p=0.1", "number": 1}]
    assert [call.id for call in calls] == ["call_0", "call_1"]


@pytest.mark.parametrize("reply", ["placeholder", "error"])
def test_nothing_is_delivered_that_cannot_be_stored(start_proxy: StartProxy, reply: str) -> None:
    """While the database cannot be written, the client gets 503, no answer and no review id."""
    proxy = start_proxy(policy=policy(f"{{hold: {{reply: {reply}, queue: full}}}}"))
    with sqlite3.connect(proxy.store_path) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON held_replies "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    database.close()
    for is_stream in (False, True):
        response = proxy.ask("secret p=0.1", stream=is_stream)
        assert response.status_code == 503
        assert error_of(response)["code"] == "store_unavailable"
        assert "secret" not in response.text
        assert "x-pinocchio-review-id" not in response.headers
    assert proxy.ask("p=0.7").status_code == 200


def test_held_replies_are_bounded(start_proxy: StartProxy) -> None:
    """Beyond `limits.max_held` waiting replies, holding is 503 until one is decided on."""
    proxy = start_proxy(policy=HOLD, limits={"max_held": 1})
    id = proxy.ask("p=0.1").json()["id"]
    assert error_of(proxy.ask("p=0.1"))["code"] == "too_many_held", "the store itself is well"
    decide(proxy, id, REJECTED)
    assert proxy.ask("p=0.1").status_code == 200


# Block and clarify


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_blocked_reply(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """A block is a 422 that clients do not retry; the answer is neither delivered nor stored."""
    proxy = start_proxy(policy=policy("block"))
    client = proxy.openai.with_options(max_retries=2)
    with pytest.raises(UnprocessableEntityError) as caught:
        client.chat.completions.create(**question("secret p=0.1", stream=is_stream))
    assert caught.value.code == "blocked_by_policy"
    assert caught.value.response.headers[ACTION] == "block"
    assert "secret" not in caught.value.response.text
    assert len(upstream.requests) == 1
    assert held_rows(proxy) == []


@pytest.mark.parametrize("model", ["ok", "tools"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_clarification(start_proxy: StartProxy, model: str, is_stream: bool) -> None:
    """The policy's text replaces content and calls in an otherwise valid completion."""
    proxy = start_proxy(policy=policy("{clarify: {text: Which one}}"))
    client = proxy.openai.chat.completions
    asked = question("secret p=0.1", model, tools=[WEATHER])
    if is_stream:
        chunks = list(client.create(**asked, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Which one"
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert not any(c.choices[0].delta.tool_calls for c in chunks)
        return
    completion = client.create(**asked)
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Which one", "stop")
    assert choice.message.tool_calls is None
    assert completion.id == "chatcmpl-1"
    assert (completion.model_extra or {})["pinocchio"]["action"] == "clarify"
    assert "secret" not in completion.to_json()


def test_every_choice_is_clarified(start_proxy: StartProxy) -> None:
    """With n > 1 one unsure choice has all of them replaced."""
    proxy = start_proxy(policy=policy("{clarify: {text: Which one}}"))
    choices = proxy.ask("p=0.9|p=0.1", n=2).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["Which one"] * 2


def test_the_strictest_decision_counts_for_all_choices(start_proxy: StartProxy) -> None:
    """Where choices disagree, the severest action is carried out.
    The header's confidence is the lowest one, at whatever position.
    """
    rules = """
version: 1
name: desk
rules:
  - {name: low, when: {confidence: {below: 0.2}}, then: block}
  - {name: mid, when: {confidence: {below: 0.5}}, then: clarify}
default: deliver
"""
    proxy = start_proxy(policy=rules)
    assert proxy.ask("p=0.9|p=0.4", n=2).headers[ACTION] == "clarify"
    assert proxy.ask("p=0.4|p=0.1", n=2).headers[ACTION] == "block"
    for answers in ("p=0.9|p=0.6", "p=0.6|p=0.9"):
        headers = proxy.ask(answers, n=2).headers
        assert (headers[ACTION], headers["x-pinocchio-confidence"]) == ("deliver", "0.6000")


# Escalate


def escalating(start_proxy: StartProxy, to: str, keep: str = "best", otherwise: str = "") -> Any:
    more = f", otherwise: {otherwise}" if otherwise else ""
    return start_proxy(policy=policy(f"{{escalate: {{to: {to}, keep: {keep}{more}}}}}"))


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_surer_answer_is_kept(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """An unsure reply is requested again from another model; the surer one arrives unchanged."""
    proxy = escalating(start_proxy, to="say strong p=0.8")
    got = proxy.post_raw(question("weak p=0.1", stream=is_stream))
    assert [r.json()["model"] for r in upstream.requests] == ["ok", "say strong p=0.8"]
    direct = post_raw(
        f"{upstream.base_url}/chat/completions",
        question("weak p=0.1", "say strong p=0.8", stream=is_stream),
    )
    assert without_member(got.body) == direct.body
    assert got.headers[ACTION] == "escalate"
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    member = members_in(got.body)[0] if is_stream else json.loads(got.body)["pinocchio"]
    assert member["escalated_from"] == "ok"
    assert b"weak" not in got.body


def test_the_second_call_differs_in_its_model_only(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """The second request has the client's bytes, headers and query, with another model's name."""
    proxy = escalating(start_proxy, to="say strong p=0.8")
    body = b'{ "messages":[{"content":"p=0.1","role":"user"}],\n "t":1.0,"model" : "ok","u":1e5}'
    httpx.post(f"{proxy.base_url}/chat/completions?a=1", content=body, headers={"x-mine": "1"})
    first, second = upstream.requests
    assert first.body == body
    assert second.body == body.replace(b'"ok"', b'"say strong p=0.8"')
    assert second.target == first.target
    ignored = ("content-length",)
    assert [h for h in second.headers if h[0] not in ignored] == [
        h for h in first.headers if h[0] not in ignored
    ]


def test_the_first_answer_is_kept_where_it_is_surer(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With `keep: best` a second reply that is less sure is dropped."""
    proxy = escalating(start_proxy, to="say second p=0.05")
    response = proxy.ask("first p=0.1")
    assert response.json()["choices"][0]["message"]["content"] == "first p=0.1"
    assert len(upstream.requests) == 2
    assert "escalated_from" not in response.json()["pinocchio"]


def test_the_last_answer_is_kept_where_the_policy_says_so(start_proxy: StartProxy) -> None:
    """With `keep: last` the second reply is kept, however sure it is."""
    proxy = escalating(start_proxy, to="say second p=0.05", keep="last")
    response = proxy.ask("first p=0.1")
    assert response.json()["choices"][0]["message"]["content"] == "second p=0.05"


def test_otherwise_is_for_what_stays_unsure(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A kept reply that would be escalated again meets `otherwise`, without a third call."""
    proxy = escalating(start_proxy, to="say second p=0.2", otherwise="{hold: {queue: seniors}}")
    response = proxy.ask("first p=0.1")
    assert len(upstream.requests) == 2
    assert response.headers[ACTION] == "hold"
    [row] = [row for row in held_rows(proxy) if row["id"] == response.json()["id"]]
    assert b"second p=0.2" in row["reply"]
    assert row["queue"] == "seniors"


@pytest.mark.parametrize("to", ["status-500", "hang-up", "cut", "html", "broken-json"])
def test_a_failed_second_call_leaves_the_first_answer(
    start_proxy: StartProxy, upstream: FaultyUpstream, to: str
) -> None:
    """Where the second call gives no reply the first one is kept, after exactly two calls."""
    proxy = escalating(start_proxy, to=to)
    response = proxy.ask("first p=0.1")
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "first p=0.1"
    assert response.headers["x-pinocchio-confidence"] == "0.1000"
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("to", ["status-500", "cut"])
def test_otherwise_is_for_failed_second_calls_too(start_proxy: StartProxy, to: str) -> None:
    """Where the second call gives no reply, the first one meets `otherwise`."""
    proxy = escalating(start_proxy, to=to, otherwise="block")
    assert error_of(proxy.ask("p=0.1"))["code"] == "blocked_by_policy"


def test_a_request_that_cannot_be_sent_again(start_proxy: StartProxy) -> None:
    """A request whose JSON is too deep to be written with another model's name keeps its reply."""
    proxy = escalating(start_proxy, to="say strong p=0.8")
    statuses = set()
    for depth in range(900, 1_100, 4):
        nested = b"[" * depth + b"]" * depth
        body = b'{"x":%b,"model":"ok","messages":[{"role":"user","content":"p=0.1"}]}' % nested
        statuses.add(proxy.post_raw(body, x_faulty="say p=0.1").status)
    assert statuses == {200, 400}


def test_leaving_during_the_second_call_cancels_it(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A client that leaves during an escalation cancels the second call as well."""
    proxy = escalating(start_proxy, to="slow")
    with pytest.raises(httpx.ReadTimeout):
        proxy.http.post("/v1/chat/completions", json=question("p=0.1"), timeout=0.3)
    assert upstream.wait_for_request(2).is_cut_off(within_s=2)


def test_an_unanswered_second_body_is_not_left_open(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A second reply that is of no use is closed and not read to its end."""
    proxy = escalating(start_proxy, to="endless-html")
    assert proxy.ask("first p=0.1").status_code == 200
    assert upstream.wait_for_request(2).is_cut_off(within_s=2)


# Without a score


@pytest.mark.parametrize(
    ("on_score_error", "status", "action"),
    [("deliver", 200, "deliver"), ("hold", 200, "hold"), ("block", 422, "block")],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_on_score_error(
    start_proxy: StartProxy, on_score_error: str, status: int, action: str, is_stream: bool
) -> None:
    """Where a rule needs a score that is missing, `on_score_error` applies."""
    proxy = start_proxy(
        policy=policy("block", on_score_error=on_score_error), scorer=FailingScorer("failing")
    )
    response = proxy.ask("p=0.1", stream=is_stream)
    assert response.status_code == status
    assert response.headers[ACTION] == action
    assert response.headers["x-pinocchio-policy"].startswith("desk/on_score_error@")
    assert response.headers["x-pinocchio-confidence-status"] == "error"
    assert "x-pinocchio-confidence" not in response.headers


def test_enforcing_holds_while_the_calibrator_is_slow(start_proxy: StartProxy) -> None:
    """By default an enforced policy holds a reply whose score does not arrive in time."""
    scorer = SlowScorer("slow@held")
    proxy = start_proxy(policy=HOLD, scorer=scorer, calibrator={"timeout_s": 0.05})
    response = proxy.ask("p=0.9")
    scorer.proceed.set()
    assert response.json()["choices"][0]["finish_reason"] == "content_filter"
    assert response.headers["x-pinocchio-confidence-status"] == "timeout"


# Replies that cannot be read


@pytest.mark.parametrize(
    ("model", "is_stream"),
    [
        ("html", False),
        ("html", True),
        ("unknown-encoding", False),
        ("broken-json", False),
        ("gzip", True),
    ],
)
def test_what_cannot_be_read_does_not_slip_through(
    holding: LiveProxy, upstream: FaultyUpstream, model: str, is_stream: bool
) -> None:
    """A reply that a policy must decide on and that cannot be read is not delivered."""
    response = holding.ask("secret p=0.9", model, stream=is_stream)
    assert response.status_code == 422
    assert error_of(response)["code"] == "unreadable_reply"
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in response.text
    assert len(upstream.requests) == 1


def test_a_stream_that_is_decided_on_is_asked_for_unencoded(
    holding: LiveProxy, proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """A stream that is decided on is requested without Accept-Encoding, and no other request is."""
    for server, is_stream, encoding in (
        (holding, True, None),
        (holding, False, "gzip"),
        (proxy, True, "gzip"),
    ):
        server.ask("p=0.9", stream=is_stream, headers={"accept-encoding": "gzip"})
        assert upstream.last.header("accept-encoding") == encoding


@pytest.mark.parametrize("is_stream", [False, True])
def test_errors_of_upstream_are_no_replies(holding: LiveProxy, is_stream: bool) -> None:
    """A policy that holds everything unsure relays upstream's errors."""
    response = holding.ask("p=0.1", "status-429", stream=is_stream)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"


# Conditions on the request


def test_rules_see_domain_and_tags(start_proxy: StartProxy) -> None:
    """Rules can use x-pinocchio-domain and x-pinocchio-tags."""
    rules = """
version: 1
name: desk
rules:
  - {name: tagged, when: {tags: [beta]}, then: block}
  - {name: domain, when: {domain: legal*}, then: clarify}
default: deliver
"""
    proxy = start_proxy(policy=rules)
    tagged = proxy.ask(headers={"x-pinocchio-tags": "alpha, beta"})
    domain = proxy.ask(headers={"x-pinocchio-domain": "legal-eu"})
    assert (tagged.headers[ACTION], domain.headers[ACTION]) == ("block", "clarify")
    two_lines = proxy.ask(headers=[("x-pinocchio-tags", "alpha"), ("x-pinocchio-tags", "beta")])
    assert two_lines.headers[ACTION] == "block", "several lines are one list (RFC 9110, 5.3)"
    assert proxy.ask().headers[ACTION] == "deliver"


@pytest.mark.parametrize("is_stream", [False, True])
def test_rules_see_how_many_were_asked_for(start_proxy: StartProxy, is_stream: bool) -> None:
    """`n` is the number that the client asked for, also while the choices of a stream end."""
    rule = "{name: several, when: {n: {at_least: 2}}, then: block}"
    text = f"{{version: 1, name: desk, mode: shadow, rules: [{rule}], default: deliver}}"
    proxy = start_proxy(policy=text)
    for n, action in ((1, "deliver"), (2, "block")):
        response = proxy.ask("p=0.9|p=0.8", n=n, stream=is_stream)
        members = members_in(response.content) if is_stream else [response.json()["pinocchio"]]
        assert [member["would_action"] for member in members] == [action] * len(members)


def test_rules_see_the_called_tools(start_proxy: StartProxy) -> None:
    """A rule about tools looks at the reply's calls, streamed or not."""
    rules = """
version: 1
name: desk
rules: [{name: tools, when: {tools: [get_*]}, then: {hold: {reply: error}}}]
default: deliver
"""
    proxy = start_proxy(policy=rules)
    for is_stream in (False, True):
        asked: Any = {"tools": [WEATHER], "stream": is_stream}
        question = f"p=0.9 {is_stream}"  # the same question would fetch what is held already
        held, free = proxy.ask(question, "tools", **asked), proxy.ask(question, "ok", **asked)
        assert b'"code": "held_for_review"' in held.content
        assert b"get_weather" not in held.content
        assert b"pinocchio" in free.content
        assert (held.status_code, free.status_code) == (200 if is_stream else 422, 200)


def test_a_stream_that_nobody_asked_for_is_judged(start_proxy: StartProxy) -> None:
    """A stream that nobody asked for is decided on like a reply that is not streamed."""
    rules = """
version: 1
name: desk
rules: [{name: whole, when: {stream: false}, then: block}]
default: deliver
"""
    proxy = start_proxy(policy=rules)
    assert proxy.ask("p=0.9", "always-stream").status_code == 422
    assert proxy.ask("p=0.9", "always-stream", stream=True).status_code == 200


# Streams that wait for their score


@pytest.mark.parametrize("model", ["ok", "tools", "vendor", "split", "crlf", "cut-after-done"])
def test_a_buffered_stream_is_the_live_one(
    holding: LiveProxy, proxy: LiveProxy, model: str
) -> None:
    """A buffered stream that is delivered has the bytes of a live one, except for the member."""
    asked = question("p=0.7", model, stream=True)
    buffered, live = holding.post_raw(asked), proxy.post_raw(asked)
    assert without_member(buffered.body) == without_member(live.body)
    assert buffered.headers["x-pinocchio-confidence-status"] == "scored"
    assert buffered.headers[ACTION] == "deliver"
    assert members_in(buffered.body)[0]["status"] == "scored"


def test_a_buffered_stream_that_breaks_off_is_502(holding: LiveProxy) -> None:
    """Before anything was sent, half a stream is an ordinary error."""
    for model in ("cut", "no-finish"):
        response = holding.ask("p=0.7", model, stream=True)
        assert response.status_code == 502
        assert error_of(response)["code"] == "upstream_broke_off"


def test_an_error_event_in_a_buffered_stream_is_relayed_without_the_text_before_it(
    holding: LiveProxy, proxy: LiveProxy
) -> None:
    """Upstream's error arrives unchanged, without the text that no policy decided on."""
    asked = question("p=0.7", "error-event", stream=True)
    body, live = holding.post_raw(asked).body, proxy.post_raw(asked).body
    assert body in live
    assert b'"error"' in body
    assert b'"content"' in live
    assert b'"content"' not in body


@pytest.fixture
def impatient(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that holds, and sends its status after 50 ms."""
    return start_proxy(policy=HOLD, limits={"commit_after_s": 0.05})


def test_pings_keep_a_buffered_stream_alive(
    impatient: LiveProxy, proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """After `commit_after_s` comments are sent, then the stream with its member."""
    with streaming(impatient, "p=0.7", "gated") as (response, parts):
        assert next(parts) == b": ping\n\n"
        assert response.headers["x-pinocchio-confidence-status"] == "pending"
        assert response.headers["x-pinocchio-confidence-reason"] == "buffered"
        upstream.last.proceed()
        rest = b"".join(parts)
    assert text_in(rest) == "p=0.7"
    assert members_in(rest)[0]["confidence"] == 0.7
    assert rest.endswith(b"data: [DONE]\n\n")


def test_a_late_hold_of_a_stream(impatient: LiveProxy, upstream: FaultyUpstream) -> None:
    """After the status is out, a held stream still becomes the placeholder."""
    with streaming(impatient, "secret p=0.1", "gated") as (_, parts):
        next(parts)
        upstream.last.proceed()
        rest = b"".join(parts)
    assert b"secret" not in rest
    assert events_in(rest)[-1]["choices"][0]["finish_reason"] == "content_filter"


def test_a_late_error_of_a_stream(impatient: LiveProxy, upstream: FaultyUpstream) -> None:
    """After the status is out, a hold with an error becomes an error event without [DONE]."""
    fields = {"response_format": SCHEMA}
    with streaming(impatient, "secret p=0.1", "gated", **fields) as (_, parts):
        next(parts)
        upstream.last.proceed()
        rest = b"".join(parts)
    assert events_in(rest)[-1]["error"]["code"] == "held_for_review"
    assert b"[DONE]" not in rest
    assert b"secret" not in rest


def test_openai_clients_read_pings(impatient: LiveProxy, upstream: FaultyUpstream) -> None:
    """The official client reads a stream with heartbeats as if there were none."""
    stream = impatient.openai.chat.completions.create(**question("p=0.7", "gated"), stream=True)
    upstream.last.proceed()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "p=0.7"
