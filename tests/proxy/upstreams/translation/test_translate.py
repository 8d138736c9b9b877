"""litellm translates for upstreams that do not speak OpenAI's format."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.errors import BadRequestError, NotFoundError, UnknownModelError
from proxy.http.pool.pool import Pool
from proxy.http.wire.upstream import UpstreamRequest
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.translation import HELLO, PATH, Json, answer, listening, opened, refused, request
from tests.servers.anthropic_server import KEY, SERVED, VERSION, AnthropicServer, serving

WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
        },
    },
}
CLOCK: Json = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}
CALLS = [
    ("toolu_0", "weather", {"city": "city of call 0", "unit": "unit of call 0"}),
    ("toolu_1", "clock", {}),
]


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def upstream(server: AnthropicServer) -> AsyncIterator[LiteLLMUpstream]:
    async with opened(LiteLLMUpstream("anthropic", server.base_url, KEY)) as upstream:
        yield upstream


async def completed(upstream: LiteLLMUpstream, **fields: Any) -> ChatCompletion:
    body = await answer(await upstream.send(request(**fields)))
    return ChatCompletion.model_validate(body, strict=True)


async def streamed(upstream: LiteLLMUpstream, **fields: Any) -> list[ChatCompletionChunk]:
    """Return the chunks of a stream that ends with [DONE]."""
    reply = await upstream.send(request(stream=True, **fields))
    assert reply.status == 200
    assert (reply.header(b"content-type") or "").startswith("text/event-stream")
    *events, done, nothing = (await reply.read()).split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert {"index", "delta", "finish_reason", "logprobs"} == set(choice)
    return [ChatCompletionChunk.model_validate(chunk, strict=True) for chunk in chunks]


def assembled(chunks: list[ChatCompletionChunk]) -> ChatCompletion:
    """Return the completion that OpenAI's own client assembles from a stream."""
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    return state.get_final_completion()


# Answers


async def test_a_text_is_translated(upstream: LiteLLMUpstream, server: AnthropicServer) -> None:
    """A completion comes back in OpenAI's format, with upstream's model, usage and limits."""
    reply = await upstream.send(request())
    completion = ChatCompletion.model_validate(await answer(reply), strict=True)
    (choice,) = completion.choices
    assert choice.message.content == "System:  User: Hello there"
    assert choice.finish_reason == "stop"
    assert completion.model == "claude-echo" + SERVED
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (25, 15)
    assert reply.header(b"anthropic-ratelimit-requests-remaining") == "999"
    assert server.headers[0]["anthropic-version"] == VERSION


