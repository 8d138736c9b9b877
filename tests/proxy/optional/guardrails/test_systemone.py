"""`/v1/systemone` on the guardrails listener, and Open WebUI's filter, which uses it."""

from __future__ import annotations

import asyncio
import inspect
import json
import types
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StartProxy
from tests.proxy.optional.guardrails.test_guardrails import POLICY, TOKEN, ask
from tests.running.desk_client import DESK, scraped, value
from tests.running.live_proxy import ROOT, LiveProxy, question

Json = dict[str, Any]
PATH = "/v1/systemone"
NOUL = {"type": "noul", "instructions": "Is the reply correct?"}
BOTH = {"correct": NOUL, "incorrect": NOUL}
FILTER = ROOT / "examples" / "gateways" / "open_webui.py"


@pytest.fixture(name="gate")
def running_gate(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=POLICY, guardrails={"port": 0, "token": TOKEN}, **DESK)


def talk(text: str, **more: Any) -> list[Json]:
    return [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": text, **more}]


def put(gate: LiveProxy, state: Any, questions: Any = BOTH) -> httpx.Response:
    return ask(gate, PATH, {"model": "pinocchio", "state": state, "questions": questions})


@pytest.mark.parametrize(
    "state",
    [
        talk("Paris p=0.8"),
        {"messages": talk("Paris p=0.8"), "model": "gpt-5"},
        {"question": "Which?", "answer": "Paris p=0.8"},
        json.dumps(talk("Paris p=0.8")),
    ],
)
def test_the_number_answers_whether_the_last_reply_is_correct(gate: LiveProxy, state: Any) -> None:
    """The answer to a conversation in any form is the number of its last reply, with the
    probability that it is wrong for checks that flag; the model's name has the number's
    provenance.
    """
    got = put(gate, state)
    assert got.status_code == 200
    assert got.json() == {
        "model": "words@1",
        "answers": {
            "correct": {"type": "noul", "noul": 0.8},
            "incorrect": {"type": "noul", "noul": 0.2},
        },
    }


def test_nothing_is_held_and_the_visit_is_counted_and_recorded(gate: LiveProxy) -> None:
    """A reply that a policy would hold gets its number alone, and is counted and recorded."""
    before = value(
        scraped(gate.desk), "pinocchio_guardrail_visits_total", gateway="systemone", scored="true"
    )
    open_before = len(gate.desk.get("/pinocchio/v1/reviews").json()["items"])
    assert put(gate, talk("p=0.05")).json()["answers"]["correct"]["noul"] == 0.05
    assert len(gate.desk.get("/pinocchio/v1/reviews").json()["items"]) == open_before
    after = value(
        scraped(gate.desk), "pinocchio_guardrail_visits_total", gateway="systemone", scored="true"
    )
    assert after == before + 1


def test_a_call_of_a_tool_is_a_reply(gate: LiveProxy) -> None:
    """A tool call with its tools in the state is scored as in a chat completion."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"p":"p=0.3"}'}}
    messages = talk("", tool_calls=[call])
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    got = put(gate, {"messages": messages, "tools": tools}, {"correct": NOUL})
    assert got.json()["answers"] == {"correct": {"type": "noul", "noul": 0.3}}


@pytest.mark.parametrize(
    ("state", "questions", "status", "code"),
    [
        (talk("x"), {"polite": NOUL}, 400, "unknown_question"),
        (talk("x"), {"correct": {"type": "choice"}}, 400, "unknown_question"),
        (talk("x"), {}, 400, "invalid_request"),
        ("a text alone", BOTH, 400, "no_question"),
        (talk("x")[:1], BOTH, 400, "no_question"),
        ({"question": "Which?"}, BOTH, 400, "no_question"),
        (None, BOTH, 400, "no_question"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}, *talk("x")[1:]], BOTH, 422,
         "not_scored"),
    ],
)  # fmt: skip
def test_what_has_no_number_is_an_error(
    gate: LiveProxy, state: Any, questions: Any, status: int, code: str
) -> None:
    """Other questions, a reply without its question, and what cannot be scored get an error."""
    got = put(gate, state, questions)
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)


# Open WebUI


def loaded(source: str) -> Any:
    """Load the filter as Open WebUI does, with its text in a module of its own."""
    module = types.ModuleType("function_pinocchio")
    module.__dict__["__file__"] = "pinocchio"
    exec(source, module.__dict__)
    return module.Filter()


def handled(filter: Any, kind: str, data: Json, **extra: Any) -> Json:
    """Return a handler's answer; pass only what its signature has, as Open WebUI does."""
    handler = getattr(filter, kind)
    filter.valves = filter.Valves(**extra.pop("valves", {}))
    wanted = inspect.signature(handler).parameters
    arguments = {"event" if kind == "stream" else "body": data}
    arguments |= {name: each for name, each in extra.items() if name in wanted}
    if inspect.iscoroutinefunction(handler):
        answer: Json = asyncio.run(handler(**arguments))
        return answer
    return dict(handler(**arguments))


class Page:
    """A browser: what it is sent, and what its user answers."""

    def __init__(self, answer: bool = True) -> None:
        self.answer, self.told, self.asked = answer, list[Json](), list[Json]()

    async def emit(self, event: Json) -> None:
        self.told.append(event)

    async def call(self, event: Json) -> bool:
        self.asked.append(event)
        return self.answer

    @property
    def extra(self) -> Json:
        metadata = {"chat_id": "c1", "message_id": "m1", "session_id": "s1", "filter_ids": []}
        called = {"__event_emitter__": self.emit, "__event_call__": self.call}
        return {**called, "__metadata__": metadata, "__user__": {"id": "u"}, "__request__": None}


def completed(text: str) -> Json:
    """Return what an outlet gets once a reply is complete."""
    messages = [
        {"id": "m0", "role": "user", "content": "Which?", "timestamp": 1_767_225_600},
        {"id": "m1", "role": "assistant", "content": text, "timestamp": 1_767_225_601},
    ]
    chat = {"chat_id": "c1", "session_id": "s1", "id": "m1", "filter_ids": []}
    return {"model": "gpt-5", "messages": messages, **chat}


def streamed(gate: LiveProxy, filter: Any, text: str, page: Page) -> None:
    """Pass a stream of the proxy's through the filter chunk by chunk; check that none changes."""
    body = gate.post_raw(question(text, stream=True)).body.decode()
    lines = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
    for line in lines:
        event = json.loads(line)
        assert handled(filter, "stream", event, **page.extra) == event


def test_the_filter_shows_the_number_that_came_with_the_stream(gate: LiveProxy) -> None:
    """The stream's number is a status under the message, without a question if it is high."""
    filter, page = loaded(FILTER.read_text()), Page()
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Which?"}]}
    assert handled(filter, "inlet", request, **page.extra) == request
    streamed(gate, filter, "Paris p=0.91", page)
    body = handled(filter, "outlet", completed("Paris p=0.91"), **page.extra)
    assert body == completed("Paris p=0.91")
    assert [each["data"]["description"] for each in page.told] == ["confidence 0.91"]
    assert page.asked == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_filter_asks_below_the_threshold(gate: LiveProxy, is_kept: bool) -> None:
    """A reply below the threshold, which is a valve, is replaced if the user does not want it."""
    filter, page = loaded(FILTER.read_text()), Page(is_kept)
    streamed(gate, filter, "Paris p=0.62", page)
    valves = {"below": 0.7}
    body = handled(filter, "outlet", completed("Paris p=0.62"), valves=valves, **page.extra)
    [prompt] = page.asked
    assert prompt["type"] == "confirmation"
    assert prompt["data"]["message"] == "The confidence is 0.62, below 0.7. Keep this reply?"
    assert (body["messages"][-1]["content"] == "Paris p=0.62") is is_kept


def test_the_filter_scores_what_did_not_pass_the_proxy(gate: LiveProxy) -> None:
    """Other replies are scored by the configured listener; the status says if none answers."""
    source = FILTER.read_text()
    for valves, status in (
        ({"guardrails_url": gate.guardrails_url, "guardrails_token": TOKEN}, "confidence 0.83"),
        ({"guardrails_url": gate.guardrails_url}, "confidence unknown"),
        ({}, "confidence unknown"),
    ):
        page = Page()
        handled(loaded(source), "outlet", completed("p=0.83"), valves=valves, **page.extra)
        assert [each["data"]["description"] for each in page.told] == [status]
    assert Path(FILTER).read_text().splitlines()[0] == '"""'  # its front matter is read there
