"""Corruptions of right calls: one thing is changed, and the reply stays well formed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from calibrator import ToolUse
from calibrator.lab.data.calls import corrupted_calls
from calibrator.lab.data.calls.changes import KINDS
from calibrator.lab.data.calls.corruptions import OTHER_REQUEST
from calibrator.lab.data.calls.disguises import SUSPICIOUS
from calibrator.lab.data.calls.drafts import apply_change
from calibrator.lab.data.calls.lessons import CORRUPTED, SUSPECT, lessons_of
from calibrator.lab.data.calls.worlds import scenes
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.rows.rows import Row, parse_row
from tests.calibrator.readers.calls.hostile_calls import hostile_calls

RIGHT = [scene.used for scene in scenes(160, 5) if scene.correct]

# What a kind may change: the call's name, its arguments, the messages before it, the tools
CALL_ALONE = {
    "other entity", "number moved", "told number", "unit changed", "date moved", "time moved",
    "invented", "placeholder", "swapped", "required dropped", "request repeated",
    "opposed value", "parent folder", "measure changed",
}  # fmt: skip


def parts(used: ToolUse) -> tuple[str, Any, Any, Any]:
    """Return name and arguments of the call, messages and tools."""
    function = used.message["tool_calls"][0]["function"]
    return function["name"], json.loads(function["arguments"]), used.messages, used.tools


def variants(change: Any, most: int = 12) -> list[tuple[ToolUse, ToolUse]]:
    """Return up to `most` replies before and after a change, skipping those it cannot change."""
    found = []
    for number, used in enumerate(RIGHT):
        after = apply_change(used, change, random.Random(number))
        if after is not None:
            found.append((used, after))
        if len(found) == most:
            break
    return found


@pytest.mark.parametrize("kind", [*KINDS, *SUSPICIOUS])
def test_a_change_leaves_what_it_came_from(kind: str) -> None:
    """A change works on a copy, gives another reply, and its calls can be read."""
    before = copy.deepcopy(RIGHT)
    found = variants((KINDS | SUSPICIOUS)[kind])
    assert found, "it applies nowhere"
    assert before == RIGHT
    for used, after in found:
        assert parts(after) != parts(used)
        json.dumps(after.messages)
        roles = [message["role"] for message in after.messages]
        assert set(roles) <= {"system", "user", "assistant", "tool"}


@pytest.mark.parametrize("kind", sorted(CALL_ALONE))
def test_a_change_of_the_call_touches_nothing_else(kind: str) -> None:
    """A change of the call alters only its arguments: one, or two if they are swapped."""
    for used, after in variants(KINDS[kind]):
        name, arguments, messages, tools = parts(after)
        own = parts(used)
        assert (name, messages, tools) == (own[0], own[2], own[3])
        differing = {n for n in own[1].keys() | arguments if own[1].get(n) != arguments.get(n)}
        assert len(differing) == (2 if kind == "swapped" else 1)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - CALL_ALONE - {"wrong tool", "opposed tool"}))
def test_a_change_of_the_conversation_leaves_the_call(kind: str) -> None:
    """A change of the conversation leaves the call unchanged."""
    for used, after in variants(KINDS[kind]):
        assert parts(after)[:2] == parts(used)[:2]
        assert after.messages != used.messages


def test_the_wrong_tool_is_one_that_was_offered() -> None:
    """A wrong tool is another offered one, with arguments that it takes."""
    for used, after in variants(KINDS["wrong tool"]):
        offered = {t["function"]["name"]: t["function"]["parameters"] for t in after.tools}
        name, arguments, messages, _ = parts(after)
        assert name != parts(used)[0]
        assert arguments.keys() <= offered[name]["properties"].keys()
        assert messages == used.messages


def test_types_stay() -> None:
    """Changed values keep their type."""
    for kind in CALL_ALONE - {"required dropped", "swapped"}:
        for used, after in variants(KINDS[kind]):
            old, new = parts(used)[1], parts(after)[1]
            assert all(type(old[name]) is type(new[name]) for name in old), kind


def test_invented_values_stand_nowhere() -> None:
    """Invented values are in no message."""
    for used, after in variants(KINDS["invented"]):
        old, new = parts(used)[1], parts(after)[1]
        fresh = next(str(new[name]) for name in old if old[name] != new[name])
        assert not any(fresh in (m.get("content") or "") for m in used.messages)


def test_only_ids_are_renamed() -> None:
    """Only ids are renamed, not texts, dates and numbers."""
    for used, after in variants(SUSPICIOUS["renamed ids"]):
        kinds = {v.text: v.kind for call in view_of(used).calls for v in call.values}
        old, new = parts(used)[1], parts(after)[1]
        renamed = {str(old[name]).casefold() for name in old if old[name] != new[name]}
        assert {kinds[text] for text in renamed} == {"id"}


def test_what_was_made_wrong_counts_once() -> None:
    """A corrupted lesson has a weight of 1, and a suspicious one its original's."""
    made = lessons_of([], 1, scene_count=80, faults=1)
    wrong = [lesson for lesson in made if lesson.origin == CORRUPTED]
    assert OTHER_REQUEST in {lesson.kind for lesson in wrong}
    assert {lesson.weight for lesson in wrong} == {1.0}
    assert {lesson.weight for lesson in made if lesson.origin == SUSPECT} == {1.0, 3.0}


def rows() -> list[Row]:
    return [
        parse_row(
            {"messages": used.messages, "tools": used.tools, "response": used.message,
             "question_id": str(number), "benchmark": "scenes", "correct": number % 4 != 0}
        )
        for number, used in enumerate(RIGHT[:40])
    ]  # fmt: skip


def test_pairs_are_of_right_rows_and_the_same_every_time() -> None:
    """Pairs have a right and a wrong row of the same question, the same for a seed."""
    found, again = corrupted_calls(rows(), seed=3), corrupted_calls(rows(), seed=3)
    assert found == again
    assert found.keys() <= {*KINDS, OTHER_REQUEST}
    assert len(found) > len(KINDS) - 3
    for pairs in found.values():
        for right, wrong in pairs:
            assert (right.correct, wrong.correct) == (1, 0)
            assert right.question_id == wrong.question_id
    assert corrupted_calls(rows(), seed=4) != found


def test_rows_without_calls_or_labels_are_passed_over() -> None:
    """Text, wrong rows and rows without a label give no pair."""
    text = parse_row({"question": "q", "response": "a", "correct": 1})
    wrong = [row for row in rows() if row.correct == 0]
    assert corrupted_calls([text, *wrong]) == {}


def test_hostile_replies_can_be_tried() -> None:
    """Corruptions of hostile replies give a reply or none, without an error."""
    odd = {k: u for k, u in hostile_calls().items() if k.startswith(("odd", "deep", "not a"))}
    for number, used in enumerate(each for k, each in odd.items() if not k.endswith(" 10")):
        for change in (KINDS | SUSPICIOUS).values():
            apply_change(used, change, random.Random(number))