async def test_nothing_empty_is_added(upstream: LiteLLMUpstream) -> None:
    """A choice has only what the answer has, without litellm's empty members."""
    [choice] = (await answer(await upstream.send(request())))["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
    assert set(choice["message"]) == {"role", "content"}


async def test_the_system_prompt_is_not_a_message(
    upstream: LiteLLMUpstream, server: AnthropicServer
) -> None:
    """Anthropic's API gets the system prompt beside the messages, and not among them."""
    system = {"role": "system", "content": "Be brief."}
    completion = await completed(upstream, messages=[system, *HELLO], max_tokens=7, stop=["."])
    assert completion.choices[0].message.content == "System: Be brief. User: Hello there"
    (sent,) = server.requests
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert (sent["max_tokens"], sent["stop_sequences"]) == (7, ["."])


async def test_a_stream_is_translated(upstream: LiteLLMUpstream) -> None:
    """A stream gives the same text as a completion, in more than one chunk and without usage."""
    chunks = await streamed(upstream)
    final = assembled(chunks)
    assert final.choices[0].message.content == "System:  User: Hello there"
    assert final.choices[0].finish_reason == "stop"
    assert len(chunks) > 3
    assert {(chunk.id, chunk.model) for chunk in chunks} == {(chunks[0].id, "claude-echo" + SERVED)}
    assert all("usage" not in chunk.model_fields_set for chunk in chunks)


async def test_usage_is_sent_on_request(upstream: LiteLLMUpstream) -> None:
    """With include_usage the last chunk has the usage and no choice."""
    *chunks, last = await streamed(upstream, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (25, 15)
    assert last.model == "claude-echo" + SERVED
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_a_stream_begins_before_it_ends(upstream: LiteLLMUpstream) -> None:
    """The first chunk is passed on while upstream is still writing."""
    reply = await upstream.send(request(model="claude-slow", stream=True))
    first = json.loads((await anext(reply.chunks)).removeprefix(b"data: "))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "System:"}
    await reply.aclose()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_tool_calls_are_translated(upstream: LiteLLMUpstream, is_stream: bool) -> None:
    """Tool calls arrive whole and in order, with id, name and arguments."""
    tools = [WEATHER, CLOCK]
    if is_stream:
        completion: Any = assembled(await streamed(upstream, tools=tools))
    else:
        completion = await completed(upstream, tools=tools)
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look that up."
    calls = [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls or []
    ]
    assert calls == CALLS


async def test_tool_calls_of_a_completion_have_no_index(upstream: LiteLLMUpstream) -> None:
    """A completion's tool calls have no index, which belongs to streams."""
    body = await answer(await upstream.send(request(tools=[WEATHER, CLOCK])))
    calls = body["choices"][0]["message"]["tool_calls"]
    assert [set(call) for call in calls] == [{"id", "type", "function"}] * 2


async def test_tool_results_go_upstream(upstream: LiteLLMUpstream) -> None:
    """A conversation with tool calls and their results is accepted by Anthropic's API."""
    calls = [
        {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for id, name, arguments in CALLS
    ]
    results = [
        {"role": "tool", "tool_call_id": id, "content": f"{name}: 9"} for id, name, _ in CALLS
    ]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    messages = [*HELLO, asked, *results]
    completion = await completed(upstream, messages=messages, tools=[WEATHER, CLOCK])
    assert completion.choices[0].message.content == "System:  User: weather: 9 clock: 9"


async def test_no_tool_is_called_against_the_clients_will(upstream: LiteLLMUpstream) -> None:
    """`tool_choice` is translated, so that no tool is called against the client's will."""
    completion = await completed(upstream, tools=[WEATHER], tool_choice="none")
    assert completion.choices[0].message.tool_calls is None


async def test_thinking_is_kept(upstream: LiteLLMUpstream) -> None:
    """A thinking block is passed on with its signature, which a client must send back."""
    body = await answer(await upstream.send(request(model="claude-thinks")))
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == "Let me see."
    assert message["thinking_blocks"][0]["signature"]
    assert message["content"] == "System:  User: Hello there"


async def test_prefix_is_optional(upstream: LiteLLMUpstream, server: AnthropicServer) -> None:
    """With one provider for all names, a name with its prefix means the same as one without."""
    await completed(upstream, model="anthropic/claude-echo")
    assert server.requests[0]["model"] == "claude-echo"


async def test_the_prefix_finds_the_provider(server: AnthropicServer) -> None:
    """With `auto` the provider is the prefix of the model's name."""
    async with opened(LiteLLMUpstream("auto", server.base_url, KEY)) as upstream:
        await completed(upstream, model="anthropic/claude-echo")
    assert server.requests[0]["model"] == "claude-echo"


# Fields that a client may not use


async def test_fields_that_steer_litellm_are_left_out(
    upstream: LiteLLMUpstream, server: AnthropicServer
) -> None:
    """No field of a body redirects, mocks, retries, logs or adds headers, and none is forwarded."""
    steering = {
        "api_base": "http://127.0.0.1:9",
        "base_url": "http://127.0.0.1:9",
        "api_key": "stolen",
        "custom_llm_provider": "openai",
        "mock_response": "made up",
        "fallbacks": ["openai/gpt-5"],
        "context_window_fallback_dict": {"claude-echo": "gpt-5"},
        "model_list": [{"model_name": "x"}],
        "metadata": {"model_group": "x"},
        "litellm_metadata": {"a": "b"},
        "extra_headers": {"x-api-key": "stolen"},
        "headers": {"x-api-key": "stolen"},
        "caching": True,
        "cache": {"no-cache": True},
        "timeout": 0.001,
        "num_retries": 5,
        "max_retries": 5,
        "logger_fn": "print",
        "guardrails": ["x"],
        "prompt_id": "x",
        "no-log": True,
        "deployment_id": "x",
        "organization": "x",
    }
    plain = request()
    body = json.dumps({**json.loads(plain.body), **steering}).encode()
    completion = json.loads(await (await upstream.send(replace(plain, body=body))).read())
    assert completion["choices"][0]["message"]["content"] == "System:  User: Hello there"
    (sent,) = server.requests
    assert set(sent) == {"model", "messages", "max_tokens"}
    assert server.headers[0]["x-api-key"] == KEY


@pytest.mark.parametrize(
    "name",
    ["aws_bedrock_runtime_endpoint", "callbacks", "extra_body", "mock_tool_calls", "min_p"],
)
async def test_unknown_fields_are_refused(
    upstream: LiteLLMUpstream, server: AnthropicServer, name: str
) -> None:
    """A field that is neither OpenAI's nor litellm's is refused."""
    fields: Json = {name: "x"}
    error = await refused(upstream, request(**fields))
    assert (error["status"], error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert server.requests == []


async def test_the_user_is_named(upstream: LiteLLMUpstream, server: AnthropicServer) -> None:
    """`user` reaches an upstream that has a field for it."""
    await completed(upstream, user="u-1")
    assert server.requests[0]["metadata"] == {"user_id": "u-1"}


async def test_the_user_is_left_out_where_there_is_no_place() -> None:
    """A limit: `user`, which changes no answer, is dropped where upstream has no field for it."""
    part = {"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    async with listening() as listener:
        listener.body = json.dumps({"candidates": [part], "usageMetadata": usage}).encode()
        async with opened(LiteLLMUpstream("gemini", listener.base_url, "key")) as upstream:
            await answer(await upstream.send(request(user="u-1")))
    assert b"u-1" not in listener.requests[0][2]


@pytest.mark.parametrize("fields", [{"seed": 1}, {"logprobs": True}, {"n": 2}])
async def test_what_the_provider_lacks_is_refused(
    upstream: LiteLLMUpstream, server: AnthropicServer, fields: Json
) -> None:
    """A parameter that cannot be translated is refused by name, without litellm's advice."""
    (name,) = fields
    error = (await answer(await upstream.send(request(**fields)), 400))["error"]
    assert error["code"] == "unsupported_parameter"
    assert f"'{name}'" in error["message"]
    assert "litellm" not in error["message"]
    assert server.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": "Hello"},
        {"messages": ["Hello"]},
        {"messages": []},
        {"max_tokens": "many"},
        {"stream": "yes"},
        {"stream_options": 1},
        {"tools": {}},
    ],
)
async def test_wrong_types_are_the_clients_fault(upstream: LiteLLMUpstream, fields: Json) -> None:
    """A malformed request is a 400 that names the field, and no failure of upstream's."""
    error = await refused(upstream, request(**fields))
    assert (error["kind"], error["param"]) == (BadRequestError, next(iter(fields)))


async def test_null_means_absent(upstream: LiteLLMUpstream, server: AnthropicServer) -> None:
    """A field that is null counts as absent, as in OpenAI's API."""
    await completed(upstream, seed=None, min_p=None, temperature=None)
    assert set(server.requests[0]) == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/embeddings"), ("POST", "/responses"), ("GET", "/models"), ("GET", PATH)],
)
async def test_only_chat_completions_are_translated(
    upstream: LiteLLMUpstream, method: str, path: str
) -> None:
    """Any path other than chat completions is a 404 that says so."""
    body = json.dumps({"model": "claude-echo"}).encode() if method == "POST" else b""
    error = await refused(upstream, UpstreamRequest(method, path, body=body))
    assert (error["kind"], error["code"]) == (NotFoundError, "unknown_url")
    assert path in error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"messages":[]}', b'{"model":1}', '{"model":"x"}'.encode("utf-16")]
)
async def test_a_body_without_a_model_is_refused(upstream: LiteLLMUpstream, body: bytes) -> None:
    """A request without a model's name in UTF-8 has no upstream."""
    error = await refused(upstream, UpstreamRequest("POST", PATH, body=body))
    assert error["kind"] is BadRequestError


