"""Shares of a population, estimated from samples that were drawn in different ways."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrator.metrics.sampling import Stratum, effective_size, estimated_share, wilson


def test_weights_undo_how_labels_were_drawn() -> None:
    """Weights undo unequal sampling, and intervals contain the truth in about 95 of 100 draws."""
    rng = np.random.default_rng(4)
    wrong = rng.random(20_000) < 0.2
    share = np.where(wrong, 0.1, 0.01)  # sampling that depends on the label
    inside = 0
    for _ in range(100):
        drawn = rng.random(len(wrong)) < share
        found = estimated_share(
            [Stratum((~wrong[drawn]).astype(float), 1 / share[drawn], len(wrong))]
        )
        inside += found.low <= 1 - wrong.mean() <= found.high
        assert found.value == pytest.approx(0.8, abs=0.15)
    assert inside >= 88


def test_strata_count_by_their_known_totals() -> None:
    """Strata count by their known totals."""
    delivered = Stratum(np.array([1.0] * 9 + [0.0]), np.full(10, 100.0), 991)
    held = Stratum(np.zeros(3), np.ones(3), 9)
    found = estimated_share([delivered, held])
    assert found.value == pytest.approx(0.9 * 0.991)
    assert found.low < 0.7 < found.value < found.high < 1


def test_a_kind_of_replies_without_a_label_leaves_the_share_unknown() -> None:
    """A stratum without labels makes the share NaN, unless it has no replies."""
    some, none = Stratum(np.ones(5), np.ones(5), 50), (np.zeros(0), np.zeros(0))
    assert math.isnan(estimated_share([some, Stratum(*none, 7)]).value)
    assert estimated_share([some, Stratum(*none, 0)]).value == 1
    assert math.isnan(estimated_share([]).value)


def test_no_error_seen_is_no_proof_of_none() -> None:
    """Without a wrong label the interval of 60 labels reaches down to 94 %."""
    found = estimated_share([Stratum(np.ones(60), np.ones(60), 10_000)])
    assert (found.value, found.high) == (1.0, pytest.approx(1.0))
    assert found.low == pytest.approx(0.940, abs=0.001)
    assert found == wilson(1.0, 60)


def test_unequal_weights_reduce_the_sample_size() -> None:
    """Unequal weights reduce the effective sample size, by Kish's formula."""
    assert effective_size([2.0] * 8) == pytest.approx(8)
    assert effective_size([100.0, *[1.0] * 100]) == pytest.approx(200**2 / 10_100)
    assert effective_size([]) == 0
