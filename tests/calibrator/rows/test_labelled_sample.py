"""The labelled row is described once, with a sample that every command names and can read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calibrator.rows.files import OTHER_NAMES, SAMPLE
from calibrator.rows.rows import Row, parse_row, read_rows
from tests.running.live_proxy import ROOT, run_cli

PAGE = ROOT / "examples" / "labelled" / "README.md"
TO_BEGIN_WITH = ROOT / "docs" / "start" / "research.md"
READERS = ("evaluate", "score", "labels", "advise", "study", "train", "recalibrate", "certify")
QUESTION = "What is 17 times 6?"
GOOD = {"question": QUESTION, "response": "102", "correct": 1}


def pinocchio(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_cli(*arguments, COLUMNS="200")


@pytest.mark.parametrize("command", [*READERS, "replay"])
def test_every_command_that_reads_rows_names_the_sample(command: str) -> None:
    """Nobody has to guess the fields: the help says them, and where more stands."""
    done = pinocchio(command, "--help")
    assert done.returncode == 0, done.stderr
    assert SAMPLE in done.stdout


def test_the_sample_is_rows() -> None:
    """Every line is a labelled row with the fields that the page calls better, in both labels."""
    rows = [row for _, row in read_rows(ROOT / SAMPLE)]
    assert len(rows) > 40
    good = [row for row in rows if isinstance(row, Row)]
    assert len(good) == len(rows)
    assert {row.correct for row in good} == {0, 1}
    assert all(row.model and row.raw["id"] and row.raw["question_id"] for row in good)
    assert any(row.tool_use and row.tool_use.has_calls for row in good)
    assert len({row.raw["id"] for row in good}) == len(good)


def commands_of(page: Path) -> list[str]:
    return re.findall(r"^    pinocchio (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_page_to_begin_with_has_the_same_commands() -> None:
    """So they need not be run twice."""
    assert sorted(commands_of(TO_BEGIN_WITH)) == sorted(commands_of(PAGE))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scored") / "scored.jsonl"
    done = pinocchio("score", SAMPLE, "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("arguments", commands_of(PAGE))
def test_the_commands_of_the_page_work(arguments: str, scored: Path, tmp_path: Path) -> None:
    """Each line of the page runs on the sample, as far as 46 rows allow."""
    placed = arguments.replace("report.html", str(tmp_path / "report.html"))
    placed = re.sub(r"(?<!-o )scored\.jsonl", str(scored), placed)
    placed = placed.replace("-o scored.jsonl", f"-o {tmp_path / 'again.jsonl'}")
    done = pinocchio(*placed.split())
    assert done.returncode in ((0, 3) if arguments.startswith("certify") else (0,)), done.stderr


def test_the_shortest_row_of_the_page_is_one() -> None:
    """And every field that the parser knows stands in the table."""
    text = PAGE.read_text(encoding="utf-8")
    shortest: dict[str, Any] = json.loads(re.findall(r"```json\n(.*)\n```", text)[0])
    assert parse_row(shortest).correct == 1
    for name in ("question", "messages", "response", "correct", "model", "question_id", "id",
                 "benchmark", "domain", "verbalized_confidence", "gold", "images", "prompt",
                 "image", "confidence", "calibrator", "tools"):  # fmt: skip
        assert f"`{name}`" in text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": QUESTION, "response": "102", "label": 1},
            "'correct' is missing; rename 'label' to 'correct' with 1 where the reply is right and "
            "0 where it is wrong",
        ),
        (
            {"question": QUESTION, "answer": "102", "correct": 1},
            "'response' is missing; rename 'answer' to 'response' if it is the reply that the "
            "model gave",
        ),
        (
            {"prompt": QUESTION, "response": "102", "correct": 1},
            "'question' (or 'messages') is missing; rename 'prompt' to 'question' if it is what "
            "the model was asked",
        ),
        (
            {"Question": QUESTION, "response": "102", "correct": 1},
            "'question' (or 'messages') is missing; rename 'Question' to 'question' if",
        ),
        (
            {"question": QUESTION, "respones": "102", "correct": 1},
            "'response' is missing; rename 'respones' to 'response' if",
        ),
        (
            {"messages": [{"role": "assistant", "content": "102"}], "correct": 1},
            "'response' is missing; move the last of 'messages', which is the reply, to 'response'",
        ),
        ({"question": QUESTION, "response": "102"}, "'correct' is missing; a row is"),
    ],
)
def test_near_misses_are_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A field of another name is told with the name to give it, never guessed."""
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row) + "\n")
    done = pinocchio("evaluate", str(path), "--calibrator", "fake:0.5")
    assert done.returncode == 2
    assert f"{path}:1: {message}" in done.stderr


def test_no_other_name_is_a_field_of_its_own() -> None:
    """A field that a row may have anyway is not taken for a slip."""
    taken = {*GOOD, "messages", "model", "gold", "id", "domain", "benchmark", "images", "image"}
    assert not taken & {name for names in OTHER_NAMES.values() for name in names}


def test_a_fault_of_all_rows_is_told_a_few_times(tmp_path: Path) -> None:
    """Eighty rows with the same fault are not eighty lines."""
    rows = [GOOD, *({**GOOD, "response": 5} for _ in range(80))]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = pinocchio("score", str(path), "--calibrator", "fake:0.5")
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert len(told) == 5
    assert told[3].startswith("... and 77 more rows have the same fault: 'response' must be")
    assert told[4] == "pinocchio: 80 of 81 rows could not be used"
