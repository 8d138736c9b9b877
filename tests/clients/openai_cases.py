"""Cases of OpenAI's own client, 2.x and 3.x, on chat completions and Responses."""

from __future__ import annotations

import functools
import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.clients.proxied import (
    CODES,
    KEY,
    MESSAGES,
    PROXY,
    QUESTION,
    RESULT,
    SCORED_SURFACES,
    SENTENCE,
    TIMEOUT_S,
    UPSTREAM,
    WEATHER_SCHEMA,
    as_sent,
    check_cancelling,
    check_label,
    check_member,
    check_streamed_confidence,
    named,
    read_until_failure,
    seen,
    tries,
    was_left,
)

surfaces = pytest.mark.parametrize("surface", ["chat", "responses"])
scored = pytest.mark.parametrize("surface", sorted({"chat", "responses"} & SCORED_SURFACES))
OPTIONS: dict[str, Any] = {"base_url": PROXY, "api_key": KEY, "timeout": 20}
WEATHER = {"name": "get_weather", "strict": True, "parameters": WEATHER_SCHEMA}
TOOLS: dict[str, list[Any]] = {
    "chat": [{"type": "function", "function": WEATHER}],
    "responses": [{"type": "function", **WEATHER}],
}
ERRORS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
}


class City(BaseModel):
    name: str
    inhabitants: int


ROME = City(name="Rome", inhabitants=2_755_309)


@functools.cache  # creating one takes longer than most tests: it reads all certificates
def only_client() -> OpenAI:
    return OpenAI(**OPTIONS)


def client(max_retries: int = 0, **options: Any) -> OpenAI:
    return only_client().with_options(max_retries=max_retries, **options)


def resource(surface: str, client: Any) -> Any:
    return client.chat.completions if surface == "chat" else client.responses


def request_for(surface: str, behaviour: str, **fields: Any) -> dict[str, Any]:
    words = {"messages": MESSAGES} if surface == "chat" else {"input": QUESTION}
    tools = {"tools": TOOLS[surface]} if behaviour in ("tools", "parallel", "held-tools") else {}
    return {"model": named(behaviour), **words, **tools, **fields}


def create(surface: str, behaviour: str, **fields: Any) -> Any:
    return resource(surface, client()).create(**request_for(surface, behaviour, **fields))


def text_of(surface: str, reply: Any) -> str:
    return str(reply.choices[0].message.content if surface == "chat" else reply.output_text)


def deltas_of(surface: str, parts: list[Any]) -> list[str]:
    """Return the texts that an application would show while it waits."""
    if surface == "chat":
        texts = [part.choices[0].delta.content for part in parts if part.choices]
        return [text for text in texts if text]
    return [part.delta for part in parts if part.type == "response.output_text.delta"]


def calls_of(surface: str, reply: Any) -> list[tuple[str, Any]]:
    """Return the names and arguments of the tool calls."""
    if surface == "chat":
        calls = [call.function for call in reply.choices[0].message.tool_calls]
    else:
        calls = [item for item in reply.output if item.type == "function_call"]
    return [(call.name, json.loads(call.arguments)) for call in calls]


def helper(surface: str, behaviour: str, **fields: Any) -> tuple[list[str], Any]:
    """Return the kinds of events of the client's own stream helper, and the reply it assembles."""
    with resource(surface, client()).stream(**request_for(surface, behaviour, **fields)) as stream:
        kinds = [event.type for event in stream]
        whole = "get_final_completion" if surface == "chat" else "get_final_response"
        return kinds, getattr(stream, whole)()


# Text and streams


@surfaces
def test_text(surface: str) -> None:
    """A reply is the client's own object, with upstream's text, usage and request id."""
    reply = create(surface, "text")
    assert text_of(surface, reply) == SENTENCE
    assert reply.usage.total_tokens > 0
    assert reply._request_id == "req_upstream_1"


@surfaces
def test_upstream_gets_what_it_gets_without_the_proxy(surface: str) -> None:
    """The client's headers and body arrive upstream unchanged."""
    asking = request_for(
        surface, "parallel", metadata={"a": "caf\u00e9"}, extra_body={"made_up": 1.5}
    )
    resource(surface, client()).create(**asking)
    resource(surface, client(base_url=f"{UPSTREAM}/v1")).create(**asking)
    via, direct = map(as_sent, seen(asking["model"]))
    assert via == direct


@surfaces
def test_stream(surface: str) -> None:
    """Iterating gives the text in upstream's pieces."""
    parts = list(create(surface, "text", stream=True))
    deltas = deltas_of(surface, parts)
    assert len(deltas) == 2
    assert "".join(deltas) == SENTENCE


