"""Every type of the installed SDKs is classified,
and types that cannot hold a call cost no number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.formats import MESSAGES, RESPONSES, EventMeaning, Format
from proxy.formats.events.known_types import (
    BLOCK_DELTAS,
    BLOCKS,
    ITEMS,
    MESSAGE_EVENTS,
    RESPONSE_EVENTS,
    KindOfType,
)
from proxy.formats.messages.messages_stream import answering_model
from proxy.formats.messages.messages_stream import may_call as may_block_call
from proxy.formats.responses.responses_stream import may_call as may_item_call
from proxy.http.wire.sse import Event

ROOT = Path(__file__).parents[3]
NEWEST = ROOT / ".venv-clients" / "newest" / "bin" / "python"
LISTED = """
import json, sys, typing
from importlib import import_module

def members(kind):
    parts = typing.get_args(kind)
    if hasattr(kind, "__metadata__"):
        return members(parts[0])
    return [each for part in parts for each in members(part)] if parts else [kind]

def types(place):
    module, _, name = place.partition(":")
    kind = getattr(import_module(module), name)
    fields = (each.model_fields["type"].annotation for each in members(kind))
    return sorted(name for field in fields for name in typing.get_args(field))

print(json.dumps({place: types(place) for place in sys.argv[1:]}))
"""
OPENAI = {
    "openai.types.responses:ResponseOutputItem": ITEMS,
    "openai.types.responses:ResponseItem": ITEMS,
    "openai.types.responses:ResponseStreamEvent": RESPONSE_EVENTS,
}
ANTHROPIC = {
    "anthropic.types:ContentBlock": BLOCKS,
    "anthropic.types:RawContentBlockDelta": BLOCK_DELTAS,
    "anthropic.types:RawMessageStreamEvent": MESSAGE_EVENTS,
    "anthropic.types.beta:BetaContentBlock": BLOCKS,
    "anthropic.types.beta:BetaRawContentBlockDelta": BLOCK_DELTAS,
    "anthropic.types.beta:BetaRawMessageStreamEvent": MESSAGE_EVENTS,
}


def unclassified(python: Path, places: dict[str, dict[str, KindOfType]]) -> dict[str, list[str]]:
    """Return the types that an SDK defines and a table lacks, by place.

    The SDK's own interpreter lists them.
    """
    command = [str(python), "-c", LISTED, *places]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    missing = {place: sorted({*listed[place]} - table.keys()) for place, table in places.items()}
    return {place: names for place, names in missing.items() if names}


def test_the_locked_sdk_has_no_unknown_type() -> None:
    """Each item and event of the installed openai package is in its table."""
    assert unclassified(Path(sys.executable), OPENAI) == {}


def test_the_newest_sdks_have_no_unknown_type() -> None:
    """Each item and event of the pinned newest openai and anthropic packages is in its table."""
    if not NEWEST.exists():
        pytest.skip("the newest SDKs are not installed: run scripts/setup_clients")
    assert unclassified(NEWEST, OPENAI | ANTHROPIC) == {}


@pytest.mark.parametrize(("name", "kind"), ITEMS.items())
def test_items_that_call_are_those_of_the_table(name: str, kind: KindOfType) -> None:
    """The reader takes an item for a call exactly where the table says so."""
    assert may_item_call({"type": name}) is (kind == "call")


@pytest.mark.parametrize(("name", "kind"), BLOCKS.items())
def test_blocks_that_call_are_those_of_the_table(name: str, kind: KindOfType) -> None:
    """The reader takes a block for a call exactly where the table says so."""
    assert may_block_call({"type": name}) is (kind == "call")


def events(*members: dict[str, Any]) -> list[Event]:
    written = [(json.dumps(each), each["type"]) for each in members]
    return [Event(f"event: {name}\ndata: {data}\n\n".encode(), data) for data, name in written]


def sights(format: Format, *members: dict[str, Any]) -> list[EventMeaning]:
    assembler = format.assembler()
    return [assembler.add(event) for event in events(*members)]


def response(output: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    return {"id": "r", "object": "response", "status": status, "model": "m", "output": output}


def message(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.compaction.compacting", "item_id": "c", "output_index": 0},
        {"type": "codex.rate_limits", "rate_limits": {"primary": {"used_percent": 4}}},
        {"type": "vertex_event", "data": {"usage": {"tokens": 3}}},
        {"type": "response.something_new.in_progress", "item_id": "x", "sequence_number": 4},
    ],
    ids=lambda event: event["type"],
)
def test_events_without_a_call_cost_no_number(event: dict[str, Any]) -> None:
    """Such an event holds neither a call nor an unread part, and the answer is the text."""
    end = {"type": "response.completed", "response": response([message("Paris")])}
    assembler = RESPONSES.assembler()
    seen = [assembler.add(each) for each in events(event, end)]
    assert not any(meaning.calls_tool or meaning.is_unread for meaning in seen)
    [choice] = assembler.choices()
    assert choice.message == {"role": "assistant", "content": "Paris"}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "new_event", "name": "Bash", "input": {"command": "rm -rf /"}},
        {"type": "new_event", "item": {"type": "message"}},
        {"type": "response.new_call.done", "output_index": 0},
    ],
)
def test_unknown_events_that_may_call_are_calls(event: dict[str, Any]) -> None:
    """An event with a place for a call, or with a call's name, is never skipped."""
    [meaning] = sights(RESPONSES, event)
    assert meaning.calls_tool or meaning.is_unread


