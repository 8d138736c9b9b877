"""Audits of labels: a sample's error rate (D06), and judges beside each other (D07)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from calibrator.errors import JudgingError
from calibrator.lab.data.benchmarks.label_checks import ANSWER, audit, draw_rows, self_preference
from tests.running.live_proxy import run_cli

Json = dict[str, Any]


def judged(count: int, bias: float, seed: int = 3) -> list[Json]:
    """Return replies of two models to each question, judged by both; the first favours its own."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in range(count):
        for model in ("org/alpha", "beta"):
            is_right = rng.random() < 0.5
            kind = is_right or (model == "org/alpha" and rng.random() < bias)
            verdicts = {"alpha": int(kind), "beta": int(is_right)}
            rows.append({"question_id": f"q{n}", "model": model, "verdicts": verdicts})
    return rows


def test_the_rate_has_wilsons_interval() -> None:
    """The error rate has Wilson's interval as in scipy, over rows that were looked at."""
    rows: list[Json] = [{ANSWER: n >= 3, "graded_by": "fuzzy"} for n in range(60)]
    found = audit([*rows, {ANSWER: None}, {}])
    wanted = binomtest(3, 60).proportion_ci(method="wilson")
    assert (found.wrong, found.looked_at, found.left) == (3, 60, 2)
    assert (found.rate.low, found.rate.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)
    assert found.wrong_by == {"fuzzy": 3}


def test_a_sample_without_errors_still_has_a_bound() -> None:
    """A sample without errors has an upper bound above 0."""
    found = audit([{ANSWER: True}] * 60)
    assert found.rate.value == 0.0
    assert 0.04 < found.rate.high < 0.08


def test_a_sample_is_drawn_at_random_and_again_the_same() -> None:
    """A sample is drawn by its seed."""
    rows: list[Json] = [{"id": n} for n in range(1_000)]
    first = draw_rows(rows, 100, 1)
    assert first == draw_rows(rows, 100, 1)
    assert first != draw_rows(rows, 100, 2)
    assert len({row["id"] for row in first}) == 100
    assert len(draw_rows(rows, 5_000, 1)) == 1_000


@pytest.mark.parametrize("rows", [[{"id": 1}], [{ANSWER: "yes"}]])
def test_what_nobody_looked_at_has_no_rate(rows: list[Json]) -> None:
    """Without answers of true or false there is no rate."""
    with pytest.raises(JudgingError):
        audit(rows)


@pytest.mark.parametrize(("bias", "is_seen"), [(0.4, True), (0.0, False)])
def test_a_judge_that_prefers_its_own_model_is_seen(bias: float, is_seen: bool) -> None:
    """A judge that prefers its own model has a positive preference, a fair one about 0."""
    first, second = self_preference(judged(400, bias))
    assert (first.judge, first.own, first.replies) == ("alpha", 400, 800)
    assert first.preference == pytest.approx(bias / 2, abs=0.06)
    assert (first.low > 0.05) is is_seen
    assert first.low <= first.preference <= first.high
    assert second.preference == pytest.approx(first.preference, abs=1e-9)


def test_a_judge_that_answered_nothing_has_no_preference() -> None:
    """A judge without own replies has no preference, and one judge alone is refused."""
    rows = [{**row, "model": "gamma"} for row in judged(10, 0.5)]
    assert math.isnan(self_preference(rows)[0].preference)
    with pytest.raises(JudgingError, match="two judges"):
        self_preference([{**row, "verdicts": {"alpha": 1}} for row in rows])


def test_the_commands_from_sample_to_rate(tmp_path: Path) -> None:
    """The commands draw a sample, count its wrong labels and compare the judges."""
    rows, look = tmp_path / "rows.jsonl", tmp_path / "look.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in judged(50, 0.4)))
    assert run_cli("labels", str(rows), "--sample", "20", "-o", str(look)).returncode == 0
    drawn_rows = [json.loads(line) for line in look.read_text().splitlines()]
    assert [row.pop(ANSWER) for row in drawn_rows] == [None] * 20
    assert run_cli("labels", str(look), "--audit").returncode == 2
    marked = [{**row, ANSWER: n > 0} for n, row in enumerate(drawn_rows)]
    look.write_text("".join(f"{json.dumps(row)}\n" for row in marked))
    assert "1 of 20 labels are wrong: 5.00%" in run_cli("labels", str(look), "--audit").stdout
    output = run_cli("labels", str(rows), "--self-preference", "--json").stdout
    assert [json.loads(line)["judge"] for line in output.splitlines()] == ["alpha", "beta"]
