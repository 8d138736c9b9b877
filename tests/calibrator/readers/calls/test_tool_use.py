"""Tool use reaches the scorer with its whole conversation, on every path."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from calibrator import Item, Pinocchio, Question, Score, ToolUse, read_question
from calibrator.rows.rows import parse_row
from proxy.errors import ProxyError
from proxy.formats import Choice
from proxy.formats.chat import ChatFormat
from proxy.formats.messages.messages import MessagesFormat
from proxy.formats.responses.responses import ResponsesFormat
from proxy.scoring.engines.scorer_protocol import items_body, read_items
from proxy.scoring.scoring import ScoreRequest, Scoring
from tests.running.live_proxy import until

Json = dict[str, Any]

ARGUMENTS = '{"lamp": "L-9"}'
CALL = {"id": "c1", "type": "function", "function": {"name": "dim_lamp", "arguments": ARGUMENTS}}
MESSAGE: Json = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOLS = [{"type": "function", "function": {"name": "dim_lamp", "parameters": {}}}]
MESSAGES: list[Json] = [
    {"role": "system", "content": "Be kind to lamps."},
    {"role": "user", "content": "Dim lamp L-9."},
]


class Recorder:
    """A scorer that gives all items the same score and records them."""

    name = "recorder@1"

    def __init__(self) -> None:
        self.seen: list[Item] = []

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.seen += items
        return [Score(0.5, 0.5) for _ in items]


def test_a_row_that_calls_a_tool_carries_its_conversation() -> None:
    """A row that calls a tool keeps its messages, tools and message."""
    row = {"messages": MESSAGES, "tools": TOOLS, "response": MESSAGE, "correct": 1}
    used = parse_row(row).item().tool_use
    assert used == ToolUse(MESSAGES, TOOLS, MESSAGE)
    assert used is not None
    assert used.messages is MESSAGES  # a reference, not a copy


def test_text_carries_it_where_tools_are() -> None:
    """A reply of text has its conversation if tools were offered or used, and has no calls."""
    reply = {"role": "assistant", "content": "It is dim."}
    result = {"role": "tool", "tool_call_id": "c1", "content": "dim"}
    for row in (
        {"messages": MESSAGES, "tools": TOOLS, "response": reply},
        {"messages": MESSAGES, "tools": TOOLS, "response": reply | {"tool_calls": []}},
        {"messages": MESSAGES, "tools": TOOLS, "response": "It is dim."},
        {"messages": [*MESSAGES, MESSAGE, result], "response": reply},
    ):
        used = parse_row(row).item().tool_use
        assert used is not None
        assert not used.has_calls
        assert used.message["content"] == "It is dim."
    used = parse_row({"messages": MESSAGES, "response": MESSAGE}).tool_use
    assert used is not None
    assert used.has_calls


def test_text_without_tools_carries_none() -> None:
    """A reply of text without tools has no tool use."""
    reply = {"role": "assistant", "content": "It is dim."}
    for row in (
        {"messages": MESSAGES, "response": reply},
        {"messages": MESSAGES, "tools": [], "response": reply},
        {"question": "Dim?", "response": "[dim_lamp(lamp='L-9')]"},
    ):
        assert parse_row(row).item().tool_use is None


def test_a_question_becomes_the_users_message() -> None:
    """In a row without messages, the question is the user's message."""
    used = parse_row({"question": "Dim L-9.", "response": MESSAGE}).tool_use
    assert used == ToolUse([{"role": "user", "content": "Dim L-9."}], (), MESSAGE)


def test_messages_may_stand_beside_the_text() -> None:
    """A row may have both a question as text and messages."""
    row = {"question": "Dim L-9.", "messages": MESSAGES, "tools": TOOLS, "response": MESSAGE}
    assert parse_row(row).question == "Dim L-9."
    assert parse_row(row).tool_use == ToolUse(MESSAGES, TOOLS, MESSAGE)


def test_a_legacy_call_counts_too() -> None:
    """`function_call`, the form before `tool_calls`, is a call."""
    legacy = {"role": "assistant", "content": None, "function_call": CALL["function"]}
    assert read_question(MESSAGES).tool_use(legacy) == ToolUse(MESSAGES, (), legacy)


