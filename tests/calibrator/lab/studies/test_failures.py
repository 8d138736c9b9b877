"""Hard errors by benchmark, and ranking against accuracy (paper S01, S02, S04, H14)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from calibrator.errors import JudgingError
from calibrator.lab.studies.failures import study_failures
from calibrator.metrics.rankings import spearman
from calibrator.rows.rows import Row, parse_row
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write


def row(n: int, correct: int, benchmark: str = "a", stated: float | None = None) -> Row:
    raw = {"id": f"r{n}", "question": f"{n}?", "response": "x", "correct": correct}
    return parse_row({**raw, "benchmark": benchmark, "verbalized_confidence": stated})


def test_hard_errors_are_counted_at_the_papers_thresholds() -> None:
    """Hard errors are wrong above .9 or right below .1; other shares are beside them."""
    cases = [(0, 0.95), (0, 0.9), (0, 0.85), (1, 0.05), (1, 0.1), (1, 0.15), (1, 0.5), (0, 0.5)]
    rows = [row(n, correct) for n, (correct, _) in enumerate(cases)]
    found = study_failures(rows, np.array([p for _, p in cases]), "m")
    [one] = found.entries
    assert (one.sure_wrong, one.unsure_right) == (1, 1)
    assert (one.right_below, one.wrong_above) == (0.75, 0.75)
    assert (found.sure_wrong, found.unsure_right) == (["r0"], ["r3"])
    assert found.all.rows == 8


def test_benchmarks_with_most_hard_errors_stand_first() -> None:
    """Benchmarks with the most hard errors come first, and of their rows the worst ones."""
    rows = [row(n, 0, "b" if n < 6 else "a") for n in range(8)]
    confidence = np.array([0.91, 0.99, 0.95, 0.2, 0.2, 0.2, 0.97, 0.3])
    found = study_failures(rows, confidence, "m")
    assert [(each.benchmark, each.sure_wrong) for each in found.entries] == [("b", 3), ("a", 1)]
    assert found.sure_wrong == ["r1", "r6", "r2", "r0"]
    assert np.isnan(found.all.right_below)
    assert json.loads(found.as_json())["all"]["right_below"] is None


def test_replies_that_are_sure_of_themselves_and_denied_are_counted() -> None:
    """Replies that state 100 % and get less than .01 are counted (O02)."""
    rows = [row(0, 0, stated=1.0), row(1, 1, stated=1.0), row(2, 0, stated=0.99), row(3, 0)]
    found = study_failures(rows, np.array([0.001, 0.002, 0.001, 0.001]), "m")
    assert (found.stated_sure, found.stated_sure_wrong) == (2, 1)


@pytest.mark.parametrize("seed", range(5))
def test_spearman_is_scipys(seed: int) -> None:
    """Spearman's rho and p are scipy's, with ties, to nine digits."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 6, 25), rng.normal(size=25).round(1)
    found, wanted = spearman(one, other), spearmanr(one, other)
    assert (found.rho, found.p) == pytest.approx((wanted.statistic, wanted.pvalue), abs=1e-9)


def test_without_variation_there_is_no_correlation() -> None:
    """Without variation, or with two pairs, the correlation is NaN."""
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]).rho)
    assert np.isnan(spearman([1, 2], [1, 2]).rho)
    assert spearman([1, 2, 3], [30, 20, 10]).rho == -1.0


def test_no_row_is_an_error() -> None:
    """Without rows there is an error."""
    with pytest.raises(JudgingError):
        study_failures([], np.array([]), "m")


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    """The command prints a line for each benchmark and one for all."""
    rows = write(tmp_path / "rows.jsonl", raw_rows(200, seed=2))
    output = tmp_path / "failures.json"
    arguments = ["study", "failures", str(rows), "--calibrator", "fake:0.95", "-o", str(output)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    written = json.loads(output.read_text())
    assert len(lines) == 1 + len(written["entries"]) + 1 + 1  # no rank without an order
    assert f"{written['all']['sure_wrong']} hard errors" in lines[-1]