@pytest.mark.parametrize(
    "model",
    [
        "nobody/knows-this",
        "org/model:free",
        "unknown",
        "github_copilot/gpt-5",  # would begin a login in the terminal
        "huggingface/http://127.0.0.1:9/",  # would go there
    ],
)
async def test_models_of_no_provider_are_unknown(
    model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that leads to no provider is a 404, and nothing is printed."""
    async with opened(LiteLLMUpstream("auto")) as upstream:
        error = await refused(upstream, request(model=model))
    assert (error["kind"], error["status"], error["param"]) == (UnknownModelError, 404, "model")
    assert capfd.readouterr() == ("", "")


# Keys


@pytest.mark.parametrize(
    ("configured", "environment", "client", "sent"),
    [
        (KEY, "from the environment", "from the client", KEY),
        ("", KEY, "from the client", KEY),
        ("", None, KEY, KEY),
    ],
)
async def test_the_key_is_the_first_there_is(
    server: AnthropicServer,
    monkeypatch: pytest.MonkeyPatch,
    configured: str,
    environment: str | None,
    client: str,
    sent: str,
) -> None:
    """The key is the configured one, else the provider's of the environment, else the client's."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    if environment:
        monkeypatch.setenv("ANTHROPIC_API_KEY", environment)
    async with opened(LiteLLMUpstream("anthropic", server.base_url, configured)) as upstream:
        await answer(
            await upstream.send(request([(b"authorization", f"Bearer {client}".encode())]))
        )
    assert server.headers[0]["x-api-key"] == sent


async def test_no_key_is_a_401(server: AnthropicServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any key the client gets 401 with what litellm says is missing."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with opened(LiteLLMUpstream("anthropic", server.base_url)) as upstream:
        error = (await answer(await upstream.send(request()), 401))["error"]
    assert error["type"] == "authentication_error"
    assert server.requests == []


# Clients that leave


async def test_closing_a_stream_closes_the_connection(
    upstream: LiteLLMUpstream, server: AnthropicServer
) -> None:
    """When a client leaves within a stream, upstream's connection is closed."""
    reply = await upstream.send(request(model="claude-slow", stream=True))
    await anext(reply.chunks)
    assert not server.has_lost_client.is_set()
    await reply.aclose()
    await asyncio.wait_for(server.has_lost_client.wait(), 2)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_cancelling_closes_the_connection(
    upstream: LiteLLMUpstream, server: AnthropicServer, is_stream: bool
) -> None:
    """When a client leaves before its answer or the next chunk, upstream's connection is closed."""

    async def read() -> None:
        reply = await upstream.send(request(model="claude-slow", stream=is_stream))
        await reply.read()

    task = asyncio.create_task(read())
    await server.has_request.wait()
    await asyncio.sleep(0.1)  # until the answer, or the next chunk, is waited for
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.has_lost_client.wait(), 2)


# litellm itself


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )


