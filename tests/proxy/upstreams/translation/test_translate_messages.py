"""`/v1/messages` where upstream speaks OpenAI's format, and chat where it speaks Anthropic's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRequestError, UpstreamBrokenError
from proxy.http.wire.upstream import UpstreamRequest
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from proxy.upstreams.translation.messages import _TRANSLATED, _CallsInOrder, _to_chat
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, RawReply, members_in, post_raw
from tests.running.messages_client import (
    HEADERS,
    TOOLS,
    accumulated,
    ask,
    asked,
    data_of,
    error_of,
    member_in,
    policy,
    text_of,
)
from tests.running.translation import Listener, listening, opened
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream

Json = dict[str, Any]

# litellm reads fields of its types in a way that pydantic rejects.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")

KEYS = (
    "type",
    "text",
    "role",
    "content",
    "name",
    "input_schema",
    "budget_tokens",
    "source",
    "format",
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["x", "user", "tool_use", "enabled"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def messages_upstream() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all keys from the environment."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-environment-canary")


def message_of(got: RawReply, is_stream: bool) -> Json:
    assert got.status == 200, got.body
    message: Json = accumulated(got.body) if is_stream else json.loads(got.body)
    return message


# To an upstream that speaks OpenAI's format


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_message_comes_back(proxy: LiveProxy, upstream: FaultyUpstream, is_stream: bool) -> None:
    """A message comes back in Anthropic's format with text, model, usage and confidence."""
    got = ask(proxy, asked("p=0.7 ä🍋", stream=is_stream, system="You are terse."))
    message = message_of(got, is_stream)
    assert message["content"] == [{"type": "text", "text": "p=0.7 ä🍋"}]
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert message["model"] == "ok-2099"
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (3, 4)
    assert member_in(got, is_stream)["confidence"] == 0.7
    sent = upstream.last.json()
    assert upstream.last.path == "/chat/completions"
    assert sent["messages"] == [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "p=0.7 ä🍋"},
    ]
    assert sent["max_tokens"] == 100


def test_client_key_is_sent_as_x_api_key(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Upstream gets the key in `x-api-key`, and never one of the environment."""
    with httpx.Client(base_url=proxy.url, headers=HEADERS, trust_env=False) as client:
        assert client.post("/v1/messages", json=asked(), timeout=20).status_code == 200
    assert upstream.last.header("authorization") == "Bearer sk-ant-client"
    assert upstream.last.header("anthropic-version") is None
    assert upstream.last.header("x-api-key") is None


def test_a_configured_key_goes_upstream(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """With `api_key` upstream gets that key."""
    ask(start_proxy(upstream={"api_key": "sk-ours"}), asked())
    assert upstream.last.header("authorization") == "Bearer sk-ours"
    assert b"sk-ant-client" not in str(upstream.last.headers).encode()


def test_names_with_a_prefix_stay_whole(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """`openai/..` is an ordinary name for a model of an upstream that is not litellm's."""
    for name in ("openai/gpt-oss-20b", "org/model:free", "anthropic/claude"):
        ask(proxy, asked(model=name))
        assert upstream.last.json()["model"] == name


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("model", "count"), [("tools", 1), ("parallel-tools", 2)])
def test_calls_come_back_whole(
    proxy: LiveProxy, upstream: FaultyUpstream, is_stream: bool, model: str, count: int
) -> None:
    """Calls come back in their order with id, name and input."""
    body = asked("p=0.7", model, stream=is_stream, tools=TOOLS, tool_choice={"type": "any"})
    message = message_of(ask(proxy, body), is_stream)
    assert message["stop_reason"] == "tool_use"
    assert message["content"] == [
        {
            "type": "tool_use",
            "id": f"call_{number}",
            "name": "weather",
            "input": {"city": "p=0.7", "number": number},
        }
        for number in range(count)
    ]
    sent = upstream.last.json()
    assert sent["tools"][1]["function"]["name"] == "clock"
    assert sent["tool_choice"] == "required"


