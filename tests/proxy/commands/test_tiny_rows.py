"""With almost no rows, every command prints something that a user understands, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pinocchio.__main__ import _commands
from tests.builders.labelled_rows import write

COMMANDS = (
    ("certify", "{rows}", "--max-error", "0.2"),
    ("evaluate", "{rows}", "--scores", "{rows}"),
    ("advise", "{rows}"),
    ("recalibrate", "{rows}"),
    ("labels", "{rows}"),
    ("labels", "{rows}", "--sample", "100", "-o", "{out}"),
    ("filter", "{rows}", "--keep", "0.5", "-o", "{out}"),
    ("pairs", "{rows}", "-o", "{out}"),
    ("study", "failures", "{rows}", "--calibrator", "fake:0.5"),
    ("study", "{rows}", "--out", "{out}", "--calibrator", "fake:0.5"),
)


def raw(number: int, correct: int) -> dict[str, Any]:
    members = {"id": str(number), "question": f"q{number}", "response": "r"}
    return members | {"correct": correct, "confidence": 0.5 + number / 100}


ROWS = {
    "none": [],
    "one": [raw(0, 1)],
    "two": [raw(0, 1), raw(1, 0)],
    "five right": [raw(number, 1) for number in range(5)],
    "one wrong of ten": [raw(number, int(number > 0)) for number in range(10)],
    "one question": [raw(number, number % 2) | {"question": "q"} for number in range(10)],
}


@pytest.fixture(scope="module")
def cli() -> typer.Typer:
    """Return the program with all its commands."""
    return _commands(only=None)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_librarys_words_never_reach_the_user(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: typer.Typer,
    command: tuple[str, ...],
    rows: str,
) -> None:
    """No output has a traceback, a warning of numpy's, or a figure that is no number."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(tmp_path / "cache"))
    places = {"rows": write(tmp_path / "rows.jsonl", ROWS[rows]), "out": tmp_path / "out"}
    result = CliRunner().invoke(cli, [word.format(**places) for word in command])
    output = result.stdout + result.stderr
    assert result.exit_code in (0, 1, 2, 3), output
    for word in ("Traceback", "Warning", "site-packages", " nan", "No such"):
        assert word not in output
