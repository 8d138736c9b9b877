"""The example's labelled calls: well formed, and the calibrator's accuracy on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from calibrator.rows.rows import parse_row
from tests.running.live_proxy import ROOT, run_cli

SCRIPT = ROOT / "examples" / "agents" / "labelled_calls.py"
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
}
MEASURED = 0.769  # AUROC of the shipped checkpoint, as in the model card


@pytest.fixture(scope="module")
def printed() -> str:
    """Return the output of the script."""
    command = [sys.executable, str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def rows(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_each_task_has_right_and_wrong_replies_of_its_own(rows: list[dict[str, Any]]) -> None:
    """Each task has right and wrong replies, all different."""
    labels, answers = defaultdict(set), defaultdict(list)
    for row in rows:
        labels[row["question_id"]].add(row["correct"])
        answers[row["question_id"]].append(parse_row(row).answer)
    assert len(labels) == 40
    assert all(found == {0, 1} for found in labels.values())
    assert all(len(set(texts)) == len(texts) for texts in answers.values())


def test_every_call_fits_a_tool_that_was_offered(rows: list[dict[str, Any]]) -> None:
    """Every call fits its tool, so that its form does not reveal whether it is wrong."""
    for row in rows:
        offered = {each["function"]["name"]: each["function"] for each in row["tools"]}
        for message in [*row["messages"], row["response"]]:
            for call in message.get("tool_calls") or ():
                takes = offered[call["function"]["name"]]["parameters"]["properties"]
                arguments = json.loads(call["function"]["arguments"])
                assert set(arguments) == set(takes), row["id"]
                for name, value in arguments.items():
                    assert isinstance(value, KINDS[takes[name]["type"]]), (row["id"], name)


def test_what_the_model_card_says_of_them_is_measured(printed: str, tmp_path: Path) -> None:
    """The model card's AUROC on these calls is measured."""
    calls = tmp_path / "calls.jsonl"
    calls.write_text(printed)
    found = _pooled(calls, tmp_path / "evaluation.json")
    print({name: found[name] for name in ("auroc", "within", "coverage_95", "coverage_99")})
    assert found["rows"] == 148
    assert found["auroc"] == pytest.approx(MEASURED, abs=0.02)
    assert found["coverage_95"] < 0.05


def _pooled(calls: Path, evaluation: Path) -> dict[str, Any]:
    done = run_cli("evaluate", str(calls), "-o", str(evaluation))
    assert done.returncode == 0, done.stderr
    results = json.loads(evaluation.read_text())["results"]
    (pooled,) = [each for each in results if each["kind"] == "pooled"]
    return dict(pooled)
