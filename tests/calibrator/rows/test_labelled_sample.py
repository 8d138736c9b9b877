"""The page on labelled rows, with a sample that every command names and can read."""

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
    """The help of every command that reads rows names the sample."""
    done = pinocchio(command, "--help")
    assert done.returncode == 0, done.stderr
    assert SAMPLE in done.stdout


def test_the_sample_is_rows() -> None:
    """Every line of the sample is a complete row, with both labels."""
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
    """The page for beginners has the same commands."""
    assert sorted(commands_of(TO_BEGIN_WITH)) == sorted(commands_of(PAGE))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scored") / "scored.jsonl"
    done = pinocchio("score", SAMPLE, "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("arguments", commands_of(PAGE))
def test_the_commands_of_the_page_work(arguments: str, scored: Path, tmp_path: Path) -> None:
    """Each command of the page runs on the sample."""
    placed = arguments.replace("report.html", str(tmp_path / "report.html"))
    placed = re.sub(r"(?<!-o )scored\.jsonl", str(scored), placed)
    placed = placed.replace("-o scored.jsonl", f"-o {tmp_path / 'again.jsonl'}")
    done = pinocchio(*placed.split())
    assert done.returncode in ((0, 3) if arguments.startswith("certify") else (0,)), done.stderr


def test_the_shortest_row_of_the_page_is_one() -> None:
    """The page's shortest row is valid, and its table has every field."""
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
    """A field of a similar name is refused with the right name."""
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row) + "\n")
    done = pinocchio("evaluate", str(path), "--calibrator", "fake:0.5")
    assert done.returncode == 2
    assert f"{path}:1: {message}" in done.stderr


def test_no_other_name_is_a_field_of_its_own() -> None:
    """No similar name is a field that a row may have."""
    taken = {*GOOD, "messages", "model", "gold", "id", "domain", "benchmark", "images", "image"}
    assert not taken & {name for names in OTHER_NAMES.values() for name in names}


def test_a_fault_of_all_rows_is_reported_briefly(tmp_path: Path) -> None:
    """The same fault in eighty rows gives a few lines."""
    rows = [GOOD, *({**GOOD, "response": 5} for _ in range(80))]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = pinocchio("score", str(path), "--calibrator", "fake:0.5")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 5
    assert lines[3].startswith("... and 77 more rows have the same fault: 'response' must be")
    assert lines[4] == "pinocchio: 80 of 81 rows could not be used"
