"""Cases of the native approvals of agent frameworks, by the confidence of the single call.

The modules are `pinocchio.langchain`, `pinocchio.openai_agents` and `pinocchio.pydantic_ai`. The
upstream's calls have the confidence 0.5: below 0.9, above 0.4.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    RunState,
    function_tool,
    set_default_openai_client,  # noqa: F401  # the page's
    set_tracing_disabled,
)
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient  # noqa: F401  # the page's
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests, DeferredToolResults, FunctionToolset, ToolDenied
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import pinocchio.langchain
import pinocchio.openai_agents
import pinocchio.pydantic_ai
from pinocchio.calls import SeenCalls
from tests.clients.proxied import KEY, PROXY, QUESTION, RESULT, SENTENCE, named

set_tracing_disabled(True)  # traces would be sent to OpenAI
BEHAVIOURS = pytest.mark.parametrize(("behaviour", "cities"), [("tools", 1), ("parallel", 2)])
streamed = pytest.mark.parametrize("is_stream", [False, True])
SURE, UNSURE = 0.4, 0.9
POLICY = """
version: 1
name: weather
mode: enforce
rules:
  - name: the capital
    when: {tools: [{name: get_weather, arguments: {city: Paris}}], confidence: {below: 0.9}}
    then: hold
default: deliver
"""
PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## (.*?)\n\n```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
MODULES = {
    "LangChain": pinocchio.langchain,
    "OpenAI Agents SDK": pinocchio.openai_agents,
    "pydantic-ai": pinocchio.pydantic_ai,
}


@pytest.mark.parametrize("title", MODULES)
def test_the_page_shows_lines_that_work(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of `docs/frameworks.md` stops for a person, and goes on once they approve."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert set(BLOCKS) == set(MODULES)
    called: list[str] = []

    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    names = globals() | {"model": named("tools"), "url": PROXY, "question": QUESTION}
    own = {name: getattr(MODULES[title], name) for name in MODULES[title].__all__}
    found: dict[str, Any] = names | own | {"get_weather": get_weather}
    exec(compile(BLOCKS[title], title, "exec"), found)
    assert len(found["waiting"]) == 1
    assert (called, found["output"]) == (["Paris"], SENTENCE)


# LangChain


def langchain_agent(
    name: str,
    saver: Any,
    seen: SeenCalls,
    called: list[str],
    *,
    is_stream: bool = False,
    **asks: Any,
) -> Any:
    """Return an agent as each process makes its own: they share only the checkpoints."""

    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    model = ChatOpenAI(
        model=name,
        base_url=PROXY,
        api_key=KEY,
        streaming=is_stream,
        http_client=httpx2.Client(event_hooks=seen.hooks),
    )
    gate = {
        "allowed_decisions": ["approve", "reject"],
        "when": pinocchio.langchain.unsure(**asks),
    }
    return create_agent(
        model,
        [get_weather],
        checkpointer=saver,
        middleware=[
            HumanInTheLoopMiddleware(interrupt_on={"get_weather": gate}),
            pinocchio.langchain.noting(seen),
        ],
    )


@streamed
@BEHAVIOURS
def test_langchain_interrupts_below(behaviour: str, cities: int, is_stream: bool) -> None:
    """Calls below the threshold interrupt; the run goes on in another process."""
    saver, called, name = InMemorySaver(), [], named(behaviour)
    thread: Any = {"configurable": {"thread_id": name}}
    options: Any = {"below": UNSURE, "is_stream": is_stream}
    agent = langchain_agent(name, saver, SeenCalls(), called, **options)
    stopped = agent.invoke({"messages": [("user", QUESTION)]}, thread)
    [interrupt] = stopped["__interrupt__"]
    assert len(interrupt.value["action_requests"]) == cities
    assert called == []
    decisions = [{"type": "approve"}, {"type": "reject", "message": "not there"}][:cities]
    again = langchain_agent(name, saver, SeenCalls(), called, **options)
    done = again.invoke(Command(resume={"decisions": decisions}), thread)
    assert "__interrupt__" not in done
    assert called == ["Paris"]
    assert done["messages"][-1].text == SENTENCE


@streamed
def test_langchain_lets_sure_calls_run(is_stream: bool) -> None:
    """A call at or above the threshold is run without an interruption."""
    called: list[str] = []
    options: Any = {"below": SURE, "is_stream": is_stream}
    agent = langchain_agent(named("tools"), InMemorySaver(), SeenCalls(), called, **options)
    thread: Any = {"configurable": {"thread_id": "1"}}
    done = agent.invoke({"messages": [("user", QUESTION)]}, thread)
    assert (called, done["messages"][-1].text) == (["Paris"], SENTENCE)


def test_langchain_without_a_number_interrupts() -> None:
    """If no hooks are set, no confidence is known, and every call counts as unsure."""
    called: list[str] = []
    agent = langchain_agent(
        named("tools"), InMemorySaver(), SeenCalls(most=0), called, below=SURE, is_stream=False
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    assert "__interrupt__" in agent.invoke({"messages": [("user", QUESTION)]}, thread)
    assert called == []


# OpenAI Agents SDK


def agents_agent(surface: str, name: str, called: list[str], **asks: Any) -> Agent[Any]:
    seen = SeenCalls()

    @function_tool(needs_approval=pinocchio.openai_agents.unsure(**asks, seen=seen))
    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    http_client = httpx2.AsyncClient(event_hooks=seen.async_hooks)
    client = AsyncOpenAI(base_url=PROXY, api_key=KEY, http_client=http_client)
    kind: Any = OpenAIChatCompletionsModel if surface == "chat" else OpenAIResponsesModel
    return Agent("helper", model=kind(model=name, openai_client=client), tools=[get_weather])


async def run_agent(agent: Agent[Any], input: Any, *, is_stream: bool) -> Any:
    if not is_stream:
        return await Runner.run(agent, input)
    result = Runner.run_streamed(agent, input)
    async for _ in result.stream_events():
        pass
    return result


@streamed
@pytest.mark.parametrize("surface", ["chat", "responses"])
@BEHAVIOURS
def test_agents_sdk_interrupts_below(
    surface: str, behaviour: str, cities: int, is_stream: bool
) -> None:
    """The run stops before a call below the threshold, and is continued from its JSON."""
    called, name = list[str](), named(behaviour)

    async def run() -> Any:
        agent = agents_agent(surface, name, called, below=UNSURE)
        stopped = await run_agent(agent, QUESTION, is_stream=is_stream)
        kept = json.dumps(stopped.to_state().to_json())
        assert (len(stopped.interruptions), called) == (cities, [])
        other = agents_agent(surface, name, called, below=UNSURE)  # the agent of another process
        state = await RunState.from_json(other, json.loads(kept))
        first, *rest = state.get_interruptions()
        state.approve(first)
        for each in rest:
            state.reject(each)
        return await run_agent(other, state, is_stream=is_stream)

    done = asyncio.run(run())
    assert (called, done.final_output) == (["Paris"], SENTENCE)


@streamed
@pytest.mark.parametrize("surface", ["chat", "responses"])
def test_agents_sdk_lets_sure_calls_run(surface: str, is_stream: bool) -> None:
    """A call at or above the threshold needs no approval."""
    called: list[str] = []
    agent = agents_agent(surface, named("tools"), called, below=SURE)
    done = asyncio.run(run_agent(agent, QUESTION, is_stream=is_stream))
    assert (called, done.final_output) == (["Paris"], SENTENCE)


# pydantic-ai


def pydantic_agent(name: str, called: list[str], **asks: Any) -> Any:
    seen = SeenCalls()

    def get_weather(city: str) -> str:
        """Return the weather in a city."""
        called.append(city)
        return RESULT

    http_client = httpx2.AsyncClient(event_hooks=seen.async_hooks)
    client = AsyncOpenAI(base_url=PROXY, api_key=KEY, http_client=http_client)
    model = OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
    needs = pinocchio.pydantic_ai.unsure(**asks, seen=seen)
    toolset: Any = FunctionToolset([get_weather]).approval_required(needs)
    return PydanticAgent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])


@BEHAVIOURS
def test_pydantic_ai_defers_below(behaviour: str, cities: int) -> None:
    """A call below the threshold is deferred, and run once it is approved."""
    called, name = list[str](), named(behaviour)
    stopped = pydantic_agent(name, called, below=UNSURE).run_sync(QUESTION)
    assert isinstance(stopped.output, DeferredToolRequests)
    assert (len(stopped.output.approvals), called) == (cities, [])
    first, *rest = stopped.output.approvals
    results = DeferredToolResults()
    results.approvals = {
        first.tool_call_id: True,
        **{each.tool_call_id: ToolDenied("not there") for each in rest},
    }
    other = pydantic_agent(name, called, below=UNSURE)
    done = other.run_sync(message_history=stopped.all_messages(), deferred_tool_results=results)
    assert (called, done.output) == (["Paris"], SENTENCE)


def test_pydantic_ai_lets_sure_calls_run() -> None:
    """A call at or above the threshold is run."""
    called: list[str] = []
    done = pydantic_agent(named("tools"), called, below=SURE).run_sync(QUESTION)
    assert (called, done.output) == (["Paris"], SENTENCE)


# A policy in place of a threshold


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Write a policy that asks about Paris below 0.9, and about nothing else; return its path."""
    path = tmp_path / "weather.yaml"
    path.write_text(POLICY)
    return path