FALLBACK = {
    "type": "fallback",
    "from": {"model": "claude-fable-5"},
    "to": {"model": "claude-opus-5-5"},
    "trigger": {"type": "refusal"},
}
ITERATIONS = [
    {"type": "message", "model": "claude-fable-5", "input_tokens": 3, "output_tokens": 0},
    {"type": "fallback_message", "model": "claude-opus-5-5-20260901", "output_tokens": 2},
]


def test_a_fallback_block_is_text_and_names_the_model() -> None:
    """A reply with a fallback block is text of the model that stepped in, whole and streamed."""
    whole = {
        "type": "message",
        "model": "claude-fable-5",
        "stop_reason": "end_turn",
        "content": [FALLBACK, {"type": "text", "text": "Paris"}],
    }
    [choice] = MESSAGES.choices(whole)
    assert choice.message == {"role": "assistant", "content": "Paris"}
    assert answering_model(whole) == "claude-opus-5-5"
    with_usage = whole | {"usage": {"iterations": ITERATIONS}}
    assert answering_model(with_usage) == "claude-opus-5-5-20260901"
    assembler = MESSAGES.assembler()
    start = {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    streamed = events(
        start,
        {"type": "content_block_start", "index": 0, "content_block": FALLBACK},
        {"type": "content_block_stop", "index": 0},
    )
    assert not any(assembler.add(event).calls_tool for event in streamed)
    assert assembler.model == "claude-opus-5-5"


def test_commentary_is_not_the_answer() -> None:
    """A message marked as commentary counts only where nothing else is said."""
    commentary = message("I will look at the file first.", phase="commentary")
    final = message("There are three files.", phase="final_answer")
    [choice] = RESPONSES.choices(response([commentary, final]))
    assert choice.message["content"] == "There are three files."
    call = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
    [choice] = RESPONSES.choices(response([commentary, call]))
    assert choice.message["content"] == "I will look at the file first."


def test_an_unknown_block_or_item_without_a_call_is_passed_over() -> None:
    """A block or item of an unknown type is skipped, unless it has a part of an answer."""
    assert not may_block_call({"type": "vertex_event", "trace": "a"})
    assert not may_item_call({"type": "turn_diff", "files": 3})
    assert may_block_call({"type": "new_block", "text": "rm -rf /"})
    assert may_block_call({"type": "new_block", "name": "Bash", "input": {}})
    assert may_item_call({"type": "new_item", "arguments": "{}"})
    assert may_item_call({"no": "type"})
