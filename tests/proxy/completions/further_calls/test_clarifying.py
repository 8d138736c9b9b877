"""A clarification that a model writes: its request, its mark, and what replaces it on failure."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from proxy.completions import apply
from proxy.completions.apply import INSTRUCTIONS, MOST_WRITTEN
from tests.builders.scripted_streams import recorded
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    LiveProxy,
    RawReply,
    events_in,
    members_in,
    post_raw,
    question,
    streaming,
    text_in,
)
from tests.running.messages_client import accumulated, member_in, proxies_before, text_of
from tests.running.messages_client import ask as ask_for_message
from tests.running.messages_client import asked as message_asked
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
MARK = "x-pinocchio-clarification"
WHICH = "Which city?"
OWN = "Say more."


def generating(model: str | None = f"say {WHICH}", text: str = OWN, otherwise: str = "") -> str:
    """Return a policy that lets a model write a question if an answer is below 0.3."""
    options: Json = {"ask": "generate", "text": text} | ({"model": model} if model else {})
    then = json.dumps({"clarify": options})
    if otherwise:
        then = otherwise % then
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.3}}}}, then: {then}}}"
    return f"{{version: 1, name: desk, rules: [{rule}], default: deliver}}"


def told_in(reply: RawReply, is_stream: bool) -> tuple[str, Json]:
    """Return the text of a chat completion, and the member."""
    if is_stream:
        return text_in(reply.body), members_in(reply.body)[0]
    completion = json.loads(reply.body)
    return completion["choices"][0]["message"]["content"], completion["pinocchio"]


@pytest.mark.parametrize("model", ["ok", "tools"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_model_writes_the_question(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool, model: str
) -> None:
    """The model's question replaces text and calls, and is marked as generated."""
    proxy = start_proxy(policy=generating())
    got = proxy.post_raw(question("secret p=0.1", model, stream=is_stream, tools=[TOOL]))
    text, member = told_in(got, is_stream)
    assert text == WHICH
    assert (got.headers["x-pinocchio-action"], got.headers[MARK]) == ("clarify", "generated")
    assert (member["action"], member["clarification"]) == ("clarify", "generated")
    assert b"secret" not in got.body
    assert b"get_weather" not in got.body
    if is_stream:
        assert events_in(got.body)[-1]["choices"][0]["finish_reason"] == "stop"
    else:
        assert json.loads(got.body)["choices"][0]["finish_reason"] == "stop"
    assert [call["model"] for call in member["calls"]] == [model, f"say {WHICH}"]
    assert member["calls"][1]["purpose"] == "clarification"
    assert member["calls"][1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4}
    row = recorded(proxy, got.headers["x-pinocchio-request-id"])
    assert (row["action"], len(json.loads(row["calls"]))) == ("clarify", 2)


