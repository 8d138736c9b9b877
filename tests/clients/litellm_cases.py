"""Cases of LiteLLM's SDK on chat completions, Responses and Messages."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import litellm
import pytest
from pydantic import BaseModel

from tests.clients.proxied import (
    KEY,
    MESSAGES,
    ORIGIN,
    PROXY,
    RESULT,
    SENTENCE,
    TIMEOUT_S,
    WEATHER_SCHEMA,
    check_cancelling,
    check_member,
    named,
    tries,
    was_left,
)

litellm.suppress_debug_info = True
surfaces = pytest.mark.parametrize("surface", ["chat", "messages"])
WEATHER = {"name": "get_weather", "parameters": WEATHER_SCHEMA}
ERRORS = {
    400: litellm.BadRequestError,
    401: litellm.AuthenticationError,
    404: litellm.NotFoundError,
    422: litellm.BadRequestError,  # litellm decides by the text "invalid_request_error" in a body
    429: litellm.RateLimitError,
    500: litellm.InternalServerError,
}
WORDS = {400: "malformed", 401: "key", 404: "model", 422: "processed", 429: "many", 500: "broken"}


class City(BaseModel):
    name: str
    inhabitants: int


def request_for(surface: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return the arguments; litellm uses the format of the prefix, whatever they look like."""
    is_anthropic = surface == "messages"
    where = {"model": f"anthropic/{name}" if is_anthropic else f"openai/{name}"}
    where["api_base"] = ORIGIN if is_anthropic else PROXY
    common = {"api_key": KEY, "messages": MESSAGES, "max_retries": 0, "timeout": 20}
    if name.startswith(("tools", "parallel", "held-tools")):
        common["tools"] = [{"type": "function", "function": WEATHER}]
    return {**where, **common, **fields}


def create(surface: str, behaviour: str, **fields: Any) -> Any:
    return litellm.completion(**request_for(surface, named(behaviour), **fields))


def arguments_of(message: Any) -> list[Any]:
    return [json.loads(call.function.arguments) for call in message.tool_calls]


@surfaces
def test_text(surface: str) -> None:
    """A completion has upstream's text and usage."""
    reply = create(surface, "text")
    assert reply.choices[0].message.content == SENTENCE
    assert reply.usage.total_tokens > 0


def test_responses() -> None:
    """`litellm.responses` gives a response, whole or as upstream's typed events."""
    asking = {"model": f"openai/{named('text')}", "api_base": PROXY, "api_key": KEY, "input": "x"}
    assert litellm.responses(**asking).output[0].content[0].text == SENTENCE
    kinds = [event.type for event in litellm.responses(**asking, stream=True)]
    assert [kinds[0], kinds[-1]] == ["response.created", "response.completed"]
    assert "response.output_text.delta" in kinds


@surfaces
def test_stream(surface: str) -> None:
    """A stream gives the text in pieces."""
    chunks = create(surface, "text", stream=True)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert len([piece for piece in pieces if piece]) == 2
    assert "".join(piece or "" for piece in pieces) == SENTENCE


@surfaces
def test_tools(surface: str) -> None:
    """A tool is called, and its result is answered in a second turn."""
    asking = request_for(surface, named("tools"))
    message = litellm.completion(**asking).choices[0].message
    assert arguments_of(message) == [{"city": "Paris"}]
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": RESULT}
    asking["messages"] = [*MESSAGES, message, result]
    assert litellm.completion(**asking).choices[0].message.content == SENTENCE


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_parallel_tools(surface: str, is_stream: bool) -> None:
    """Two calls in one reply arrive whole and in order."""
    reply = create(surface, "parallel", stream=is_stream)
    if is_stream:
        reply = litellm.stream_chunk_builder(list(reply))
    assert arguments_of(reply.choices[0].message) == [{"city": "Paris"}, {"city": "Rome"}]


def test_structured_output() -> None:
    """A pydantic model as `response_format` is sent as a schema."""
    reply = create("chat", "text", response_format=City)
    found = City.model_validate_json(reply.choices[0].message.content)
    assert found == City(name="Rome", inhabitants=2_755_309)


@surfaces
@pytest.mark.parametrize("status", ERRORS)
def test_typed_errors(surface: str, status: int) -> None:
    """Every error of upstream's has litellm's class for it, and upstream's message."""
    with pytest.raises(ERRORS[status], match=WORDS[status]):
        create(surface, f"status-{status}")


@surfaces
def test_retries(surface: str) -> None:
    """litellm tries as often as it is set to, and ends with the reply of the last try."""
    name = named("flaky-500")
    reply = litellm.completion(**request_for(surface, name, num_retries=2))
    assert reply.choices[0].message.content == SENTENCE
    assert tries(name) == 3


@surfaces
def test_a_stream_that_fails(surface: str) -> None:
    """A stream that breaks off never looks whole."""
    with pytest.raises(Exception, match=r"broke off|peer closed|onnection"):
        list(create(surface, "cut", stream=True))


@surfaces
def test_timeout(surface: str) -> None:
    """A client that times out raises an error, and its call upstream is closed."""
    name = named("slow")
    with pytest.raises(litellm.Timeout):
        litellm.completion(**request_for(surface, name, timeout=TIMEOUT_S))
    assert was_left(name)


@surfaces
def test_cancelling(surface: str) -> None:
    """Cancelling the task that waits ends the call upstream."""
    name = named("slow")
    check_cancelling(name, litellm.acompletion(**request_for(surface, name)))


def test_leaving_a_stream() -> None:
    """Closing a stream before its end closes upstream's.

    For `anthropic/...`, litellm's own `aclose` leaves the connection open, also without a proxy.
    """
    name = named("endless")

    async def leave() -> None:
        stream: Any = await litellm.acompletion(**request_for("chat", name), stream=True)
        await anext(stream)
        await stream.aclose()
        assert await asyncio.to_thread(was_left, name)

    asyncio.run(leave())


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_tool_call_is_an_error_and_paid_for_once(is_stream: bool) -> None:
    """A held reply is an error that says so; litellm gives a 422 of this type another class."""
    name = named("held-tools")
    with pytest.raises(litellm.BadRequestError, match="held for review"):
        list(litellm.completion(**request_for("chat", name, stream=is_stream, max_retries=2)))
    assert tries(name) == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_placeholder(is_stream: bool) -> None:
    """A placeholder is a completion that was filtered."""
    reply = create("chat", "held-placeholder", stream=is_stream)
    if is_stream:
        reply = litellm.stream_chunk_builder(list(reply))
    assert "held for review" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "content_filter"


def test_confidence() -> None:
    """The member is a field of the completion, and the header is among its hidden fields."""
    reply = create("chat", "text")
    check_member("chat", reply)
    headers = reply._hidden_params["additional_headers"]
    assert headers["llm_provider-x-pinocchio-confidence"] == "0.9200"
