"""The demo's answers as labelled rows of `scripts/demo_rows.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from calibrator import load_scorer
from calibrator.lab.judging.sensitivity import sensitivity_of
from calibrator.lab.judging.sensitivity.tables import kinds_table
from calibrator.metrics.metrics import auroc
from calibrator.rows.rows import Row, read_rows
from calibrator.rows.scores import score_rows
from proxy.upstreams.demo.demo import EMBEDDED_AUROC
from proxy.upstreams.demo.demo import rows as demo_answers

ROOT = Path(__file__).parents[5]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    path = tmp_path_factory.mktemp("demo") / "demo.jsonl"
    command = [sys.executable, "scripts/demo_rows.py", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [row for _, row in read_rows(path) if isinstance(row, Row)]


def test_every_answer_is_a_row(rows: list[Row]) -> None:
    """Every answer is a row with label and model, and with its calls."""
    answers = demo_answers()
    assert [row.correct for row in rows] == [int(answer.correct) for answer in answers]
    calling = [row.tool_use is not None and row.tool_use.has_calls for row in rows]
    assert calling == [bool(answer.calls) for answer in answers]
    assert {row.model for row in rows} == {"demo"}
    assert len({json.dumps(row.raw["id"]) for row in rows}) == len(rows)


def test_the_rows_are_the_demo_that_the_greeting_speaks_of(rows: list[Row]) -> None:
    """The AUROC of the rows is the one that the greeting states."""
    scorer = load_scorer("embedded")
    confidence = score_rows(scorer, rows).confidence
    measured = auroc([row.correct or 0 for row in rows], confidence)
    assert measured == pytest.approx(EMBEDDED_AUROC, abs=0.01)


def test_the_demos_right_answers_can_be_made_wrong(rows: list[Row]) -> None:
    """Enough of the demo's right answers can be made wrong for six kinds of corruption."""
    found = sensitivity_of(load_scorer("embedded"), rows)
    measured = [one for one in found.means if one.benchmarks]
    head, lines = kinds_table(found)
    print(*("  ".join(cells) for cells in (head, *lines)), sep="\n")
    assert len([one for one in measured if not one.is_call]) >= 6
    assert all(0 <= one.auroc <= 1 for one in measured)
