"""The judgement of methods: figures of groups, differences, JSON (paper H01-H16, J12)."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation import evaluate
from calibrator.lab.judging.evaluation.evaluate import (
    Evaluation,
    judge,
    question_numbers,
    read_evaluation,
    to_json,
)
from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.intervals import delong
from calibrator.metrics.metrics import auroc, brier, coverage_at, ece
from calibrator.rows.results import MEAN, Method
from calibrator.rows.rows import Row, Tags, parse_row
from tests.builders.labelled_rows import labelled, labels, noisy


def row(correct: int, benchmark: str | None = "a", question: str = "q") -> Row:
    return parse_row(
        {"question": question, "response": "x", "correct": correct, "benchmark": benchmark}
    )


def quick(rows: list[Row], *methods: Method) -> Evaluation:
    return judge(rows, methods, resamples=200, permutations=100)


def mine(confidence: object, tags: Tags | None = "served") -> Method:
    return Method("mine", np.asarray(confidence, dtype=float), tags)


def base(confidence: object, name: str = "base", tags: Tags | None = None) -> Method:
    return Method(name, np.asarray(confidence, dtype=float), tags, is_baseline=True)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return labelled(400, seed=1)


@pytest.fixture(scope="module")
def evaluation(rows: list[Row]) -> Evaluation:
    return quick(rows, mine(noisy(rows, 1, 0.4)), base(noisy(rows, 2, 0.1)))


def test_baselines_are_permuted_less(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines get at most 1,000 permutations."""
    counts: dict[str, int] = {}
    real = evaluate.draw

    def noted(method: Method, *others: Any) -> Any:
        counts[method.name] = others[-1]
        return real(method, *others)

    monkeypatch.setattr(evaluate, "draw", noted)
    methods = (mine(noisy(rows, 1, 0.4)), base(noisy(rows, 2, 0.1)))
    judge(rows[:40], [replace(m, confidence=m.confidence[:40]) for m in methods],
          resamples=2, permutations=1_001)  # fmt: skip
    assert counts == {"mine": 1_001, "base": 1_000}


def test_figures_are_those_of_the_groups_rows(rows: list[Row], evaluation: Evaluation) -> None:
    """A group's figures are computed on its rows alone (J12)."""
    p, y, q = noisy(rows, 1, 0.4), labels(rows), question_numbers(rows)
    for group, at in {
        "history": [i for i, r in enumerate(rows) if r.benchmark == "history"],
        "llama-tiny": [i for i, r in enumerate(rows) if r.model == "llama-tiny"],
        "pooled": list(range(400)),
    }.items():
        found = evaluation.find(group)
        assert found is not None
        assert found.rows == len(at)
        assert found.accuracy == pytest.approx(y[at].mean())
        assert found.auroc == pytest.approx(auroc(y[at], p[at]))
        assert found.brier == pytest.approx(brier(y[at], p[at]))
        assert found.ece == pytest.approx(ece(y[at], p[at]))
        assert found.coverage_90 == pytest.approx(coverage_at(y[at], p[at], 0.9))
        within = disagreement(y[at], p[at], q[at], permutations=0)
        assert within is not None
        assert found.within == pytest.approx(within.auroc)


def test_the_mean_is_unweighted(evaluation: Evaluation) -> None:
    """The mean counts each benchmark once, the pooled figure each row (H16)."""
    mean = evaluation.find(MEAN)
    assert mean is not None
    for name in ("accuracy", "auroc", "brier", "ece", "coverage_95", "within"):
        each = [getattr(one, name) for one in evaluation.of_kind("benchmark")]
        assert getattr(mean, name) == pytest.approx(np.mean(each))
    assert mean.question_low < mean.auroc < mean.question_high


def test_every_group_of_the_judged_method_has_intervals(evaluation: Evaluation) -> None:
    """Groups have intervals over replies and over questions; baselines only pooled ones (H02)."""
    for one in evaluation.of_kind("benchmark"):
        assert one.low < one.auroc < one.high
        assert one.question_low < one.auroc < one.question_high
    theirs = evaluation.find("pooled", "base")
    assert theirs is not None
    assert theirs.low < theirs.auroc < theirs.high
    assert all(math.isnan(one.low) for one in evaluation.of_kind("benchmark", "base"))