def test_langchain_asks_as_a_policy_says(policy: Path) -> None:
    """Of two calls in one reply, only the one whose arguments the policy names is interrupted."""
    saver, called, name = InMemorySaver(), list[str](), named("parallel")
    thread: Any = {"configurable": {"thread_id": name}}
    agent = langchain_agent(name, saver, SeenCalls(), called, policy=policy)
    stopped = agent.invoke({"messages": [("user", QUESTION)]}, thread)
    [request] = stopped["__interrupt__"][0].value["action_requests"]
    assert request["args"] == {"city": "Paris"}
    again = langchain_agent(name, saver, SeenCalls(), called, policy=policy)
    done = again.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread)
    assert (sorted(called), done["messages"][-1].text) == (["Paris", "Rome"], SENTENCE)


@pytest.mark.parametrize("surface", ["chat", "responses"])
@streamed
def test_agents_sdk_asks_as_a_policy_says(surface: str, is_stream: bool, policy: Path) -> None:
    """Of two calls, only the one that the policy names waits; the tool is known from the reply."""
    called, name = list[str](), named("parallel")

    async def run() -> Any:
        agent = agents_agent(surface, name, called, policy=policy)
        stopped = await run_agent(agent, QUESTION, is_stream=is_stream)
        [item] = stopped.interruptions
        assert json.loads(item.arguments) == {"city": "Paris"}
        state = stopped.to_state()
        state.approve(item)
        return await run_agent(agent, state, is_stream=is_stream)

    done = asyncio.run(run())
    assert (sorted(called), done.final_output) == (["Paris", "Rome"], SENTENCE)


def test_pydantic_ai_asks_as_a_policy_says(policy: Path) -> None:
    """Of two calls, the one that the policy names is deferred, and the other is run at once."""
    called, name = list[str](), named("parallel")
    agent = pydantic_agent(name, called, policy=policy)
    stopped = agent.run_sync(QUESTION)
    [waiting] = stopped.output.approvals
    assert (waiting.args_as_dict(), called) == ({"city": "Paris"}, ["Rome"])
    results = DeferredToolResults()
    results.approvals[waiting.tool_call_id] = True
    history = stopped.all_messages()
    done = agent.run_sync(message_history=history, deferred_tool_results=results)
    assert (sorted(called), done.output) == (["Paris", "Rome"], SENTENCE)
