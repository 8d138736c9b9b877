"""OpenAI's own Python client works through the proxy if only `base_url` is changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from proxy.upstreams.demo.answers import rows
from proxy.upstreams.demo.demo import questions
from tests.running.live_proxy import LiveProxy, question
from tests.servers.faulty_upstream import FaultyUpstream

SOON_S = 2
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "number": {"type": "integer"}},
            "required": ["city", "number"],
            "additionalProperties": False,
        },
    },
}


class City(BaseModel):
    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def client(proxy: LiveProxy) -> Iterator[OpenAI]:
    with OpenAI(base_url=proxy.base_url, api_key="sk-client", max_retries=0, timeout=20) as client:
        yield client


def member_of(completion: Any) -> dict[str, Any]:
    member: dict[str, Any] = completion.model_extra["pinocchio"]
    return member


# Completions


def test_a_completion(client: OpenAI) -> None:
    """A completion is what upstream sent, and the confidence is in its extra fields."""
    completion = client.chat.completions.create(**question("Paris p=0.9"))
    assert isinstance(completion, ChatCompletion)
    assert completion.choices[0].message.content == "Paris p=0.9"
    assert completion.usage is not None
    assert completion._request_id == "req_upstream_1"
    assert member_of(completion)["confidence"] == 0.9
    assert member_of(completion)["choices"][0]["index"] == 0


def test_several_choices(client: OpenAI) -> None:
    """With n = 3 all choices arrive, each with its confidence."""
    completion = client.chat.completions.create(**question("p=0.1|p=0.2|p=0.3", n=3))
    assert [choice.message.content for choice in completion.choices] == ["p=0.1", "p=0.2", "p=0.3"]
    assert [c["confidence"] for c in member_of(completion)["choices"]] == [0.1, 0.2, 0.3]


def test_unknown_fields_reach_the_application(client: OpenAI) -> None:
    """Fields of a vendor arrive in `model_extra` beside ours."""
    completion = client.chat.completions.create(**question("x", "vendor"))
    assert completion.choices[0].message.content == "café p=0.42 🍋"
    extra = completion.model_extra or {}
    assert extra["x_groq"] == {"id": "r", "t": -0.0}
    assert member_of(completion)["confidence"] == 0.42


def test_headers_reach_the_application(client: OpenAI) -> None:
    """The raw response has our header fields."""
    raw = client.chat.completions.with_raw_response.create(**question("p=0.9"))
    assert raw.headers["x-pinocchio-confidence"] == "0.9000"
    assert raw.parse().choices[0].message.content == "p=0.9"


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_encoded_bodies(client: OpenAI, encoding: str) -> None:
    """The client reads the completion whatever encoding upstream answers in."""
    completion = client.chat.completions.create(**question("p=0.9", encoding))
    assert completion.choices[0].message.content == "p=0.9"
    assert member_of(completion)["confidence"] == 0.9


def test_the_demo_upstream(client: OpenAI) -> None:
    """The demo answers, streamed or not, and its answers are scored."""
    text = next(text for text, found in questions().items() if found[0].content)
    completion = client.chat.completions.create(**question(text, "demo"))
    streamed = client.chat.completions.create(**question(text, "demo"), stream=True)
    text_streamed = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert text_streamed == completion.choices[0].message.content == questions()[text][0].content
    assert member_of(completion)["status"] == "scored"


# Streams


def test_a_stream(client: OpenAI) -> None:
    """Iterating gives upstream's chunks; the one with the finish_reason has the confidence."""
    stream = client.chat.completions.create(
        **question("Paris p=0.9"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Paris p=0.9"
    assert chunks[-1].usage is not None
    [finish] = [c for c in chunks if "pinocchio" in (c.model_extra or {})]
    assert finish.choices[0].finish_reason == "stop"
    assert member_of(finish)["confidence"] == 0.9


@pytest.mark.parametrize("model", ["ok", "split", "crlf", "no-done", "cut-after-done"])
def test_the_stream_helper(client: OpenAI, model: str) -> None:
    """`chat.completions.stream` puts the same completion together from any framing."""
    with client.chat.completions.stream(**question("Paris p=0.9 ä🍋", model)) as stream:
        kinds = {event.type for event in stream}
        completion = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert completion.choices[0].message.content == "Paris p=0.9 ä🍋"


def test_streaming_responses(client: OpenAI) -> None:
    """`with_streaming_response` gives the headers before the body, and the raw lines."""
    create = client.chat.completions.with_streaming_response.create
    with create(**question("p=0.9"), stream=True) as response:
        assert response.headers["x-pinocchio-confidence-status"] == "pending"
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["pinocchio"]["confidence"] == 0.9


def test_a_broken_stream_raises(client: OpenAI) -> None:
    """If upstream breaks off, the application gets the first chunks and then an exception."""
    stream = client.chat.completions.create(**question("p=0.9", "cut"), stream=True)
    received = [next(stream).choices[0].delta.content for _ in range(2)]
    assert received == ["", "p="]
    with pytest.raises(openai.APIError, match=r"broke off|ended before"):
        next(stream)


def test_upstreams_error_event_raises(client: OpenAI) -> None:
    """An error event in upstream's stream is raised with its message."""
    with pytest.raises(openai.APIError, match="oops") as caught:
        list(client.chat.completions.create(**question("p=0.9", "error-event"), stream=True))
    assert caught.value.code == "boom"


def test_leaving_a_stream_early(client: OpenAI, upstream: FaultyUpstream) -> None:
    """Closing a stream before its end closes upstream's."""
    stream = client.chat.completions.create(**question("p=0.9", "endless"), stream=True)
    next(stream)
    stream.close()
    assert upstream.last.is_cut_off(SOON_S)


# Tools and structured outputs


def test_tool_calls(client: OpenAI) -> None:
    """Parallel tool calls arrive whole."""
    completion = client.chat.completions.create(**question("Paris", "parallel-tools"), tools=[TOOL])
    calls = completion.choices[0].message.tool_calls or []
    arguments = [json.loads(call.function.arguments) for call in calls if call.type == "function"]
    assert arguments == [{"city": "Paris", "number": 0}, {"city": "Paris", "number": 1}]
    assert completion.choices[0].finish_reason == "tool_calls"


def test_streamed_tool_calls(client: OpenAI) -> None:
    """Streamed deltas of tool calls add up to the same calls."""
    fields = question("Paris", "parallel-tools")
    with client.chat.completions.stream(**fields, tools=[TOOL]) as stream:
        completion = stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls or []
    arguments = [json.loads(call.function.arguments) for call in calls]
    assert arguments == [{"city": "Paris", "number": 0}, {"city": "Paris", "number": 1}]


def test_tool_calls_of_the_demo(client: OpenAI) -> None:
    """A canned tool call comes through, and the tool's result is answered in words."""
    row = next(row for row in rows() if row.calls)
    fields = question(row.question, "demo", tools=list(row.tools))
    message = client.chat.completions.create(**fields).choices[0].message
    calls = message.tool_calls or []
    names = [call.function.name for call in calls if call.type == "function"]
    assert names == [call["name"] for call in row.calls]
    result = {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"}
    fields["messages"] += [message.to_dict(), result]
    answer = client.chat.completions.create(**fields).choices[0].message.content
    assert "sunny" in (answer or "")


def test_structured_output(client: OpenAI) -> None:
    """`parse` gives a pydantic model, and the confidence beside it."""
    fields = question('{"name": "Rome", "inhabitants": 2755309}')
    completion = client.chat.completions.parse(**fields, response_format=City)
    assert completion.choices[0].message.parsed == City(name="Rome", inhabitants=2_755_309)
    assert member_of(completion)["status"] == "scored"


def test_streamed_structured_output(client: OpenAI) -> None:
    """A streamed structured output is parsed at its end."""
    fields = question('{"name": "Rome", "inhabitants": 2755309}')
    with client.chat.completions.stream(**fields, response_format=City) as stream:
        completion = stream.get_final_completion()
    assert completion.choices[0].message.parsed == City(name="Rome", inhabitants=2_755_309)


# Errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_errors_have_their_type(
    client: OpenAI, status: int, kind: type[openai.APIStatusError], is_stream: bool
) -> None:
    """Every error of upstream's is raised as the client's own type, with its body and id."""
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**question("x", f"status-{status}"), stream=is_stream)
    assert (caught.value.code, caught.value.param) == ("c", "p")
    assert caught.value.request_id == "req_upstream_1"
    assert caught.value.body == {
        "message": f"upstream says {status}",
        "type": "t",
        "param": "p",
        "code": "c",
        "vendor": 1.0,
    }


def test_rate_limits_are_visible(client: OpenAI) -> None:
    """A RateLimitError has upstream's retry-after and limits."""
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**question("x", "status-429"))
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_our_own_errors_have_their_type(client: OpenAI) -> None:
    """Errors of the proxy's own are raised with their code."""
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(**question("x"), extra_headers={"content-encoding": "lzma"})
    assert bad.value.code == "unsupported_encoding"
    with pytest.raises(openai.InternalServerError) as broken:
        client.chat.completions.create(**question("x", "hang-up"))
    assert (broken.value.status_code, broken.value.code) == (502, "upstream_broke_off")