def test_every_event_of_a_responses_stream_arrives() -> None:
    """The typed events arrive in upstream's order, without a gap in their numbers."""
    events = list(create("responses", "thinking", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert all(type(event).__name__.endswith("Event") for event in events)


@surfaces
def test_stream_helper(surface: str) -> None:
    """The client's stream helper puts the same reply together."""
    kinds, reply = helper(surface, "text")
    assert text_of(surface, reply) == SENTENCE
    assert len(kinds) > 3


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_reasoning(surface: str, is_stream: bool) -> None:
    """A model's reasoning arrives beside its answer."""
    whole = helper(surface, "thinking")[1] if is_stream else create(surface, "thinking")
    if surface == "chat":
        thought = whole.choices[0].message.reasoning_content
    else:
        thought = whole.output[0].summary[0].text
    assert thought == "Where is the Eiffel tower?"


# Tools and structured outputs


@surfaces
def test_tools(surface: str) -> None:
    """A tool is called, and its result is answered in a second turn."""
    first = request_for(surface, "tools")
    api = resource(surface, client())
    reply = api.create(**first)
    assert calls_of(surface, reply) == [("get_weather", {"city": "Paris"})]
    if surface == "chat":
        message = reply.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": RESULT}
        first["messages"] = [*MESSAGES, message, result]
    else:
        call_id = reply.output[0].call_id
        result = {"type": "function_call_output", "call_id": call_id, "output": RESULT}
        first["input"] = [*MESSAGES, *reply.output, result]
    assert text_of(surface, api.create(**first)) == SENTENCE


@surfaces
def test_parallel_tools(surface: str) -> None:
    """Two calls in one reply arrive whole and in order."""
    calls = calls_of(surface, create(surface, "parallel"))
    assert calls == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})]


@surfaces
def test_streamed_tools(surface: str) -> None:
    """Streamed arguments add up to the same calls."""
    calls = calls_of(surface, helper(surface, "parallel")[1])
    assert calls == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})]


@surfaces
def test_structured_output(surface: str) -> None:
    """`parse` sends the schema and gives a pydantic model."""
    key = "response_format" if surface == "chat" else "text_format"
    reply = resource(surface, client()).parse(**request_for(surface, "text"), **{key: City})
    parsed = reply.choices[0].message.parsed if surface == "chat" else reply.output_parsed
    assert parsed == ROME


@surfaces
def test_streamed_structured_output(surface: str) -> None:
    """A streamed structured output is parsed at its end."""
    key = "response_format" if surface == "chat" else "text_format"
    reply = helper(surface, "text", **{key: City})[1]
    parsed = reply.choices[0].message.parsed if surface == "chat" else reply.output_parsed
    assert parsed == ROME


# Errors and retries