def test_the_difference_is_delongs_and_the_bootstraps(
    rows: list[Row], evaluation: Evaluation
) -> None:
    """Differences are DeLong's and the bootstrap's, with their intervals (H05, H06)."""
    (found,) = evaluation.comparisons
    assert (found.method, found.baseline, found.rows) == ("mine", "base", "pooled")
    assert found.pooled == delong(labels(rows), noisy(rows, 1, 0.4), noisy(rows, 2, 0.1))
    ours, theirs = evaluation.find(MEAN), evaluation.find(MEAN, "base")
    assert ours is not None
    assert theirs is not None
    assert found.clustered.value == pytest.approx(found.pooled.difference.value)
    assert found.mean.value == pytest.approx(ours.auroc - theirs.auroc)
    within = {one.method: one.auroc.value for one in evaluation.within}
    assert found.within.value == pytest.approx(within["mine"] - within["base"])
    for interval in (found.clustered, found.mean, found.within, found.pooled.difference):
        assert interval.low < interval.value < interval.high
    width = found.clustered.high - found.clustered.low
    expected = found.pooled.difference.high - found.pooled.difference.low
    assert width == pytest.approx(expected, rel=0.35)  # replies are independent here


def test_methods_meet_baselines_that_know_the_same_names(rows: list[Row]) -> None:
    """A method is compared with baselines that know the same names (K10)."""
    p = noisy(rows, 1)
    methods = [
        mine(p),
        replace(mine(p, "all"), name="mine, names told"),
        replace(mine(noisy(rows, 3)), name="other"),
        base(p, "words", "served"),
        base(p, "words, names told", "all"),
        base(p, "length"),
    ]
    pairs = {(one.method, one.baseline) for one in quick(rows, *methods).comparisons}
    assert pairs == {
        ("mine", "other"),
        *((name, rival) for name in ("mine", "other") for rival in ("words", "length")),
        *(("mine, names told", rival) for rival in ("words, names told", "length")),
    }


def test_a_benchmark_of_one_label_has_no_auroc_and_is_left_out_of_the_mean() -> None:
    """A benchmark of one label has no AUROC and is left out of its mean."""
    rows = [row(1, "easy"), row(1, "easy"), row(0, "b"), row(1, "b"), row(0, "b")]
    found = quick(rows, mine([0.9, 0.8, 0.1, 0.7, 0.2]))
    easy, mean = found.find("easy"), found.find(MEAN)
    assert easy is not None
    assert mean is not None
    assert math.isnan(easy.auroc)
    assert easy.as_dict()["auroc"] is None
    assert mean.auroc == 1.0
    assert easy.brier > 0


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_label_are_judged_as_far_as_they_go(label: int, tmp_path: Path) -> None:
    """Rows of one label have Brier and ECE, but no ranking and no comparison."""
    rows = [row(label, "ab"[n % 2], str(n)) for n in range(40)]
    found = quick(rows, mine(np.linspace(0, 1, 40)), base(np.full(40, 0.5)))
    pooled = found.find("pooled")
    assert pooled is not None
    assert pooled.as_dict()["auroc"] is None
    assert pooled.ece > 0
    assert found.comparisons == found.curves == found.within == []
    assert "NaN" not in to_json(found)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_rows_are_judged(count: int) -> None:
    """A handful of rows gives figures or none, never an error."""
    rows = [row(n % 2, "a", str(n)) for n in range(count)]
    found = quick(rows, mine(np.linspace(0.1, 0.9, count)), base(np.full(count, 0.5)))
    assert found.rows == found.questions == count
    json.loads(to_json(found), parse_constant=pytest.fail)


def test_a_constant_confidence_is_chance(rows: list[Row]) -> None:
    """A constant base rate has an AUROC of 0.5 and an ECE of 0 (H01, H04)."""
    share = labels(rows).mean()
    found = quick(rows, mine(np.full(400, share))).find("pooled")
    assert found is not None
    assert (found.auroc, found.within, found.low, found.high) == (0.5, 0.5, 0.5, 0.5)
    assert found.ece == pytest.approx(0)
    assert math.isnan(found.d)


def test_nothing_is_nothing_to_judge(rows: list[Row]) -> None:
    """Without rows or methods there is an error."""
    with pytest.raises(JudgingError, match="nothing to judge"):
        judge([], [mine([])])
    with pytest.raises(JudgingError, match="nothing to judge"):
        judge(rows, [])


def test_an_evaluation_survives_its_file(evaluation: Evaluation, tmp_path: Path) -> None:
    """An evaluation is read from its file as it was written."""
    path = tmp_path / "evaluation.json"
    path.write_text(to_json(evaluation))
    again = read_evaluation(path)
    assert to_json(again) == to_json(evaluation)
    assert again.comparisons == evaluation.comparisons
    assert len(again.curves[0].roc) <= 200


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}", '{"format": 9}', '{"format": 1}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    """A file that is no evaluation is refused with its name."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(JudgingError, match=r"other\.json is no evaluation"):
        read_evaluation(path)
