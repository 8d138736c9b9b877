"""What policies do with `/v1/messages`: messages held, clarified, blocked and escalated."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from proxy.store.reviews.held_replies import REJECTED, RELEASED
from tests.running.live_proxy import without_member
from tests.running.messages_client import (
    ACTION,
    HEADERS,
    STATUS,
    TOOLS,
    Json,
    Start,
    accumulated,
    ask,
    asked,
    data_of,
    decide,
    error_of,
    member_in,
    policy,
    proxies_before,
    text_of,
    tool_policy,
)
from tests.servers.messages_upstream import MessagesUpstream


@pytest.fixture(scope="module")
def running() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: MessagesUpstream) -> MessagesUpstream:
    running.forget()
    return running


@pytest.fixture(scope="module")
def start(running: MessagesUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with proxies_before(running, tmp_path_factory) as start:
        yield start


# Policies


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_stop_reason_of_refusal_is_a_refusal(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """Rules on `refusal` match the stop reason of Anthropic's refusals, and no other."""
    proxy = start(policy=policy("block", when="refusal: true"))
    for model, action in (("refuses", "block"), ("too-long", "deliver")):
        reply = ask(proxy, asked("p=0.9", model, stream=is_stream))
        assert reply.headers[ACTION] == action


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_reply_is_a_message_that_says_so(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """The placeholder is a valid message with an id of ours and nothing of the answer."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("secret p=0.1", stream=is_stream))
    message = accumulated(got.body) if is_stream else json.loads(got.body)
    assert message["id"].startswith("msg_held_")
    assert "held for review" in text_of(message)
    assert (message["type"], message["stop_reason"]) == ("message", "refusal")
    assert message["model"] == "ok-20990101"
    assert message["usage"]["output_tokens"] == 15
    assert b"secret" not in got.body
    assert got.headers[ACTION] == "hold"
    assert member_in(got, is_stream)["review_id"] == message["id"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_released_reply_is_fetched(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """The id gives the placeholder and later the message, only for the key that asked."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("secret p=0.1", "thinks", stream=is_stream))
    id = got.headers["x-pinocchio-review-id"]
    fetch = f"/v1/messages/{id}"
    assert proxy.http.get(fetch, headers=HEADERS).json()["stop_reason"] == "refusal"
    decide(proxy, id, RELEASED)
    message = proxy.http.get(fetch, headers=HEADERS).json()
    direct = json.loads(ask(upstream, asked("secret p=0.1", "thinks")).body)
    assert message.pop("pinocchio")["action"] == "deliver"
    assert message == direct | {"id": id}
    other = proxy.http.get(fetch, headers=HEADERS | {"authorization": "Bearer other"})
    assert (other.status_code, error_of(other.content)["code"]) == (404, "held_reply_not_found")
    assert error_of(other.content)["type"] == "not_found_error"


def test_the_anthropic_key_alone_says_who_asks(start: Start) -> None:
    """A held reply belongs to its `x-api-key` where there is no Authorization."""
    proxy = start(policy=policy("hold"))
    with httpx.Client(base_url=proxy.url, headers=HEADERS, trust_env=False) as client:
        id = client.post("/v1/messages", json=asked("p=0.1")).json()["id"]
        assert client.get(f"/v1/messages/{id}").status_code == 200
        other = client.get(f"/v1/messages/{id}", headers={"x-api-key": "sk-ant-other"})
        assert other.status_code == 404


def test_a_rejected_reply_is_gone(start: Start) -> None:
    """A rejected reply is an error in Anthropic's envelope, with our code."""
    proxy = start(policy=policy("hold"))
    id = json.loads(ask(proxy, asked("p=0.1")).body)["id"]
    decide(proxy, id, REJECTED)
    gone = proxy.http.get(f"/v1/messages/{id}", headers=HEADERS)
    assert error_of(gone.content)["code"] == "held_reply_rejected"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tools"},
        {"tool_choice": {"type": "any"}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    ],
)
def test_prose_never_stands_for_a_call_or_for_json(
    start: Start, upstream: MessagesUpstream, is_stream: bool, fields: Json
) -> None:
    """Held calls and structured outputs are errors, which official clients do not retry."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("p=0.1", stream=is_stream) | fields)
    error = error_of(got.body)
    assert (got.status, error["type"], error["code"]) == (422, "policy_error", "held_for_review")
    assert got.headers["x-should-retry"] == "false"
    assert f"GET /v1/messages/{got.headers['x-pinocchio-review-id']}" in error["message"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_blocked_reply(start: Start, is_stream: bool) -> None:
    """A blocked message is a 422 in Anthropic's envelope."""
    got = ask(start(policy=policy("block")), asked("secret p=0.1", stream=is_stream))
    assert (got.status, error_of(got.body)["code"]) == (422, "blocked_by_policy")
    assert b"secret" not in got.body


def test_a_late_decision_is_told_in_the_stream(start: Start, upstream: MessagesUpstream) -> None:
    """After pings a block is an error event in Anthropic's format."""
    proxy = start(policy=policy("block"), limits={"commit_after_s": 0.05})
    body = asked("secret p=0.1 and more", "gated", stream=True)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        parts = response.iter_raw()
        assert next(parts) == b": ping\n\n"
        upstream.last.proceed()
        [error] = data_of(b"".join(parts))
    assert (response.status_code, response.headers[STATUS]) == (200, "pending")
    assert (error["type"], error["error"]["code"]) == ("error", "blocked_by_policy")


