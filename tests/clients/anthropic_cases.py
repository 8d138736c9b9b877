"""Cases of Anthropic's own client on `/v1/messages`."""

from __future__ import annotations

import functools
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from pydantic import BaseModel

from tests.clients.proxied import (
    KEY,
    MESSAGES,
    ORIGIN,
    PIXEL,
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

scored = pytest.mark.parametrize("surface", sorted({"messages"} & SCORED_SURFACES))
OPTIONS: dict[str, Any] = {"base_url": ORIGIN, "api_key": KEY, "timeout": 20}
WEATHER: Any = {"name": "get_weather", "input_schema": WEATHER_SCHEMA}
ERRORS = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    422: anthropic.UnprocessableEntityError,
    429: anthropic.RateLimitError,
    500: anthropic.InternalServerError,
}


class City(BaseModel):
    name: str
    inhabitants: int


@functools.cache  # creating one takes longer than most tests: it reads all certificates
def only_client() -> Anthropic:
    return Anthropic(**OPTIONS)


def client(max_retries: int = 0, **options: Any) -> Anthropic:
    return only_client().with_options(max_retries=max_retries, **options)


def request_for(behaviour: str, **fields: Any) -> dict[str, Any]:
    tools = {"tools": [WEATHER]} if behaviour in ("tools", "parallel", "held-tools") else {}
    fields_sent = {"model": named(behaviour), "max_tokens": 100, "messages": MESSAGES}
    return fields_sent | tools | fields


def create(behaviour: str, **fields: Any) -> Any:
    return client().messages.create(**request_for(behaviour, **fields))


def streamed(behaviour: str, **fields: Any) -> tuple[list[Any], Any]:
    """Return the events of the client's own stream helper, and the message it assembles."""
    with client().messages.stream(**request_for(behaviour, **fields)) as stream:
        return list(stream), stream.get_final_message()


# Text and streams


def test_text() -> None:
    """A message is the client's own object, with upstream's text, usage and request id."""
    message = create("text")
    assert message.content[0].text == SENTENCE
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 15)
    assert message._request_id == "req_upstream_1"


def test_upstream_gets_what_it_gets_without_the_proxy() -> None:
    """The client's headers (key, version, betas) and body arrive upstream unchanged."""
    asking = request_for("thinking", extra_headers={"anthropic-beta": "made-up-2099"})
    client().messages.create(**asking)
    client(base_url=UPSTREAM).messages.create(**asking)
    via, direct = map(as_sent, seen(asking["model"]))
    assert via == direct
    assert via["headers"]["anthropic-beta"] == "made-up-2099"


def test_stream() -> None:
    """The raw events arrive in upstream's order, without the ping, which the client leaves out."""
    kinds = [event.type for event in create("text", stream=True)]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_stream_helper() -> None:
    """The client's stream helper gives the text in pieces and puts the message together."""
    with client().messages.stream(**request_for("text")) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(pieces) == 2
    assert "".join(pieces) == message.content[0].text == SENTENCE
    assert message.usage.output_tokens == 15


@pytest.mark.parametrize("is_stream", [False, True])
def test_thinking(is_stream: bool) -> None:
    """A thinking block arrives with its signature, before the text."""
    message = streamed("thinking")[1] if is_stream else create("thinking")
    thought, text = message.content
    assert (thought.thinking, thought.signature) == ("Where is the Eiffel tower?", "EqQBCgIYAhIM")
    assert text.text == SENTENCE


# Tools and structured outputs