def test_results_go_upstream(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A conversation with calls and their results becomes one in OpenAI's format."""
    call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
    parts = [{"type": "text", "text": "18"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": parts}
    messages = [
        {"role": "user", "content": "How warm?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "p=0.8"}]},
    ]
    assert ask(proxy, asked(tools=TOOLS) | {"messages": messages}).status == 200
    sent = upstream.last.json()["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}
    assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("t1", "18")


@pytest.mark.parametrize("is_stream", [False, True])
def test_reasoning_becomes_a_thinking_block(proxy: LiveProxy, is_stream: bool) -> None:
    """Upstream's visible reasoning becomes a thinking block before the text."""
    message = message_of(ask(proxy, asked("p=0.7", "reasoning", stream=is_stream)), is_stream)
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["content"][0]["thinking"] == "Let me think about it. p=0.33"


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("is_stream", [False, True])
def test_errors_keep_their_status(
    proxy: LiveProxy, upstream: FaultyUpstream, status: int, is_stream: bool
) -> None:
    """Upstream's error arrives once in Anthropic's envelope, with its words and limits."""
    got = ask(proxy, asked(model=f"status-{status}", stream=is_stream))
    body = json.loads(got.body)
    assert (got.status, body["type"]) == (status, "error")
    assert body["error"]["message"] == f"upstream says {status}"
    assert got.headers["content-type"] == "application/json"
    assert got.headers.get("retry-after") == ("7" if status == 429 else None)
    assert len(upstream.requests) == 1
    if status == 429:
        assert body["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("model", ["cut", "no-finish", "error-event"])
def test_a_stream_that_breaks_off_ends_in_an_error(proxy: LiveProxy, model: str) -> None:
    """A stream that breaks off ends with an error event, and is no message."""
    events = data_of(ask(proxy, asked("p=0.9 and more", model, stream=True)).body)
    assert events[-1]["type"] == "error"
    assert "message_stop" not in [data["type"] for data in events]


def test_upstreams_own_error_keeps_its_words(proxy: LiveProxy) -> None:
    """An error within a stream has upstream's message and code."""
    events = data_of(ask(proxy, asked("p=0.9 and more", "error-event", stream=True)).body)
    assert events[-1]["error"]["message"] == "oops"
    assert events[-1]["error"]["code"] == "boom"


def test_no_answer_is_an_error(proxy: LiveProxy) -> None:
    """An upstream that hangs up gives a 502 in Anthropic's envelope."""
    got = ask(proxy, asked(model="hang-up"))
    assert (got.status, error_of(got.body)["type"]) == (502, "api_error")


@pytest.mark.parametrize(
    "fields",
    [
        {"container": "c_1"},
        {"mcp_servers": [{"url": "https://example.org"}]},
        {"api_base": "http://127.0.0.1:9"},
        {"mock_response": "x"},
        {"extra_headers": {"x-evil": "1"}},
    ],
)
def test_what_has_no_counterpart_is_refused(
    proxy: LiveProxy, upstream: FaultyUpstream, fields: Json
) -> None:
    """A field that cannot be translated is refused by name, and none reaches litellm's settings."""
    got = ask(proxy, asked(**fields))
    assert (got.status, error_of(got.body)["param"]) == (400, next(iter(fields)))
    assert upstream.requests == []


@pytest.mark.parametrize("messages", [None, "x", [1], [{"role": "user", "content": [1]}], []])
def test_messages_that_are_none_are_the_clients_fault(
    proxy: LiveProxy, upstream: FaultyUpstream, messages: Any
) -> None:
    """A message that cannot be translated is a 400."""
    got = ask(proxy, asked() | {"messages": messages})
    assert (got.status, error_of(got.body)["type"]) == (400, "invalid_request_error")
    assert upstream.requests == []


@given(st.dictionaries(st.sampled_from(sorted(_TRANSLATED - {"model"})), ODD))
def test_odd_values_are_the_clients_fault(fields: Json) -> None:
    """Any value of any field is either translated or refused with a 400."""
    with contextlib.suppress(BadRequestError):
        _to_chat(asked() | fields)


def test_anthropics_bookkeeping_is_left_out(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Marks for Anthropic's cache and context editing, which change no answer, are left out."""
    text = {"type": "text", "text": "p=0.9", "cache_control": {"type": "ephemeral"}}
    body = asked(context_management={"edits": []}, service_tier="auto", metadata={"user_id": "u"})
    got = ask(proxy, body | {"messages": [{"role": "user", "content": [text]}]})
    assert got.status == 200
    sent = upstream.last.json()
    assert not {"context_management", "service_tier", "metadata"} & set(sent)
    assert "cache_control" not in json.dumps(sent)


@pytest.mark.parametrize("is_stream", [False, True])
def test_policies_apply_to_translations(start_proxy: StartProxy, is_stream: bool) -> None:
    """A translated answer is held, clarified or blocked like any other."""
    proxy = start_proxy(policy=policy("{clarify: {text: Which one}}"))
    got = ask(proxy, asked("secret p=0.1", stream=is_stream))
    assert text_of(message_of(got, is_stream)) == "Which one"
    proxy = start_proxy(policy=policy("block"))
    got = ask(proxy, asked("secret p=0.1", stream=is_stream))
    assert (got.status, error_of(got.body)["code"]) == (422, "blocked_by_policy")


def test_withheld_calls_are_replaced_in_translations(start_proxy: StartProxy) -> None:
    """The replacement of a translated call continues the stream."""
    when = "tools: [weather], confidence: {below: 0.3}"
    proxy = start_proxy(policy=policy("{clarify: {text: Which one}}", when=when))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    assert text_of(accumulated(got.body)) == "Which one"
    assert b"tool_use" not in got.body


def test_counting_is_relayed(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Only messages are translated; token counts are relayed."""
    post_raw(f"{proxy.base_url}/messages/count_tokens", asked())
    assert upstream.last.path == "/messages/count_tokens"


def test_interleaved_calls_are_put_in_order() -> None:
    """Alternating deltas of parallel calls are sent call by call, with the finish after them."""

    def chunk(*calls: tuple[int, str], reason: str | None = None, **more: Any) -> Json:
        listed = [{"index": index, "function": {"arguments": text}} for index, text in calls]
        delta = {"tool_calls": listed} if listed else {}
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}

    order = _CallsInOrder()
    parts = [
        chunk((0, "a"), (1, "x")),
        chunk((0, "b")),
        chunk((1, "y"), (0, "c"), reason="tool_calls", usage={"total_tokens": 1}),
    ]
    pieces = [piece for part in parts for piece in order.take(part)]
    calls = [piece["choices"][0]["delta"].get("tool_calls", [None])[0] for piece in pieces]
    assert [call and call["function"]["arguments"] for call in calls] == [*"abcxy", None]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [*[None] * 5, "tool_calls"]
    assert pieces[-1]["usage"] == {"total_tokens": 1}


# Odd answers


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with listening() as listener:
        yield listener


def one_choice(message: Any, kind: str = "message") -> bytes:
    choice = {"index": 0, kind: message, "finish_reason": "stop"}
    return json.dumps({"id": "1", "created": 1, "model": "m", "choices": [choice]}).encode()


async def replied(listener: Listener, provider: str = "openai", **fields: Any) -> bytes:
    """Return what a client of Anthropic's API gets for the listener's answer; raise ProxyError."""
    upstream = LiteLLMUpstream(
        provider, listener.base_url, "k", via="litellm", is_exact=provider == "openai"
    )
    async with opened(upstream):
        sent = UpstreamRequest("POST", "/messages", body=json.dumps(asked(**fields)).encode())
        reply = await upstream.send(sent)
        assert reply.status == 200
        return await reply.read()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_refusal_is_text(listener: Listener, is_stream: bool) -> None:
    """A refusal becomes the text of a message that is marked as one."""
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    listener.body = one_choice(refusal)
    if is_stream:
        listener.headers["content-type"] = "text/event-stream"
        listener.body = b"data: %b\n\ndata: [DONE]\n\n" % one_choice(refusal, "delta")
    body = await replied(listener, stream=is_stream)
    message = accumulated(body) if is_stream else json.loads(body)
    assert text_of(message) == "I will not."
    assert message["stop_reason"] == "refusal"


@pytest.mark.parametrize("provider", ["openai", "groq"])
async def test_what_has_no_place_in_a_message_does_no_harm(
    listener: Listener, provider: str
) -> None:
    """Odd or missing members without a place in Anthropic's messages do not stop the answer."""
    odd = {"role": "assistant", "content": "Hi", "annotations": [{"type": "x"}], "audio": 1}
    listener.body = one_choice(odd)
    assert text_of(json.loads(await replied(listener, provider))) == "Hi"


@pytest.mark.parametrize("message", [None, {"content": {"a": 1}}, {"tool_calls": [1]}])
async def test_an_unreadable_answer_is_broken(listener: Listener, message: Any) -> None:
    """A completion without a valid message is an error of the proxy's."""
    listener.body = one_choice(message)
    with pytest.raises(UpstreamBrokenError, match="cannot be translated"):
        await replied(listener)


# To an upstream that speaks Anthropic's format


def chat(text: str = "p=0.7", model: str = "ok", **fields: Any) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


@pytest.fixture
def anthropics(start_proxy: StartProxy, messages_upstream: MessagesUpstream) -> LiveProxy:
    messages_upstream.forget()
    base_url = messages_upstream.base_url
    return start_proxy(upstream={"speaks": "anthropic", "base_url": base_url})


@pytest.mark.parametrize("is_stream", [False, True])
def test_chat_is_translated(
    anthropics: LiveProxy, messages_upstream: MessagesUpstream, is_stream: bool
) -> None:
    """A client of OpenAI's API gets a completion, with its key in Anthropic's field."""
    got = post_raw(f"{anthropics.base_url}/chat/completions", chat(stream=is_stream))
    assert got.status == 200
    member = members_in(got.body)[0] if is_stream else json.loads(got.body)["pinocchio"]
    assert member["confidence"] == 0.7
    sent = messages_upstream.last
    assert (sent.path, sent.header("x-api-key")) == ("/messages", "sk-client")
    assert sent.header("anthropic-version") == "2023-06-01"


def test_the_official_client_streams_from_anthropic(anthropics: LiveProxy) -> None:
    """OpenAI's client reads the translated stream, calls included."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    with anthropics.openai.chat.completions.stream(**chat("p=0.7", "tools", tools=tools)) as stream:
        completion = stream.get_final_completion()
    [call] = completion.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments)["city"] == "p=0.7"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_escalation_crosses_formats(
    start_proxy: StartProxy,
    upstream: FaultyUpstream,
    messages_upstream: MessagesUpstream,
    is_stream: bool,
) -> None:
    """A message can be escalated to a model of an upstream with the other format."""
    proxy = start_proxy(
        policy=policy("{escalate: {to: say strong p=0.8, keep: best}}"),
        upstreams={
            "claude": {"speaks": "anthropic", "base_url": messages_upstream.base_url},
            "openai": {"base_url": upstream.base_url},
        },
        models=(
            {"match": "say *", "upstream": "openai"},
            {"match": "*", "upstream": "claude"},
        ),
    )
    got = ask(proxy, asked("weak p=0.1", stream=is_stream))
    message = message_of(got, is_stream)
    assert message["content"] == [{"type": "text", "text": "strong p=0.8"}]
    assert member_in(got, is_stream)["escalated_from"] == "ok"
    assert upstream.last.path == "/chat/completions"
