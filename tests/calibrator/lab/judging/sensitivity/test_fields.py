"""Arguments of a call from nowhere: their marks and shares, and a study of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrator.loading import load_scorer
from calibrator.readers.calls import argument_doubts, read_reply
from calibrator.scorer import FieldDoubt, Item, Scorer, ToolUse
from pinocchio.commands import cli
from tests.builders.labelled_rows import write
from tests.calibrator.readers.calls.conversations import RIGHT, renting


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer("embedded", "cpu")


def _scored(scorer: Scorer, used: ToolUse) -> tuple[FieldDoubt, ...]:
    [score] = scorer.score_batch([Item("", "", "gpt-4o", tool_use=used)])
    return score.fields


def test_an_argument_from_nowhere_costs_the_call_its_number(scorer: Scorer) -> None:
    """An argument from nowhere is reported with its call and share, one of the user's is not."""
    [doubt] = _scored(scorer, renting(RIGHT | {"boat_id": "B-77"}))
    assert (doubt.call, doubt.name) == (0, "boat_id")
    assert doubt.mark.startswith("not in the conversation")
    assert doubt.share is not None
    assert 0 < doubt.share < 1
    assert "boat_id" not in {each.name for each in _scored(scorer, renting(RIGHT))}


def test_the_share_is_the_number_beside_the_one_with_the_value_named() -> None:
    """The share is the number divided by the one with the value named, the most costly first.

    The conversation stays unchanged, and without a user there is no share.
    """
    used = renting(RIGHT | {"boat_id": "B-77", "day": "2031-12-24"})
    before = json.dumps(used.messages)

    def numbers(edited: Any) -> list[float]:
        texts = [str([m for m in each.messages if m["role"] == "user"]) for each in edited]
        return [0.8 if "B-77" in text else 0.4 for text in texts]

    doubts = argument_doubts(read_reply(used), 0.2, numbers)
    assert [(each.name, each.share) for each in doubts] == [("boat_id", 0.25), ("day", 0.5)]
    assert json.dumps(used.messages) == before
    bare = ToolUse((), (), used.message)
    assert {each.share for each in argument_doubts(read_reply(bare), 0.2, lambda _: [])} == {None}


def test_altered_arguments_named_first_are_counted(tmp_path: Path) -> None:
    """The study counts how often the altered argument comes first, for each kind of alteration."""
    rows = [
        {
            "id": str(number),
            "question_id": str(number),
            "benchmark": "boats",
            "messages": list(used.messages),
            "tools": list(used.tools),
            "response": dict(used.message),
            "correct": 1,
        }
        for number, used in enumerate(renting(RIGHT) for _ in range(3))
    ]
    file, output = write(tmp_path / "rows.jsonl", rows), tmp_path / "study.json"
    result = CliRunner().invoke(cli, ["study", "fields", str(file), "-o", str(output)])
    assert result.exit_code == 0, result.output
    entries = {each["kind"]: each for each in json.loads(output.read_text())["entries"]}
    together = entries["all"]
    assert together["replies"] == sum(
        each["replies"] for kind, each in entries.items() if kind != "all"
    )
    assert together["found"] > together["chance"]
