"""Cases of the OpenAI Agents SDK on Responses, its default, and on chat completions."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import openai
import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

from tests.clients.proxied import (
    CODES,
    KEY,
    PROXY,
    QUESTION,
    RESULT,
    SCORED_SURFACES,
    SENTENCE,
    TIMEOUT_S,
    check_cancelling,
    check_label,
    named,
    seen,
    tries,
    was_left,
)

set_tracing_disabled(True)  # traces would be sent to OpenAI
ALL = ["chat", "responses"]
surfaces = pytest.mark.parametrize("surface", ALL)
scored = pytest.mark.parametrize("surface", sorted(set(ALL) & SCORED_SURFACES))
ERRORS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    404: openai.NotFoundError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
}


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def agent(surface: str, name: str, *, max_retries: int = 0, **options: Any) -> Agent[None]:
    names = ("timeout", "http_client")
    settings = {"timeout": 20, **{n: options.pop(n) for n in names if n in options}}
    client = AsyncOpenAI(base_url=PROXY, api_key=KEY, max_retries=max_retries, **settings)
    kind: Any = OpenAIChatCompletionsModel if surface == "chat" else OpenAIResponsesModel
    return Agent("helper", model=kind(model=name, openai_client=client), **options)


def run(running: Agent[None]) -> Any:
    return asyncio.run(Runner.run(running, QUESTION)).final_output


async def streamed(running: Agent[None], most: int = 10**9) -> tuple[list[str], Any]:
    """Return a streamed run's pieces of text and its output; cancel it after `most` pieces."""
    result = Runner.run_streamed(running, QUESTION)
    pieces: list[str] = []
    async for event in result.stream_events():
        data = event.data if event.type == "raw_response_event" else None
        if isinstance(data, ResponseTextDeltaEvent):
            pieces.append(data.delta)
        if len(pieces) == most:
            result.cancel()
    return pieces, result.final_output


def weather_tool(called: list[str]) -> Any:
    @function_tool
    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    return get_weather


def test_responses_are_the_default() -> None:
    """A model that is given by its name alone is called on `/v1/responses`."""
    name = named("text")
    client = AsyncOpenAI(base_url=PROXY, api_key=KEY)
    openai_default = OpenAIResponsesModel(model=name, openai_client=client)
    assert run(Agent("helper", model=openai_default)) == SENTENCE
    assert [request["path"] for request in seen(name)] == ["/v1/responses"]


@surfaces
def test_text(surface: str) -> None:
    """A run ends with upstream's text."""
    assert run(agent(surface, named("text"))) == SENTENCE


@surfaces
def test_stream(surface: str) -> None:
    """A streamed run gives the text in upstream's pieces."""
    pieces, output = asyncio.run(streamed(agent(surface, named("text"))))
    assert len(pieces) == 2
    assert "".join(pieces) == output == SENTENCE


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("behaviour", "cities"), [("tools", 1), ("parallel", 2)])
def test_tools(surface: str, behaviour: str, cities: int, is_stream: bool) -> None:
    """Tools are run, and their results are answered in a second turn."""
    called: list[str] = []
    name = named(behaviour)
    running = agent(surface, name, tools=[weather_tool(called)])
    output = asyncio.run(streamed(running))[1] if is_stream else run(running)
    assert output == SENTENCE
    assert sorted(called) == ["Paris", "Rome"][:cities]
    assert tries(name) == 2


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_structured_output(surface: str, is_stream: bool) -> None:
    """A structured output is a pydantic model."""
    running = agent(surface, named("text"), output_type=City)
    output = asyncio.run(streamed(running))[1] if is_stream else run(running)
    assert output == City(name="Rome", inhabitants=2_755_309)


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("status", ERRORS)
def test_typed_errors(surface: str, status: int, is_stream: bool) -> None:
    """Every error of upstream's has the class of OpenAI's client, its code and request id."""
    running = agent(surface, named(f"status-{status}"))
    with pytest.raises(ERRORS[status]) as caught:
        asyncio.run(streamed(running)) if is_stream else run(running)
    assert caught.value.code == CODES.get(status, "c")
    assert caught.value.request_id == "req_upstream_1"


@surfaces
@pytest.mark.parametrize("status", [429, 500])
def test_retries(surface: str, status: int) -> None:
    """The client tries as often as it is set to, and ends with the reply of the last try."""
    name = named(f"status-{status}")
    with pytest.raises(ERRORS[status]):
        run(agent(surface, name, max_retries=1))
    assert tries(name) == 2
    name = named(f"flaky-{status}")
    assert run(agent(surface, name, max_retries=2)) == SENTENCE
    assert tries(name) == 3


@surfaces
@pytest.mark.parametrize("behaviour", ["cut", "error-event"])
def test_a_stream_that_fails(surface: str, behaviour: str) -> None:
    """A stream that breaks off never looks whole."""
    with pytest.raises(Exception, match=r"broke off|Connection error|gave up"):
        asyncio.run(streamed(agent(surface, named(behaviour))))


@surfaces
def test_timeout(surface: str) -> None:
    """A client that times out raises its own error, and its call upstream is closed."""
    name = named("slow")
    with pytest.raises(openai.APITimeoutError):
        run(agent(surface, name, timeout=TIMEOUT_S))
    assert was_left(name)


@surfaces
@pytest.mark.parametrize("behaviour", ["slow", "endless"])
def test_cancelling(surface: str, behaviour: str) -> None:
    """Cancelling a run, also one that streams, ends the call upstream."""
    name = named(behaviour)
    running = agent(surface, name)
    use: Any = Runner.run(running, QUESTION) if behaviour == "slow" else streamed(running)
    check_cancelling(name, use)


@surfaces
def test_leaving_a_stream(surface: str) -> None:
    """`cancel()` on a streamed run closes upstream's stream."""
    name = named("endless")

    async def leave() -> None:
        await streamed(agent(surface, name), most=2)
        assert await asyncio.to_thread(was_left, name)

    asyncio.run(leave())


@scored
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_tool_call_is_an_error_and_paid_for_once(surface: str, is_stream: bool) -> None:
    """A held call is an error 422 that says so; it is not retried, and no tool runs."""
    called: list[str] = []
    name = named("held-tools")
    running = agent(surface, name, max_retries=2, tools=[weather_tool(called)])
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        asyncio.run(streamed(running)) if is_stream else run(running)
    assert caught.value.code == "held_for_review"
    assert (called, tries(name)) == ([], 1)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_placeholder(is_stream: bool) -> None:
    """A placeholder is an ordinary text to an agent."""
    running = agent("chat", named("held-placeholder"))
    output = asyncio.run(streamed(running))[1] if is_stream else run(running)
    assert "held for review" in output


@surfaces
def test_confidence(surface: str) -> None:
    """The SDK drops fields it does not know; a hook of its HTTP client sees the header."""
    responses: list[httpx2.Response] = []

    async def keep(response: httpx2.Response) -> None:
        responses.append(response)

    http = httpx2.AsyncClient(event_hooks={"response": [keep]})
    assert run(agent(surface, named("text"), http_client=http)) == SENTENCE
    check_label(surface, responses[0].headers)
