"""Cases of LangChain: ChatOpenAI on chat completions and Responses, ChatAnthropic on Messages."""

from __future__ import annotations

import re
from typing import Any

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

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
    read_until_failure,
    tries,
    was_left,
)

ALL = ["chat", "responses", "messages"]
surfaces = pytest.mark.parametrize("surface", ALL)
scored = pytest.mark.parametrize("surface", sorted(set(ALL) & SCORED_SURFACES))
ERRORS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
}


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


@tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return RESULT


def chat(surface: str, name: str, **options: Any) -> Any:
    """Return LangChain's model for a surface."""
    options = {"model": name, "api_key": KEY, "max_retries": 0, "timeout": 20, **options}
    if surface == "messages":
        return ChatAnthropic(base_url=ORIGIN, **options)
    is_responses = surface == "responses"
    return ChatOpenAI(base_url=PROXY, use_responses_api=is_responses, **options)


def error_class(surface: str, status: int) -> type[Exception]:
    """Return the underlying client's error class; LangChain adds its own to some of them."""
    library = anthropic if surface == "messages" else openai
    kind: type[Exception] = getattr(library, ERRORS[status])
    return kind


@surfaces
def test_text(surface: str) -> None:
    """`invoke` gives upstream's text and usage."""
    message = chat(surface, named("text")).invoke(QUESTION)
    assert message.text == SENTENCE
    assert message.usage_metadata["total_tokens"] > 0


@surfaces
def test_stream(surface: str) -> None:
    """`stream` gives the text in upstream's pieces, and they add up to a message."""
    chunks = list(chat(surface, named("text")).stream(QUESTION))
    assert len([chunk for chunk in chunks if chunk.text]) == 2
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == SENTENCE


@surfaces
def test_tools(surface: str) -> None:
    """A bound tool is called, and its result is answered in a second turn."""
    model = chat(surface, named("tools")).bind_tools([get_weather])
    turns: list[Any] = [HumanMessage(QUESTION), model.invoke(QUESTION)]
    [call] = turns[-1].tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    turns.append(ToolMessage(RESULT, tool_call_id=call["id"]))
    assert model.invoke(turns).text == SENTENCE


@surfaces
@pytest.mark.parametrize("is_stream", [False, True])
def test_parallel_tools(surface: str, is_stream: bool) -> None:
    """Two calls in one message arrive whole and in order."""
    model = chat(surface, named("parallel")).bind_tools([get_weather])
    if is_stream:
        chunks = list(model.stream(QUESTION))
        message = chunks[0]
        for chunk in chunks[1:]:
            message += chunk
    else:
        message = model.invoke(QUESTION)
    assert [call["args"] for call in message.tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]


@surfaces
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(surface: str, method: str) -> None:
    """A structured output is a pydantic model, whether it is requested as a schema or as a tool."""
    behaviour = "text" if method == "json_schema" else "structured"
    model = chat(surface, named(behaviour)).with_structured_output(City, method=method)
    assert model.invoke(QUESTION) == City(name="Rome", inhabitants=2_755_309)


@surfaces
@pytest.mark.parametrize("status", ERRORS)
def test_typed_errors(surface: str, status: int) -> None:
    """Every error of upstream's has the class of the client below, its message and request id."""
    with pytest.raises(error_class(surface, status)) as caught:
        chat(surface, named(f"status-{status}")).invoke(QUESTION)
    error: Any = caught.value
    assert error.request_id == "req_upstream_1"
    body = error.body["error"] if surface == "messages" else error.body
    assert body["message"] in str(error)


@surfaces
@pytest.mark.parametrize("status", [429, 500])
def test_retries(surface: str, status: int) -> None:
    """The client tries as often as it is set to, and ends with the reply of the last try."""
    name = named(f"status-{status}")
    with pytest.raises(error_class(surface, status)):
        chat(surface, name, max_retries=1).invoke(QUESTION)
    assert tries(name) == 2
    name = named(f"flaky-{status}")
    assert chat(surface, name, max_retries=2).invoke(QUESTION).text == SENTENCE
    assert tries(name) == 3


@surfaces
def test_a_failing_stream(surface: str) -> None:
    """A stream that breaks off never looks whole."""
    chunks, error = read_until_failure(chat(surface, named("cut")).stream(QUESTION))
    assert re.search(r"broke off|Connection error|peer closed", str(error))
    assert len([chunk for chunk in chunks if chunk.text]) == 1


@surfaces
def test_timeout(surface: str) -> None:
    """A client that times out raises the error of the client below; its call upstream is closed."""
    name = named("slow")
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        chat(surface, name, timeout=TIMEOUT_S).invoke(QUESTION)
    assert was_left(name)


@surfaces
def test_leaving_a_stream(surface: str) -> None:
    """Closing a stream before its end closes upstream's."""
    name = named("endless")
    stream = chat(surface, name).stream(QUESTION)
    for chunk in stream:
        if chunk.text:
            break
    stream.close()
    assert was_left(name)


@surfaces
def test_cancelling(surface: str) -> None:
    """Cancelling the task that waits ends the call upstream."""
    name = named("slow")

    check_cancelling(name, chat(surface, name).ainvoke(QUESTION))


@scored
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_tool_call_is_an_error_and_paid_for_once(surface: str, is_stream: bool) -> None:
    """A held reply is an error 422 that says so; it is not retried."""
    name = named("held-tools")
    model = chat(surface, name, max_retries=2).bind_tools([get_weather])
    with pytest.raises(error_class(surface, 422), match="held for review"):
        list(model.stream(QUESTION)) if is_stream else model.invoke(QUESTION)
    assert tries(name) == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_placeholder(is_stream: bool) -> None:
    """A placeholder is a message whose metadata says that it was filtered."""
    model = chat("chat", named("held-placeholder"))
    messages = list(model.stream(QUESTION)) if is_stream else [model.invoke(QUESTION)]
    assert "held for review" in "".join(message.text for message in messages)
    reasons = [message.response_metadata.get("finish_reason") for message in messages]
    assert "content_filter" in reasons


@pytest.mark.parametrize("surface", ["chat", "responses"])
def test_confidence(surface: str) -> None:
    """With `include_response_headers` the application sees the header."""
    model = chat(surface, named("text"), include_response_headers=True)
    headers = model.invoke(QUESTION).response_metadata["headers"]
    check_label(surface, headers)
