"""Rows that repeat or contradict each other are reported by every command that judges."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibrator.rows.rows import parse_row
from calibrator.rows.selection import copies_in
from tests.builders.labelled_rows import write
from tests.running.live_proxy import ROOT, environment, run_cli


def row(n: int, **members: Any) -> dict[str, Any]:
    fields = {"id": str(n), "question": f"What is {n}?", "response": str(n), "correct": n % 2}
    return {**fields, "model": "m", "confidence": 0.5 + n / 1_000, **members}


def test_copies_and_contradictions_differ() -> None:
    """The same reply of the same model is a copy; two labels for a reply are a contradiction."""
    rows = [row(1), row(1, id="2"), row(1, model="n"), row(3), row(3, correct=0, model="n"), row(5)]
    found = copies_in([parse_row(each) for each in rows])
    assert (found.rows, found.repeated, found.contradicting) == (6, 1, 2)
    assert found.example is not None
    assert found.example.raw["id"] == "3"
    sentences = list(found.sentences())
    assert sentences[0].startswith(
        "1 of 6 rows repeat another one (same question, reply and model)"
    )
    assert sentences[1].startswith("2 rows contradict each other")


def test_white_space_hides_no_copy() -> None:
    """White space at the end of a reply hides no copy."""
    rows = [row(1), row(1, response=f"{row(1)['response']}\n", correct=0)]
    found = copies_in([parse_row(each) for each in rows])
    assert (found.repeated, found.contradicting) == (1, 2)


def test_rows_without_copies_are_not_mentioned() -> None:
    """Rows that all differ are not mentioned."""
    rows = [parse_row(row(n, response="yes")) for n in range(9)]
    assert list(copies_in(rows).sentences()) == []
    assert list(copies_in([]).sentences()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("labels", "FILE"),
        ("evaluate", "FILE", "--scores", "FILE", "--no-baselines"),
        ("advise", "FILE", "--scores", "FILE"),
        ("certify", "FILE", "--max-error", "0.2"),
        ("recalibrate", "FILE", "--scores", "FILE", "--kind", "platt", "-o", "OUT"),
    ],
    ids=lambda command: str(command[0]),
)
def test_every_command_that_judges_says_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Each command that judges reports copies and contradictions, with the place of one."""
    rows = [row(n, id=f"{n}/{copy}") for copy in range(3) for n in range(60)]
    rows.append(row(7, id="other", correct=0))
    places = {"FILE": str(write(tmp_path / "rows.jsonl", rows)), "OUT": str(tmp_path / "out.json")}
    done = run_cli(*[places.get(word, word) for word in command])
    assert "121 of 181 rows repeat another one" in done.stderr
    assert "4 rows contradict each other" in done.stderr
    assert "rows.jsonl:8" in done.stderr


def test_two_labels_raise_no_warning_of_numpy(tmp_path: Path) -> None:
    """A row of each label gives no warning of numpy."""
    rows = [row(0), row(1)]
    done = run_cli("certify", str(write(tmp_path / "two.jsonl", rows)), "--max-error", "0.2")
    assert done.returncode == 3
    assert "Warning" not in done.stderr


def test_a_reader_that_has_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    """A closed pipe ends `pinocchio score` without an error or a traceback."""
    rows = write(tmp_path / "rows.jsonl", [row(n, response="x" * 2_000) for n in range(300)])
    command = [sys.executable, "-m", "pinocchio", "score", str(rows), "--calibrator", "fake:0.5"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert "roken pipe" not in errors
    assert "Traceback" not in errors
