"""`pinocchio study calls` as a person runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrator.lab.studies.studies import Study, entry_of, read_study
from calibrator.lab.studies.trained import calls_study as study
from calibrator.rows.rows import Row
from pinocchio.commands import cli
from tests.builders.labelled_rows import noisy, raw_rows, write


def test_it_prints_and_writes_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study trains on the rows beside, judges at most `--rows`, prints and writes."""
    write(tmp_path / "train" / "rows.jsonl", raw_rows(60, seed=1))
    judged = write(tmp_path / "test" / "rows.jsonl", raw_rows(120, seed=2))
    seen: dict[str, Any] = {}

    def measure(train: Sequence[Row], test: list[Row], *, most: int, say: Any) -> Study:
        seen.update(train=len(train), test=len(test), most=most)
        return Study("calls", "trees", [entry_of("source: a", 60, test, noisy(test, 1), None, 10)])

    monkeypatch.setattr(study, "calls_study", measure)
    output = tmp_path / "study.json"
    done = CliRunner().invoke(
        cli, ["study", "calls", str(judged), "--rows", "100", "-o", str(output)]
    )
    assert done.exit_code == 0, done.stderr
    assert seen == {"train": 60, "test": 120, "most": 100}
    assert [entry.label for entry in read_study(output).entries] == ["source: a"]
    assert "source: a" in done.stdout
