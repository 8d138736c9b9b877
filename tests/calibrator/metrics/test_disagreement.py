"""Ranking within questions and its permutation test (paper H15, L01-L03)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.metrics.disagreement import disagreement, pair_wins
from calibrator.metrics.metrics import auroc

replies = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 4).map(lambda k: k / 4), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


@given(replies)
def test_it_is_the_mean_of_the_questions_own(rows: list[tuple[int, float, int]]) -> None:
    """The figure is the mean AUROC of the mixed questions (L02)."""
    y, p, q = (np.array(values) for values in zip(*rows, strict=True))
    mixed = [one for one in np.unique(q) if 0 < y[q == one].mean() < 1]
    found = disagreement(y, p, q, permutations=0)
    if not mixed:
        assert found is None
        return
    assert found is not None
    each = [auroc(y[q == one], p[q == one]) for one in mixed]
    kept = np.isin(q, mixed)
    assert found.each == pytest.approx(each)
    assert found.auroc == pytest.approx(np.mean(each))
    assert (found.questions, found.replies) == (len(mixed), kept.sum())
    assert found.pooled == pytest.approx(auroc(y[kept], p[kept]))


@given(replies)
def test_pairs_by_hand(rows: list[tuple[int, float, int]]) -> None:
    """The pairs in the right order are those counted by two loops."""
    y, p, q = (np.array(values) for values in zip(*rows, strict=True))
    wins, right, wrong = pair_wins(y == 1, p, q)
    for one in range(len(wins)):
        pairs = [
            (p[i] > p[j]) + (p[i] == p[j]) / 2
            for i in range(len(y))
            for j in range(len(y))
            if q[i] == q[j] == one and y[i] > y[j]
        ]
        assert wins[one] == pytest.approx(sum(pairs))
        assert right[one] * wrong[one] == len(pairs)


def made_up(signal: float, seed: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return easy and hard questions, whose confidence knows `signal` of the label."""
    rng = np.random.default_rng(seed)
    q = np.repeat(np.arange(60), 6)
    ease = rng.random(60)[q]
    y = (rng.random(360) < ease).astype(int)
    return y, 0.8 * ease + signal * y + 0.1 * rng.random(360), q


def test_knowing_the_question_is_not_enough() -> None:
    """A confidence that knows only the question ranks well and fails the test (L03)."""
    y, p, q = made_up(signal=0.0)
    found = disagreement(y, p, q, permutations=500)
    assert found is not None
    assert auroc(y, p) > 0.75
    assert found.auroc == pytest.approx(0.5, abs=0.06)
    assert found.p_auroc > 0.05
    assert found.p_pooled > 0.05


def test_knowing_the_reply_passes() -> None:
    """A confidence that knows something of the reply has the smallest possible p (L03)."""
    found = disagreement(*made_up(signal=0.1), permutations=500)
    assert found is not None
    assert found.auroc > 0.8
    assert found.p_auroc == found.p_pooled == pytest.approx(1 / 501)


def test_permuting_is_the_definition() -> None:
    """The p equals the one of a loop that shuffles the labels of each question (L03)."""
    y, p, q = (values[:60] for values in made_up(signal=0.03))
    found = disagreement(y, p, q, permutations=4_000)
    assert found is not None
    rng = np.random.default_rng(8)
    hits = np.zeros(2)
    for _ in range(1_500):
        shuffled = y.copy()
        for one in np.unique(q):
            shuffled[q == one] = rng.permutation(y[q == one])
        other = disagreement(shuffled, p, q, permutations=0)
        assert other is not None
        hits += (other.auroc >= found.auroc, other.pooled >= found.pooled)
    assert (found.p_auroc, found.p_pooled) == pytest.approx(hits / 1_500, abs=0.04)


def test_without_a_mixed_question_there_is_nothing_to_say() -> None:
    """Questions that all replies get right or wrong do not count (L01)."""
    assert disagreement([1, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], ["a", "a", "b", "b"]) is None
