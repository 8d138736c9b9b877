"""pydantic-ai: its models for chat completions, Responses and Messages, always through agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelAPIError, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.proxied import (
    KEY,
    ORIGIN,
    PROXY,
    QUESTION,
    RESULT,
    SCORED_SURFACES,
    SENTENCE,
    TIMEOUT_S,
    check_cancelling,
    check_label,
    named,
    tries,
    was_left,
)

ALL = ["chat", "responses", "messages"]
surfaces = pytest.mark.parametrize("surface", ALL)
scored = pytest.mark.parametrize("surface", sorted(set(ALL) & SCORED_SURFACES))
OUTPUTS = [(surface, kind) for surface in ALL for kind in (ToolOutput, NativeOutput)]
OUTPUTS.remove(("messages", NativeOutput))  # only for models that pydantic-ai knows by name
ERRORS = {400: "malformed", 401: "key", 404: "model", 422: "processed", 429: "many", 500: "broken"}


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


ROME = City(name="Rome", inhabitants=2_755_309)


def agent(surface: str, name: str, *, max_retries: int = 0, **options: Any) -> Agent[None, Any]:
    """Return an agent on a surface's model; the underlying libraries do the retrying."""
    names = ("timeout", "http_client")
    settings = {"timeout": 20, **{n: options.pop(n) for n in names if n in options}}
    settings["max_retries"] = max_retries
    if surface == "messages":
        anthropic = AsyncAnthropic(base_url=ORIGIN, api_key=KEY, **settings)
        provider: Any = AnthropicProvider(anthropic_client=anthropic)
        return Agent(AnthropicModel(name, provider=provider), **options)
    openai = AsyncOpenAI(base_url=PROXY, api_key=KEY, **settings)
    kind: Any = OpenAIChatModel if surface == "chat" else OpenAIResponsesModel
    return Agent(kind(name, provider=OpenAIProvider(openai_client=openai)), **options)


def weather_tool(called: list[str]) -> Callable[[str], str]:
    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    return get_weather


async def streamed(running: Agent[None, Any]) -> list[str]:
    async with running.run_stream(QUESTION) as result:
        return [text async for text in result.stream_text(delta=True, debounce_by=None)]


@surfaces
def test_text(surface: str) -> None:
    """A run gives upstream's text and usage."""
    result = agent(surface, named("text")).run_sync(QUESTION)
    assert result.output == SENTENCE
    assert result.usage.output_tokens > 0


@surfaces
def test_stream(surface: str) -> None:
    """A streamed run gives the text in upstream's pieces."""
    pieces = asyncio.run(streamed(agent(surface, named("text"))))
    assert len(pieces) == 2
    assert "".join(pieces) == SENTENCE


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("behaviour", "cities"), [("tools", 1), ("parallel", 2)])
def test_tools(surface: str, behaviour: str, cities: int, is_stream: bool) -> None:
    """Tools are run, and their results are answered in a second turn."""
    called: list[str] = []
    name = named(behaviour)
    running = agent(surface, name, tools=[weather_tool(called)])
    if is_stream:
        output = "".join(asyncio.run(streamed(running)))
    else:
        output = running.run_sync(QUESTION).output
    assert output == SENTENCE
    assert sorted(called) == ["Paris", "Rome"][:cities]
    assert tries(name) == 2


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("surface", "kind"), OUTPUTS)
def test_structured_output(surface: str, kind: Any, is_stream: bool) -> None:
    """A structured output is a pydantic model, asked for as a tool or as a schema."""
    behaviour = "structured" if kind is ToolOutput else "text"
    running = agent(surface, named(behaviour), output_type=kind(City))

    async def stream() -> Any:
        async with running.run_stream(QUESTION) as result:
            return await result.get_output()

    assert (asyncio.run(stream()) if is_stream else running.run_sync(QUESTION).output) == ROME


@surfaces
@pytest.mark.parametrize("status", ERRORS)
def test_typed_errors(surface: str, status: int) -> None:
    """Every error of upstream's is a ModelHTTPError with its status and its words."""
    with pytest.raises(ModelHTTPError, match=ERRORS[status]) as caught:
        agent(surface, named(f"status-{status}")).run_sync(QUESTION)
    assert caught.value.status_code == status
    below: Any = caught.value.__cause__
    assert below.request_id == "req_upstream_1"


@surfaces
@pytest.mark.parametrize("status", [429, 500])
def test_retries(surface: str, status: int) -> None:
    """The library below tries as often as it says, and ends with the reply of the last try."""
    name = named(f"status-{status}")
    with pytest.raises(ModelHTTPError):
        agent(surface, name, max_retries=1).run_sync(QUESTION)
    assert tries(name) == 2
    name = named(f"flaky-{status}")
    assert agent(surface, name, max_retries=2).run_sync(QUESTION).output == SENTENCE
    assert tries(name) == 3


@surfaces
@pytest.mark.parametrize("behaviour", ["cut", "error-event"])
def test_a_stream_that_fails(surface: str, behaviour: str) -> None:
    """A stream that breaks off never looks as if it were whole."""
    with pytest.raises(Exception, match=r"broke off|Connection|peer closed|gave up"):
        asyncio.run(streamed(agent(surface, named(behaviour))))


@surfaces
def test_timeout(surface: str) -> None:
    """A client that runs out of patience raises, and upstream is left."""
    name = named("slow")
    with pytest.raises(ModelAPIError, match="timed out"):
        agent(surface, name, timeout=TIMEOUT_S).run_sync(QUESTION)
    assert was_left(name)


@surfaces
@pytest.mark.parametrize("behaviour", ["slow", "endless"])
def test_cancelling(surface: str, behaviour: str) -> None:
    """Cancelling a run, also one that streams, ends the call upstream."""
    name = named(behaviour)
    running = agent(surface, name)
    use: Any = running.run(QUESTION) if behaviour == "slow" else streamed(running)
    check_cancelling(name, use)


@surfaces
def test_leaving_a_stream(surface: str) -> None:
    """Leaving a stream before its end closes upstream's."""
    name = named("endless")

    async def leave() -> None:
        async with agent(surface, name).run_stream(QUESTION) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                break
        assert await asyncio.to_thread(was_left, name)

    asyncio.run(leave())


@scored
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_tool_call_is_an_error_and_paid_for_once(surface: str, is_stream: bool) -> None:
    """A held call is a 422 that says so; it is not retried and no tool runs."""
    called: list[str] = []
    name = named("held-tools")
    running = agent(surface, name, max_retries=2, tools=[weather_tool(called)])
    with pytest.raises(ModelHTTPError, match="held for review") as caught:
        asyncio.run(streamed(running)) if is_stream else running.run_sync(QUESTION)
    assert caught.value.status_code == 422
    assert (called, tries(name)) == ([], 1)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_placeholder(is_stream: bool) -> None:
    """A placeholder is an ordinary text to an agent, with the reason `content_filter`."""
    running = agent("chat", named("held-placeholder"))
    if is_stream:
        text = "".join(asyncio.run(streamed(running)))
    else:
        result = running.run_sync(QUESTION)
        text = result.output
        assert result.response.finish_reason == "content_filter"
    assert "held for review" in text


@surfaces
def test_confidence(surface: str) -> None:
    """The library drops fields it does not know; a hook of its HTTP client sees the header."""
    responses: list[httpx2.Response] = []

    async def keep(response: httpx2.Response) -> None:
        responses.append(response)

    http = httpx2.AsyncClient(event_hooks={"response": [keep]})
    agent(surface, named("text"), http_client=http).run_sync(QUESTION)
    check_label(surface, responses[0].headers)