def test_importing_the_module_does_not_import_litellm() -> None:
    """Importing the module leaves litellm, which takes seconds, to the first request."""
    code = (
        "import sys, proxy.upstreams.translation.litellm_upstream; "
        "print('litellm' in sys.modules, 'openai' in sys.modules)"
    )
    assert run(code).stdout.split() == ["False", "False"]


@pytest.mark.slow  # an import of its own; test_app.py says that none loads it unasked
def test_loading_litellm_is_silent_and_offline(tmp_path: Path) -> None:
    """Importing litellm prints nothing, opens no connection and reads no
    `.env`. The first request does it in a thread, so that other requests go on.
    """
    (tmp_path / ".env").write_text("FROM_DOTENV=1")
    code = f"""
import asyncio, logging, os, sys
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from proxy.http.wire.upstream import UpstreamRequest
os.chdir({str(tmp_path)!r})
def audit(event, arguments):
    assert event not in ("socket.connect", "socket.getaddrinfo"), arguments
sys.addaudithook(audit)
async def main():
    sent = UpstreamRequest("POST", "/chat/completions", body=b'{{"model": "unknown"}}')
    task = asyncio.create_task(LiteLLMUpstream("auto").send(sent))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 10
    task.exception()
asyncio.run(main())
assert "litellm" in sys.modules
assert "FROM_DOTENV" not in os.environ
for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy.stdout"):
    logging.getLogger(name).error("with a message in it")
"""
    done = run(code)
    assert (done.stdout, done.stderr) == ("", "")


def test_it_is_an_upstream() -> None:
    """LiteLLMUpstream has the methods of a Pool, with the same signatures."""
    for name in ("send", "aclose"):
        mine, theirs = getattr(LiteLLMUpstream, name), getattr(Pool, name)
        assert inspect.signature(mine) == inspect.signature(theirs)
