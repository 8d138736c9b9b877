"""The gain of a second number on the same replies, with weights and intervals."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.metrics.intervals import gains
from calibrator.metrics.metrics import auroc, coverage_at


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, a number that ranks somewhat, and one that ranks better, with ties."""
    rng = np.random.default_rng(seed)
    y = (rng.random(count) < 0.6).astype(int)
    first = np.clip(np.round(0.5 + 0.15 * (y - 0.5) + rng.normal(0, 0.2, count), 2), 0, 1)
    second = np.clip(np.round(0.5 + 0.5 * (y - 0.5) + rng.normal(0, 0.2, count), 2), 0, 1)
    return y, first, second


def test_without_weights_the_figures_are_those_of_every_report() -> None:
    """Without weights the figures are AUROC and coverage at 95 % as in every report."""
    y, first, second = drawn(400)
    found = gains(y, first, second)
    assert found is not None
    assert found.auroc.before == pytest.approx(auroc(y, first))
    assert found.auroc.after == pytest.approx(auroc(y, second))
    assert found.kept.before == pytest.approx(coverage_at(y, first, 0.95))
    assert found.kept.after == pytest.approx(coverage_at(y, second, 0.95))


def test_a_weight_of_three_is_three_replies() -> None:
    """A reply of weight three counts like three replies."""
    y, first, second = drawn(120)
    weights = np.random.default_rng(1).integers(1, 4, len(y))
    weighed = gains(y, first, second, weights)
    whole = gains(*(np.repeat(each, weights) for each in (y, first, second)))
    assert weighed is not None
    assert whole is not None
    for name in ("auroc", "kept"):
        one, other = getattr(weighed, name), getattr(whole, name)
        assert (one.before, one.after) == pytest.approx((other.before, other.after))


def test_the_interval_holds_what_is_true() -> None:
    """The interval shows a better number, no gain of the same one, and contains 0 by chance.

    For random numbers 0 is within nineteen of twenty intervals.
    """
    y, first, second = drawn(400)
    better, same = gains(y, first, second), gains(y, first, first)
    assert better is not None
    assert better.auroc.gain.low > 0
    assert same is not None
    assert (same.auroc.gain.low, same.auroc.gain.high) == (0, 0)
    inside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = np.tile([0, 1], 60)
        found = gains(y, rng.random(120), rng.random(120))
        assert found is not None
        inside += found.auroc.gain.low <= 0 <= found.auroc.gain.high
    assert inside >= 35


def test_labels_of_one_kind_give_no_figure() -> None:
    """Labels of one kind give None."""
    assert gains([1, 1], [0.5, 0.6], [0.7, 0.8]) is None