@surfaces
@pytest.mark.parametrize("status", ERRORS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_typed_errors(surface: str, status: int, is_stream: bool) -> None:
    """Every error of upstream's has its class, its body and its request id."""
    with pytest.raises(ERRORS[status]) as caught:
        create(surface, f"status-{status}", stream=is_stream)
    assert (caught.value.code, caught.value.param) == (CODES.get(status, "c"), "p")
    assert caught.value.body["vendor"] == 1.0
    assert caught.value.request_id == "req_upstream_1"
    assert "x-pinocchio-error" not in caught.value.response.headers


@surfaces
@pytest.mark.parametrize("status", [429, 500])
def test_retries(surface: str, status: int) -> None:
    """The client tries as often as it is set to, and ends with the reply of the last try."""
    model = request_for(surface, f"status-{status}")
    with pytest.raises(ERRORS[status]):
        resource(surface, client(max_retries=1)).create(**model)
    assert tries(model["model"]) == 2
    model = request_for(surface, f"flaky-{status}")
    reply = resource(surface, client(max_retries=2)).create(**model)
    assert text_of(surface, reply) == SENTENCE
    assert tries(model["model"]) == 3


@surfaces
def test_a_bad_request_is_not_retried(surface: str) -> None:
    """A request that cannot succeed is sent once."""
    model = request_for(surface, "status-400")
    with pytest.raises(openai.BadRequestError):
        resource(surface, client(max_retries=2)).create(**model)
    assert tries(model["model"]) == 1


@surfaces
@pytest.mark.parametrize("behaviour", ["cut", "error-event"])
def test_a_stream_that_fails(surface: str, behaviour: str) -> None:
    """A stream that breaks off never looks whole."""
    parts, error = read_until_failure(create(surface, behaviour, stream=True))
    if (surface, behaviour) == ("responses", "error-event"):
        # The client hands this event to the application, which has to look at it.
        assert (error, parts[-1].type) == (None, "error")
        assert parts[-1].message == "upstream gave up"
    elif behaviour == "error-event":
        assert isinstance(error, openai.APIError)
        assert "upstream gave up" in str(error)
    else:  # 2.x passes on the error of its HTTP client for a broken connection, 3.x has its own
        assert isinstance(error, openai.APIError | httpx.TransportError)
    assert len(deltas_of(surface, parts)) == 1


# Timeouts and cancellation


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_timeout(surface: str, is_stream: bool) -> None:
    """A client that times out raises its own error, and its call upstream is closed."""
    model = request_for(surface, "slow", stream=is_stream)
    with pytest.raises(openai.APITimeoutError):
        resource(surface, client(timeout=TIMEOUT_S)).create(**model)
    assert was_left(model["model"])


@surfaces
def test_leaving_a_stream(surface: str) -> None:
    """Closing a stream before its end closes upstream's."""
    model = request_for(surface, "endless")
    with resource(surface, client()).create(**model, stream=True) as stream:
        assert len(deltas_of(surface, [next(stream) for _ in range(9)])) > 1
    assert was_left(model["model"])


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_cancelling(surface: str, is_stream: bool) -> None:
    """Cancelling the task that waits ends the call upstream."""
    model = request_for(surface, "endless", stream=is_stream)

    async def use() -> None:
        async with AsyncOpenAI(**OPTIONS, max_retries=0) as client:
            reply = await resource(surface, client).create(**model)
            async for _ in reply:
                pass

    check_cancelling(model["model"], use())


# Held replies


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("behaviour", ["held-text", "held-tools"])
@scored
def test_a_held_reply_is_an_error_and_paid_for_once(
    surface: str, behaviour: str, is_stream: bool
) -> None:
    """A held reply is an error 422 that names its review and is not retried."""
    model = request_for(surface, behaviour, stream=is_stream)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        resource(surface, client(max_retries=2)).create(**model)
    assert caught.value.code == "held_for_review"
    assert caught.value.response.headers["x-pinocchio-review-id"]
    assert tries(model["model"]) == 1


def test_a_placeholder() -> None:
    """A placeholder is a completion that was filtered, and its id finds it again."""
    reply = create("chat", "held-placeholder")
    assert reply.choices[0].finish_reason == "content_filter"
    again = client().chat.completions.retrieve(reply.id)
    assert text_of("chat", again) == text_of("chat", reply) != SENTENCE


def test_a_streamed_placeholder() -> None:
    """A streamed placeholder arrives like any text, and ends with `content_filter`.

    The client's stream helper does not put such a completion together: it raises an error, as it
    does where OpenAI itself filters.
    """
    parts = list(create("chat", "held-placeholder", stream=True))
    assert "held for review" in "".join(deltas_of("chat", parts))
    assert parts[-1].choices[0].finish_reason == "content_filter"
    with pytest.raises(openai.ContentFilterFinishReasonError):
        helper("chat", "held-placeholder")


# Confidence


@surfaces
def test_confidence(surface: str) -> None:
    """Raw responses show the header, and objects keep the member."""
    api = resource(surface, client()).with_raw_response
    raw = api.create(**request_for(surface, "text"))
    check_label(surface, raw.headers)
    check_member(surface, raw.parse())


@surfaces
def test_confidence_of_tool_calls(surface: str) -> None:
    """Tool calls have a confidence like any answer."""
    check_member(surface, create(surface, "tools"), value=0.5)


@surfaces
def test_confidence_of_a_stream(surface: str) -> None:
    """The last event of the answer has it: the finish chunk, or `response.completed`."""
    parts = list(create(surface, "text", stream=True))
    if surface == "responses":
        parts = [part.response for part in parts if hasattr(part, "response")]
    extras = [part.model_extra or {} for part in parts]
    check_streamed_confidence(surface, [e["pinocchio"] for e in extras if "pinocchio" in e])


# Text completions, which have no tools and no schemas


def completions(behaviour: str, **fields: Any) -> Any:
    return client().completions.create(model=named(behaviour), prompt=QUESTION, **fields)


def test_text_completions() -> None:
    """A text completion arrives whole, in pieces, or as an error with its class."""
    assert completions("text").choices[0].text == SENTENCE
    pieces = [chunk.choices[0].text for chunk in completions("text", stream=True)]
    assert len([piece for piece in pieces if piece]) == 2
    assert "".join(pieces) == SENTENCE
    with pytest.raises(openai.NotFoundError):
        completions("status-404")


def test_confidence_of_text_completions() -> None:
    """The confidence is in the completion, and in the finish chunk of a stream."""
    check_member("completions", completions("text"))
    extras = [chunk.model_extra or {} for chunk in completions("text", stream=True)]
    check_streamed_confidence("completions", [e["pinocchio"] for e in extras if "pinocchio" in e])


def test_a_text_completion_that_is_left() -> None:
    """A timeout, and leaving a stream, each end the call upstream."""
    slow, endless = named("slow"), named("endless")
    with pytest.raises(openai.APITimeoutError):
        client(timeout=TIMEOUT_S).completions.create(model=slow, prompt=QUESTION)
    with client().completions.create(model=endless, prompt=QUESTION, stream=True) as stream:
        next(stream)
    assert was_left(slow)
    assert was_left(endless)
