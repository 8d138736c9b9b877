"""How scorers are judged: tables of figures, and two baselines to beat (paper H01-H16, I02-I04)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from calibrator import FakeScorer, Item, Score
from calibrator.baselines import length_baseline, tfidf_baseline
from calibrator.evaluate import BATCH, BATCH_CHARACTERS, MEAN, POOLED, Result, judge, score_items
from calibrator.metrics import auroc, brier, ece
from calibrator.rows import Row, parse_row


def row(response: str, correct: int, benchmark: str | None = "a", question: str = "q") -> Row:
    return parse_row(
        {"question": question, "response": response, "correct": correct, "benchmark": benchmark}
    )


def synthetic(count: int, seed: int) -> list[Row]:
    """Right answers are longer, mostly, and say `certainly`, mostly."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        correct = rng.randint(0, 1)
        words = ["word"] * rng.randint(3 + 4 * correct, 14 + 8 * correct)
        if rng.random() < 0.2 + 0.6 * correct:
            words[1] = "certainly"
        rows.append(row(" ".join(words), correct, rng.choice("ab")))
    return rows


# --- scoring many items -------------------------------------------------------------------------


@dataclass
class Recorder:
    """A scorer that scores by length and remembers its batches."""

    batches: list[list[Item]] = field(default_factory=list)
    name: str = "recorder"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.batches.append(list(items))
        return [Score(len(item.answer), len(item.answer)) for item in items]


@given(st.lists(st.integers(0, 30_000), max_size=80))
@settings(deadline=None)
def test_scores_come_back_in_order(sizes: list[int]) -> None:
    """Whatever is scored together, each item has its own score; batches are bounded."""
    scorer = Recorder()
    done: list[int] = []
    items = [Item("", "x" * size) for size in sizes]
    scores = score_items(scorer, items, done.append)
    assert [score.confidence for score in scores] == sizes
    assert sum(done) == len(sizes)
    for batch in scorer.batches:
        longest = max(len(item.answer) for item in batch)
        assert len(batch) <= BATCH
        assert len(batch) == 1 or longest * len(batch) <= BATCH_CHARACTERS


# --- the table ----------------------------------------------------------------------------------


def test_a_table_has_each_benchmark_their_mean_and_all_rows() -> None:
    """H16: the mean over benchmarks is unweighted; pooled counts every row once."""
    rows = [row("x", c, "a") for c in (0, 1, 0, 1, 1, 0)] + [row("x", c, "b") for c in (1, 0)]
    p = np.array([0.2, 0.9, 0.4, 0.6, 0.3, 0.1, 0.4, 0.6])
    y = np.array([r.correct for r in rows])
    found = {result.group: result for result in judge(rows, {"mine": p})}
    assert list(found) == ["a", "b", MEAN, POOLED]
    assert found["a"] == Result(
        "a", "mine", 6, 0.5, auroc(y[:6], p[:6]), brier(y[:6], p[:6]), ece(y[:6], p[:6])
    )
    assert found["b"].auroc == 0.0
    assert found[POOLED].auroc == auroc(y, p)
    for name in ("accuracy", "auroc", "brier", "ece"):
        halves = (getattr(found["a"], name) + getattr(found["b"], name)) / 2
        assert getattr(found[MEAN], name) == pytest.approx(halves)
    assert found[MEAN].rows == found[POOLED].rows == 8


def test_every_method_is_on_the_same_rows() -> None:
    """Methods stand beside each other, group by group."""
    rows = synthetic(40, seed=1)
    results = judge(rows, {"one": np.full(40, 0.5), "two": np.linspace(0, 1, 40)})
    groups = [result.group for result in results]
    assert groups == ["a", "b", MEAN, POOLED] * 2
    assert [result.rows for result in results[:4]] == [result.rows for result in results[4:]]


def test_a_benchmark_of_one_label_has_no_auroc_and_is_left_out_of_the_mean() -> None:
    """Nothing can be ranked there; its Brier score and ECE still count."""
    rows = [row("x", 1, "easy"), row("x", 1, "easy"), row("x", 0, "b"), row("x", 1, "b")]
    found = {r.group: r for r in judge(rows, {"mine": np.array([0.9, 0.8, 0.1, 0.7])})}
    assert math.isnan(found["easy"].auroc)
    assert found[MEAN].auroc == found["b"].auroc == 1.0
    assert found["easy"].as_dict()["auroc"] is None
    assert found["easy"].brier > 0


def test_without_any_ranking_there_is_no_mean() -> None:
    """Where every benchmark has one label only: no figure, and no warning either."""
    results = judge([row("x", 1, "a"), row("x", 0, "b")], {"mine": np.array([0.5, 0.6])})
    found = {result.group: result for result in results}
    assert found[MEAN].as_dict()["auroc"] is None
    assert found[POOLED].auroc == 0.0


def test_rows_without_a_benchmark_are_a_group() -> None:
    """Rows of nobody's benchmark are judged too."""
    results = judge([row("x", 1, None), row("x", 0, None)], {"mine": np.array([0.6, 0.4])})
    assert [result.group for result in results] == ["(none)", MEAN, POOLED]


def test_a_constant_confidence_is_chance() -> None:
    """H01, H04: a scorer that always says the base rate ranks nothing and is calibrated."""
    rows = [row("x", i % 2) for i in range(100)]
    scores = score_items(FakeScorer(0.5), [r.item() for r in rows])
    (pooled,) = [
        result
        for result in judge(rows, {"fake": np.array([s.confidence for s in scores])})
        if result.group == POOLED
    ]
    assert (pooled.auroc, pooled.brier, pooled.ece) == (0.5, 0.25, 0.0)


# --- baselines ----------------------------------------------------------------------------------


def test_the_length_baseline_is_the_papers() -> None:
    """I04: logistic regression on log(1 + t), as scikit-learn fits it."""
    train, test = synthetic(300, seed=1), synthetic(100, seed=2)
    features = [[[math.log1p(len(r.answer.split()))] for r in rows] for rows in (train, test)]
    model = LogisticRegression().fit(features[0], [r.correct for r in train])
    found = length_baseline(train, test)
    assert found == pytest.approx(model.predict_proba(features[1])[:, 1], abs=1e-6)


@pytest.mark.parametrize("baseline", [length_baseline, tfidf_baseline])
def test_baselines_beat_chance_where_there_is_something_to_see(baseline: object) -> None:
    """I02-I04: fitted on other rows, they rank answers whose length or words are informative."""
    assert callable(baseline)
    train, test = synthetic(600, seed=1), synthetic(300, seed=2)
    p = baseline(train, test)
    assert ((p > 0) & (p < 1)).all()
    assert auroc([r.correct or 0 for r in test], p) > 0.65


def test_baselines_see_no_test_label() -> None:
    """What they say of a row does not depend on whether it was correct."""
    train, test = synthetic(200, seed=1), synthetic(50, seed=2)
    turned = [row(r.answer, 1 - (r.correct or 0), r.benchmark) for r in test]
    for baseline in (length_baseline, tfidf_baseline):
        assert (baseline(train, test) == baseline(train, turned)).all()


def test_an_empty_answer_has_a_length() -> None:
    """D03: t = 0 is a length like any other."""
    (p,) = length_baseline(synthetic(100, seed=1), [row("", 0)])
    assert 0 < p < 0.5
