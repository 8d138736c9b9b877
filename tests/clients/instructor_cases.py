"""Cases of instructor: typed objects from chat completions, Responses and Messages."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import anthropic
import instructor
import openai
import pytest
from anthropic import Anthropic
from instructor.core.exceptions import InstructorRetryException
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, field_validator

from tests.clients.proxied import (
    KEY,
    MESSAGES,
    ORIGIN,
    PROXY,
    SCORED_SURFACES,
    TIMEOUT_S,
    check_cancelling,
    check_member,
    named,
    tries,
    was_left,
)

ALL = ["chat", "responses", "messages"]
surfaces = pytest.mark.parametrize("surface", ALL)
scored = pytest.mark.parametrize("surface", sorted(set(ALL) & SCORED_SURFACES))
ERRORS = {400: "malformed", 401: "key", 404: "model", 422: "processed", 429: "many", 500: "broken"}
Mode = instructor.Mode


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


class Village(City):
    @field_validator("inhabitants")
    @classmethod
    def is_small(cls, value: int) -> int:
        if value > 1_000:
            raise ValueError("a village is small")
        return value


ROME = {"name": "Rome", "inhabitants": 2_755_309}


@functools.cache
def base(surface: str) -> Any:
    if surface == "messages":
        return Anthropic(base_url=ORIGIN, api_key=KEY, timeout=20)
    return OpenAI(base_url=PROXY, api_key=KEY, timeout=20)


def client(surface: str, mode: Mode | None = None, **options: Any) -> Any:
    below = base(surface).with_options(**{"max_retries": 0, **options})
    if surface == "messages":
        return instructor.from_anthropic(below, mode=mode or Mode.ANTHROPIC_TOOLS)
    usual = Mode.TOOLS if surface == "chat" else Mode.RESPONSES_TOOLS
    return instructor.from_openai(below, mode=mode or usual)


def request_for(surface: str, name: str, model: Any = City, **fields: Any) -> dict[str, Any]:
    limit = {"max_tokens": 100} if surface == "messages" else {}
    common = {"model": name, "messages": MESSAGES, "response_model": model, "max_retries": 0}
    return common | limit | fields


@surfaces
def test_structured_output(surface: str) -> None:
    """A call of the tool that instructor makes from a model becomes that model."""
    assert client(surface).create(**request_for(surface, named("structured"))).model_dump() == ROME


@pytest.mark.parametrize("mode", [Mode.JSON_SCHEMA, Mode.TOOLS_STRICT])
def test_other_modes(mode: Mode) -> None:
    """A schema and a strict tool work as well."""
    assert (
        client("chat", mode).create(**request_for("chat", named("structured"))).model_dump() == ROME
    )


@surfaces
def test_stream(surface: str) -> None:
    """A partial object grows with the arguments of the call.

    instructor reads a whole stream before it gives the first part, so a stream cannot be left
    early.
    """
    parts = list(client(surface).create_partial(**request_for(surface, named("structured"))))
    assert len(parts) > 1
    assert parts[-1].model_dump() == ROME


def test_parallel_tools() -> None:
    """Two calls become two objects."""

    class Weather(BaseModel):
        """The weather in a city."""

        city: str

    asking = request_for("chat", named("parallel"), model=Iterable[Weather])
    found = list(client("chat", Mode.PARALLEL_TOOLS).create(**asking))
    assert [weather.city for weather in found] == ["Paris", "Rome"]


@surfaces
def test_an_invalid_object_is_retried(surface: str) -> None:
    """A retry of instructor's own, with the mistake in the conversation, is an ordinary request."""
    name = named("structured")
    with pytest.raises(InstructorRetryException, match="a village is small"):
        client(surface).create(**request_for(surface, name, Village, max_retries=1))
    assert tries(name) == 2


@surfaces
@pytest.mark.parametrize("status", ERRORS)
def test_typed_errors(surface: str, status: int) -> None:
    """Every error of upstream's is the exception's cause, with status, message and request id."""
    with pytest.raises(InstructorRetryException, match=ERRORS[status]) as caught:
        client(surface).create(**request_for(surface, named(f"status-{status}")))
    below = status_error(caught.value)
    assert (below.status_code, below.request_id) == (status, "req_upstream_1")


def status_error(error: BaseException) -> Any:
    """Return the underlying client's error, among the causes or the failed attempts."""
    kinds = (openai.APIStatusError, anthropic.APIStatusError)
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, kinds):
        attempt = getattr(seen, "last_attempt", None)
        seen = seen.__cause__ or (attempt.exception() if attempt else None)
    assert seen is not None, error
    return seen


@surfaces
@pytest.mark.parametrize("status", [429, 500])
def test_retries(surface: str, status: int) -> None:
    """The client below tries as often as it is set to, and ends with the reply of the last try."""
    name = named(f"status-{status}")
    with pytest.raises(InstructorRetryException):
        client(surface, max_retries=1).create(**request_for(surface, name))
    assert tries(name) == 2


@surfaces
def test_timeout(surface: str) -> None:
    """A client that times out raises an error, and its call upstream is closed."""
    name = named("slow")
    with pytest.raises(InstructorRetryException, match="timed out"):
        client(surface, timeout=TIMEOUT_S).create(**request_for(surface, name))
    assert was_left(name)


def test_cancelling() -> None:
    """Cancelling the task that waits ends the call upstream."""
    name = named("slow")
    below = AsyncOpenAI(base_url=PROXY, api_key=KEY, max_retries=0)
    check_cancelling(name, instructor.from_openai(below).create(**request_for("chat", name)))


@scored
def test_a_held_reply_is_an_error_and_paid_for_once(surface: str) -> None:
    """A held call is an error 422 that says so, which the client below does not retry."""
    name = named("held-structured")
    with pytest.raises(InstructorRetryException, match="held for review") as caught:
        client(surface, max_retries=2).create(**request_for(surface, name))
    assert status_error(caught.value).status_code == 422
    assert tries(name) == 1


@surfaces
def test_confidence(surface: str) -> None:
    """`create_with_completion` gives the completion, which keeps the member."""
    asking = request_for(surface, named("structured"))
    found, completion = client(surface).create_with_completion(**asking)
    assert found.model_dump() == ROME
    check_member(surface, completion, value=0.5)