@pytest.mark.parametrize("model", ["ok", "tools", "thinks"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_clarification(start: Start, model: str, is_stream: bool) -> None:
    """The policy's text replaces all blocks, and the turn ends as an answer does."""
    proxy = start(policy=policy("{clarify: {text: Which one}}"))
    got = ask(proxy, asked("secret p=0.1", model, stream=is_stream))
    message = accumulated(got.body) if is_stream else json.loads(got.body)
    assert message["content"] == [{"type": "text", "text": "Which one"}]
    assert (message["stop_reason"], message["id"][:6]) == ("end_turn", "msg_01")
    assert b"secret" not in got.body


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_escalation(start: Start, upstream: MessagesUpstream, is_stream: bool) -> None:
    """The surer answer of another model arrives as that model sent it."""
    proxy = start(policy=policy("{escalate: {to: say strong p=0.8, keep: best}}"))
    got = ask(proxy, asked("weak p=0.1", stream=is_stream))
    direct = ask(upstream, asked("weak p=0.1", "say strong p=0.8", stream=is_stream))
    assert without_member(got.body) == direct.body
    assert member_in(got, is_stream)["escalated_from"] == "ok"
    assert upstream.requests[1].header("x-api-key") == "sk-ant-client"


@pytest.mark.parametrize("is_stream", [False, True])
def test_shadow_changes_nothing(start: Start, upstream: MessagesUpstream, is_stream: bool) -> None:
    """In shadow mode the bytes are upstream's, and the member says what would have happened."""
    proxy = start(policy=policy("block", mode="shadow"))
    body = asked("p=0.1", stream=is_stream)
    got = ask(proxy, body)
    assert without_member(got.body) == ask(upstream, body).body
    assert member_in(got, is_stream)["would_action"] == "block"


# Tool calls that wait


def test_sure_calls_go_on_as_they_came(start: Start, upstream: MessagesUpstream) -> None:
    """Calls that waited for their score and are delivered have upstream's bytes."""
    proxy = start(policy=tool_policy("block"))
    for model in ("tools", "large-input", "searches", "ok", "thinks"):
        body = asked("p=0.9", model, stream=True, tools=TOOLS)
        assert without_member(ask(proxy, body).body) == ask(upstream, body).body


def test_text_is_not_kept_back_with_calls(start: Start, upstream: MessagesUpstream) -> None:
    """Text is live where only calls have to wait."""
    proxy = start(policy=tool_policy("block"))
    body = asked("p=0.1 and more", "gated", stream=True, tools=TOOLS)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        parts = response.iter_raw()
        seen = b""
        while b"text_delta" not in seen:
            seen += next(parts)
        upstream.last.proceed()
        assert b"message_stop" in b"".join(parts)


@pytest.mark.parametrize(("model", "before"), [("tools", 1), ("searches", 0), ("large-input", 0)])
def test_a_clarification_goes_on_with_the_next_block(start: Start, model: str, before: int) -> None:
    """A clarification in place of calls continues the message that the client has begun to read."""
    when = "tools: [weather, web_search, write], confidence: {below: 0.3}"
    proxy = start(policy=policy("{clarify: {text: Which one}}", when=when))
    got = ask(proxy, asked("p=0.1", model, stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert message["content"][before:] == [{"type": "text", "text": "Which one"}]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] == 15
    assert [data["type"] for data in data_of(got.body)].count("message_start") == 1
    assert member_in(got, True)["action"] == "clarify"
    assert b"tool_use" not in got.body


def test_a_held_call_ends_the_stream_in_an_error(start: Start) -> None:
    """A held call is an error event that ends the stream, and can be fetched."""
    proxy = start(policy=tool_policy("hold"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    events = data_of(got.body)
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "held_for_review")
    assert b"tool_use" not in got.body


def test_a_held_call_may_be_replaced_by_words(start: Start) -> None:
    """With `reply: placeholder` a held call's stream ends as a refusal; the member has its id."""
    proxy = start(policy=tool_policy("{hold: {reply: placeholder}}"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert message["stop_reason"] == "refusal"
    id = member_in(got, True)["review_id"]
    assert "held for review" in text_of(message)
    decide(proxy, id, RELEASED)
    released = proxy.http.get(f"/v1/messages/{id}", headers=HEADERS).json()
    assert [block["type"] for block in released["content"]] == ["text", "tool_use", "tool_use"]
    assert released["content"][1]["input"] == {"city": "p=0.1", "nested": {"n": [0, None]}}


def test_an_escalated_call_continues_the_stream(start: Start) -> None:
    """Another model's answer follows the text sent already, in one message."""
    proxy = start(policy=tool_policy("{escalate: {to: say strong p=0.8, keep: last}}"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert text_of(message) == "Let me look that up.strong p=0.8"
    assert message["stop_reason"] == "end_turn"
    assert b"tool_use" not in got.body