def test_retries_are_the_clients(client: OpenAI, upstream: FaultyUpstream) -> None:
    """Upstream sees each of the client's tries once, and the proxy adds none."""
    for retries in (0, 2):
        upstream.forget()
        with pytest.raises(openai.InternalServerError):
            client.with_options(max_retries=retries).chat.completions.create(
                **question("x", "status-503")
            )
        counts = [request.header("x-stainless-retry-count") for request in upstream.requests]
        assert counts == [str(number) for number in range(retries + 1)]


def test_a_timeout_of_the_client(client: OpenAI, upstream: FaultyUpstream) -> None:
    """A client that times out raises its own error, and upstream's call ends with it."""
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.2).chat.completions.create(**question("x", "slow"))
    assert upstream.last.is_cut_off(SOON_S)


# Other resources


def test_models(client: OpenAI) -> None:
    """`models.list` has upstream's models unchanged, and none of ours."""
    assert [model.id for model in client.models.list()] == ["ok"]


def test_uploads(client: OpenAI, upstream: FaultyUpstream) -> None:
    """A multipart upload arrives upstream with the file's bytes."""
    content = bytes(range(256)) * 10
    client.audio.transcriptions.with_raw_response.create(
        model="whisper-1", file=("sound.wav", content)
    )
    assert upstream.last.path == "/audio/transcriptions"
    assert content in upstream.last.body
    assert (upstream.last.header("content-type") or "").startswith("multipart/form-data; boundary=")


# The asynchronous client


async def test_the_asynchronous_client(proxy: LiveProxy) -> None:
    """The asynchronous client gets completions and streams, many at a time."""
    async with AsyncOpenAI(base_url=proxy.base_url, api_key="k", max_retries=0) as client:
        create = client.chat.completions.create
        calls = [create(**question(f"p=0.{number}")) for number in range(1, 10)]
        confidences = [
            member_of(completion)["confidence"] for completion in await asyncio.gather(*calls)
        ]
        assert confidences == [number / 10 for number in range(1, 10)]
        stream = await create(**question("Paris p=0.9"), stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Paris p=0.9"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_cancelling_a_call(
    proxy: LiveProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """Cancelling the task that waits for an answer ends the call upstream."""
    async with AsyncOpenAI(base_url=proxy.base_url, api_key="k", max_retries=0) as client:
        fields = question("x", "slow", stream=is_stream)
        call = asyncio.create_task(client.chat.completions.create(**fields))
        request = await asyncio.to_thread(upstream.wait_for_request)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(request.is_cut_off, SOON_S)