def test_the_judge_hands_calls_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Pinocchio.score` and `scores` give the scorer each choice's own message."""
    recorder = Recorder()
    monkeypatch.setattr("calibrator.pinocchio.load_scorer", lambda *_: recorder)
    judge = Pinocchio("fake:0.5")
    text = {"role": "assistant", "content": "No."}
    completion = {"choices": [{"message": MESSAGE}, {"message": text}]}
    judge.scores(completion, messages=MESSAGES, tools=TOOLS)
    judge.score(MESSAGE, messages=MESSAGES, tools=TOOLS)
    used = [item.tool_use for item in sorted(recorder.seen, key=lambda item: item.answer)]
    assert used[0] == ToolUse(MESSAGES, TOOLS, text)
    assert used[1:] == [ToolUse(MESSAGES, TOOLS, MESSAGE)] * 2


def test_an_item_can_be_pickled() -> None:
    """An item with tool use can be pickled."""
    item = Item("q", "a", tool_use=ToolUse(MESSAGES, TOOLS, MESSAGE))
    assert pickle.loads(pickle.dumps(item)) == item


def test_every_surface_gives_the_same_conversation() -> None:
    """Chat, responses and messages arrive as the same conversation in the form of chat."""
    question, output, result = "Dim lamp L-9.", "L-9 is bright.", ARGUMENTS
    chat = {
        "messages": [
            *MESSAGES,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": output},
        ],
        "tools": TOOLS,
    }
    item = {"type": "function_call", "call_id": "c1", "name": "dim_lamp", "arguments": result}
    responses = {
        "instructions": "Be kind to lamps.",
        "input": [
            {"role": "user", "content": question},
            item,
            {"type": "function_call_output", "call_id": "c1", "output": output},
        ],
        "tools": [{"type": "function", "name": "dim_lamp", "parameters": {}}],
    }
    block = {"type": "tool_use", "id": "c1", "name": "dim_lamp", "input": json.loads(ARGUMENTS)}
    messages = {
        "system": [{"type": "text", "text": "Be kind to lamps."}],
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [block]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": output}],
            },
        ],
        "tools": [{"name": "dim_lamp", "input_schema": {}}],
    }
    for read in (
        ChatFormat().question(chat),
        ResponsesFormat().question(responses),
        MessagesFormat().question(messages),
    ):
        used = read.tool_use(MESSAGE)
        assert used is not None
        assert [m["role"] for m in used.messages] == ["system", "user", "assistant", "tool"]
        assert [m["content"] or None for m in used.messages] == [
            "Be kind to lamps.",
            question,
            None,
            output,
        ]
        assert used.messages[2]["tool_calls"][0]["function"]["name"] == "dim_lamp"
        assert used.tools[0]["function"]["name"] == "dim_lamp"


def test_a_long_past_in_messages_is_not_converted_for_text() -> None:
    """A long past in messages is converted only for tool use."""
    turns = [{"role": "user", "content": f"turn {n} " + "x" * 100} for n in range(3_000)]
    question = MessagesFormat().question({"messages": turns})
    assert len(question.messages) < 50
    used = question.tool_use(MESSAGE)
    assert used is not None
    assert 500 < len(used.messages) < 1_500


async def test_the_proxy_hands_calls_on() -> None:
    """All choices carry the conversation if tools were offered, otherwise those with calls."""
    recorder = Recorder()
    scoring = Scoring(lambda: recorder)
    scoring.start()
    await asyncio.to_thread(until, lambda: scoring.is_ready)
    text = {"role": "assistant", "content": "No."}
    choices = [Choice(0, MESSAGE), Choice(1, text)]
    await scoring.score(ScoreRequest(lambda: read_question(MESSAGES, TOOLS), choices, "m"))
    await scoring.score(ScoreRequest(lambda: Question("why?"), choices, "m"))
    scoring.close()
    assert [item.tool_use for item in recorder.seen[1:]] == [
        ToolUse(MESSAGES, TOOLS, MESSAGE),
        ToolUse(MESSAGES, TOOLS, text),
        ToolUse([{"role": "user", "content": "why?"}], (), MESSAGE),
        None,
    ]


def test_the_wire_carries_it_where_it_is_read() -> None:
    """A server that reads calls gets them; of images in the conversation it gets only the type."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]}
    item = Item("q", "a", tool_use=ToolUse([*MESSAGES, seen], TOOLS, MESSAGE))
    [read] = read_items(items_body([item]))
    light = {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url"}]}
    assert read.tool_use == ToolUse([*MESSAGES, light], TOOLS, MESSAGE)
    assert read_items(items_body([item], has_tool_use=False)) == [Item("q", "a")]


@pytest.mark.parametrize(
    "used", [[], {"messages": []}, {"messages": {}, "tools": [], "message": {}}]
)
def test_what_is_no_tool_use_is_refused(used: Any) -> None:
    """Tool use of another form is refused by its place."""
    body = json.dumps({"items": [{"question": "q", "answer": "a", "tool_use": used}]}).encode()
    with pytest.raises(ProxyError, match="tool_use"):
        read_items(body)