def test_tools() -> None:
    """A tool is called, and its result is answered in a second turn."""
    first = request_for("tools")
    message = client().messages.create(**first)
    [call] = message.content
    assert (call.name, call.input, message.stop_reason) == (
        "get_weather",
        {"city": "Paris"},
        "tool_use",
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    turn = {"role": "user", "content": [result]}
    first["messages"] = [*MESSAGES, {"role": "assistant", "content": message.content}, turn]
    assert client().messages.create(**first).content[0].text == SENTENCE


@pytest.mark.parametrize("is_stream", [False, True])
def test_parallel_tools(is_stream: bool) -> None:
    """Two calls in one message arrive whole and in order, also when streamed as pieces of JSON."""
    message = streamed("parallel")[1] if is_stream else create("parallel")
    assert [call.input for call in message.content] == [{"city": "Paris"}, {"city": "Rome"}]


def test_tool_runner() -> None:
    """The client's tool runner calls a Python function and sends what it returns."""
    called = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    asking = request_for("tools") | {"tools": [get_weather]}
    message = client().beta.messages.tool_runner(**asking).until_done()
    assert called == ["Paris"]
    assert message.content[0].text == SENTENCE


@pytest.mark.parametrize("is_stream", [False, True])
def test_structured_output(is_stream: bool) -> None:
    """A structured output is a pydantic model."""
    if is_stream:
        message = streamed("text", output_format=City)[1]
    else:
        message = client().messages.parse(**request_for("text"), output_format=City)
    assert message.parsed_output == City(name="Rome", inhabitants=2_755_309)


# Errors and retries


@pytest.mark.parametrize("status", ERRORS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_typed_errors(status: int, is_stream: bool) -> None:
    """Every error of upstream's has its class, its body and its request id."""
    with pytest.raises(ERRORS[status]) as caught:
        create(f"status-{status}", stream=is_stream)
    assert caught.value.request_id == "req_upstream_1"
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["message"] in str(caught.value)
    assert "x-pinocchio-error" not in caught.value.response.headers


@pytest.mark.parametrize("status", [429, 500])
def test_retries(status: int) -> None:
    """The client tries as often as it is set to, and ends with the reply of the last try."""
    asking = request_for(f"status-{status}")
    with pytest.raises(ERRORS[status]):
        client(max_retries=1).messages.create(**asking)
    assert tries(asking["model"]) == 2
    asking = request_for(f"flaky-{status}")
    assert client(max_retries=2).messages.create(**asking).content[0].text == SENTENCE
    assert tries(asking["model"]) == 3


def test_a_bad_request_is_not_retried() -> None:
    """A request that cannot succeed is sent once."""
    asking = request_for("status-400")
    with pytest.raises(anthropic.BadRequestError):
        client(max_retries=2).messages.create(**asking)
    assert tries(asking["model"]) == 1


@pytest.mark.parametrize("behaviour", ["cut", "error-event"])
def test_a_stream_that_fails(behaviour: str) -> None:
    """A stream that breaks off, or that upstream ends with an error event, raises."""
    events, error = read_until_failure(create(behaviour, stream=True))
    assert [event.type for event in events].count("content_block_delta") == 1
    if behaviour == "error-event":
        assert isinstance(error, anthropic.APIError)
        assert "upstream gave up" in str(error)
    else:  # this client passes on the error of its HTTP client for a broken connection
        assert isinstance(error, anthropic.APIError | httpx2.TransportError)


# Timeouts and cancellation


@pytest.mark.parametrize("is_stream", [False, True])
def test_timeout(is_stream: bool) -> None:
    """A client that times out raises its own error, and its call upstream is closed."""
    asking = request_for("slow", stream=is_stream)
    with pytest.raises(anthropic.APITimeoutError):
        client(timeout=TIMEOUT_S).messages.create(**asking)
    assert was_left(asking["model"])


def test_leaving_a_stream() -> None:
    """Closing a stream before its end closes upstream's."""
    asking = request_for("endless")
    with client().messages.stream(**asking) as stream:
        assert len([next(stream.text_stream) for _ in range(3)]) == 3
    assert was_left(asking["model"])


@pytest.mark.parametrize("is_stream", [False, True])
def test_cancelling(is_stream: bool) -> None:
    """Cancelling the task that waits ends the call upstream."""
    asking = request_for("endless", stream=is_stream)

    async def use() -> None:
        async with AsyncAnthropic(**OPTIONS, max_retries=0) as client:
            async for _ in await client.messages.create(**asking):
                pass

    check_cancelling(asking["model"], use())


# Held replies, where the surface is scored


@scored
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("behaviour", ["held-text", "held-tools"])
def test_a_held_reply_is_an_error_and_paid_for_once(
    surface: str, behaviour: str, is_stream: bool
) -> None:
    """A held reply is an error 422 that says so and names its review; it is not retried."""
    asking = request_for(behaviour, stream=is_stream)
    with pytest.raises(anthropic.UnprocessableEntityError, match="held for review") as caught:
        client(max_retries=2).messages.create(**asking)
    assert caught.value.response.headers["x-pinocchio-review-id"]
    assert tries(asking["model"]) == 1


# Confidence


def test_confidence() -> None:
    """Raw responses show the header, and messages keep the member."""
    raw = client().messages.with_raw_response.create(**request_for("text"))
    check_label("messages", raw.headers)
    check_member("messages", raw.parse())


def test_confidence_of_tool_calls() -> None:
    """Tool calls have a confidence like any answer."""
    check_member("messages", create("tools"), value=0.5)


def test_confidence_of_a_stream() -> None:
    """The event `message_delta`, which says why the message ends, has the confidence."""
    events = list(create("text", stream=True))
    found = {e.type: e.model_extra["pinocchio"] for e in events if "pinocchio" in e.model_extra}
    assert set(found) <= {"message_delta"}
    check_streamed_confidence("messages", list(found.values()))


@scored
@pytest.mark.parametrize("is_stream", [False, True])
def test_confidence_of_a_question_with_an_image(surface: str, is_stream: bool) -> None:
    """An image reaches upstream unchanged, and is part of the question that is scored."""
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    parts: Any = [{"type": "image", "source": image}, {"type": "text", "text": QUESTION}]
    asking = request_for("text", messages=[{"role": "user", "content": parts}])
    if is_stream:
        with client().messages.stream(**asking) as stream:
            members = [m for event in stream if (m := (event.model_extra or {}).get("pinocchio"))]
        check_streamed_confidence(surface, members)
    else:
        check_member(surface, client().messages.create(**asking))
    [arrived] = seen(asking["model"])
    assert arrived["body"]["messages"] == asking["messages"]