def test_the_model_is_given_the_exchange(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """The model gets our instructions, the question and
    the answer under the client's key, without a stream.
    """
    proxy = start_proxy(policy=generating())
    headers = {"x-mine": "1", "idempotency-key": "k"}
    proxy.ask("the weather p=0.1", stream=True, temperature=0.2, headers=headers)
    request = upstream.requests[1]
    body = request.json()
    assert set(body) == {"model", "messages"}
    system, user = body["messages"]
    assert (system["role"], system["content"], user["role"]) == ("system", INSTRUCTIONS, "user")
    assert user["content"].count("the weather p=0.1") == 2  # the upstream answers in echoes
    assert request.header("authorization") == "Bearer sk-client"
    assert request.header("x-mine") == "1"
    assert request.header("idempotency-key") is None


def test_an_encoded_request_is_gone_on_with(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """The further request is a plain one, whatever encoding the client's had."""
    proxy = start_proxy(policy=generating())
    body = gzip.compress(json.dumps(question("p=0.1")).encode())
    got = proxy.post_raw(body, content_encoding="gzip", x_faulty=f"say {WHICH} p=0.1")
    assert told_in(got, False)[0] == f"{WHICH} p=0.1"
    assert upstream.requests[1].header("content-encoding") is None
    assert upstream.requests[1].json()["messages"]


def test_without_a_name_the_answering_model_is_asked(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Without `model` the question is asked of the model
    whose reply it replaces, also after an escalation.
    """
    start_proxy(policy=generating(None)).ask("?", "say a p=0.1")
    escalating = generating(None, otherwise="{escalate: {to: say b p=0.2, otherwise: %s}}")
    start_proxy(policy=escalating).ask("?", "say a p=0.1")
    models = [request.json()["model"] for request in upstream.requests]
    assert models == ["say a p=0.1"] * 3 + ["say b p=0.2"] * 2


def test_the_least_sure_choice_is_asked_about(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With n > 1 the question is about the least sure answer, and replaces all choices."""
    response = start_proxy(policy=generating()).ask("fine p=0.9|bad p=0.1", n=2)
    draft = upstream.requests[1].json()["messages"][1]["content"].partition("<draft>")[2]
    assert "bad p=0.1" in draft
    assert "fine" not in draft
    texts = [choice["message"]["content"] for choice in response.json()["choices"]]
    assert texts == [WHICH] * 2


ALWAYS = json.dumps({"clarify": {"ask": "generate", "model": f"say {WHICH}", "text": OWN}})


def test_a_question_with_an_image_is_given_without_it(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A question with an image has no score, and is clarified without the image."""
    proxy = start_proxy(policy=f"{{version: 1, name: desk, default: {ALWAYS}}}")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "whose cat is this?"}, image]
    body = {"model": "ok", "messages": [{"role": "user", "content": content}]}
    assert told_in(proxy.post_raw(body), False)[0] == WHICH
    sent = upstream.requests[1].json()["messages"][1]["content"]
    assert "whose cat is this?" in sent
    assert "base64" not in sent


# Where there is no question


def test_an_answer_that_is_no_text_is_not_asked_about(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A reply that cannot become text gets the policy's clarification, without a call."""
    proxy = start_proxy(policy=f"{{version: 1, name: desk, default: {ALWAYS}}}")
    content = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    choice = {"index": 0, "message": {"content": content}, "finish_reason": "stop"}
    got = proxy.ask("?", "told", reply={"id": "x", "object": "c", "choices": [choice]})
    assert got.json()["choices"][0]["message"]["content"] == OWN
    assert got.headers[MARK] == "template"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("status-500", "upstream_status_500"),
        ("hang-up", "upstream_broke_off"),
        ("cut", "upstream_broke_off"),
        ("html", "content_type"),
        ("endless-html", "content_type"),
        ("broken-json", "not_a_completion"),
        ("slow", "upstream_timeout"),
        ("gated", "upstream_timeout"),
        ("empty", None),
        ("tools", None),
        (f"say {'x' * (MOST_WRITTEN + 1)}", None),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_policys_text_stands_in(
    start_proxy: StartProxy,
    upstream: FaultyUpstream,
    model: str,
    error: str | None,
    is_stream: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the model fails, is too slow or writes no question, the policy's text is sent."""
    monkeypatch.setattr(apply, "QUESTION_S", 0.3)
    proxy = start_proxy(policy=generating(model))
    got = proxy.post_raw(question("p=0.1", stream=is_stream))
    text, member = told_in(got, is_stream)
    assert text == OWN
    assert got.headers[MARK] == member["clarification"] == "template"
    assert member["calls"][1].get("error") == error
    if model in ("slow", "gated", "endless-html"):
        assert upstream.requests[1].is_cut_off(within_s=2)


def test_a_template_says_that_it_is_one(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A clarification from the policy's text is marked as a template, and costs no call."""
    policy = "{version: 1, name: desk, default: {clarify: {text: Say more.}}}"
    response = start_proxy(policy=policy).ask("p=0.1")
    assert response.headers[MARK] == "template"
    assert "calls" not in response.json()["pinocchio"]
    assert len(upstream.requests) == 1


def test_a_slow_question_is_waited_for_with_pings(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Pings keep the stream alive while the question is written; then it arrives whole."""
    proxy = start_proxy(policy=generating("gated"), limits={"commit_after_s": 0.05})
    with streaming(proxy, "p=0.1", "ok") as (_, parts):
        assert next(parts) == b": ping\n\n"
        upstream.wait_for_request(2).proceed()
        rest = b"".join(parts)
    assert text_in(rest).startswith("<asked>")  # an echo of its input
    assert members_in(rest)[0]["clarification"] == "generated"


# Other formats


@pytest.mark.parametrize("is_stream", [False, True])
def test_responses(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """On `/v1/responses` the model is asked in that format, and upstream stores nothing."""
    proxy = start_responses(policy=generating())
    body = {"model": "ok", "input": "secret p=0.1", "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", body)
    sent = responses_upstream.last.json()
    assert (sent["instructions"], sent["store"]) == (INSTRUCTIONS, False)
    assert "secret p=0.1" in sent["input"]
    assert WHICH.encode() in got.body
    assert b"secret" not in got.body
    assert b'"clarification":"generated"' in got.body
    if not is_stream:
        assert json.loads(got.body)["status"] == "completed"


def test_a_fetched_response_is_asked_about(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A background response is clarified when it is fetched, like any other response."""
    proxy = start_responses(policy=generating())
    asked = {"model": "ok", "input": "secret p=0.1", "background": True}
    made = proxy.http.post("/v1/responses", json=asked).json()
    proxy.http.get(f"/v1/responses/{made['id']}")
    fetched = proxy.http.get(f"/v1/responses/{made['id']}").json()
    assert fetched["output"][0]["content"][0]["text"] == WHICH
    assert "secret p=0.1" in responses_upstream.last.json()["input"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_completions(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """On `/v1/completions` instructions and exchange are one prompt with a bounded answer."""
    proxy = start_responses(policy=generating())
    body = {"model": "ok", "prompt": "secret p=0.1", "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/completions", body)
    sent = responses_upstream.last.json()
    assert sent["prompt"].startswith(INSTRUCTIONS)
    assert sent["max_tokens"] == 1_000
    assert f'"text":"{WHICH}"'.encode() in got.body
    assert b"secret" not in got.body


@pytest.mark.parametrize("is_stream", [False, True])
def test_messages(
    running_messages: MessagesUpstream,
    tmp_path_factory: pytest.TempPathFactory,
    is_stream: bool,
) -> None:
    """On `/v1/messages` the request is valid for Anthropic's API, and the reply is a message."""
    running_messages.forget()
    with proxies_before(running_messages, tmp_path_factory) as start:
        proxy = start(policy=generating())
        got = ask_for_message(proxy, message_asked("secret p=0.1", stream=is_stream))
    sent = running_messages.last.json()
    assert set(sent) == {"model", "max_tokens", "system", "messages"}
    assert sent["system"] == INSTRUCTIONS
    message = accumulated(got.body) if is_stream else json.loads(got.body)
    assert (text_of(message), message["stop_reason"]) == (WHICH, "end_turn")
    assert member_in(got, is_stream)["clarification"] == "generated"


def test_only_calls_wait_where_a_question_replaces_a_call(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Where only tool calls wait, the written question follows the text sent already."""
    policy = generating().replace("when: {", "when: {tools: any, ")
    proxy: LiveProxy = start_proxy(policy=policy)
    got = proxy.post_raw(question("p=0.1", "tools", stream=True, tools=[TOOL]))
    assert text_in(got.body) == WHICH
    assert b"get_weather" not in got.body
    assert members_in(got.body)[0]["clarification"] == "generated"
