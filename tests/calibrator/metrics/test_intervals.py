"""Bootstrap intervals and DeLong's test against scipy and brute force (paper H02, H05, H06)."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap, norm

from calibrator.metrics.intervals import (
    RankedReplies,
    auroc_interval,
    bca,
    delong,
    mean_interval,
    percentile_interval,
)
from calibrator.metrics.metrics import auroc

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Coarse confidences and few clusters, so that ties and shared clusters are common
replies = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 6).map(lambda k: k / 6), st.integers(0, 5)),
    min_size=4,
    max_size=40,
).filter(lambda rows: len({y for y, _, _ in rows}) == 2)


def made_up(count: int, seed: int = 0) -> tuple[Ints, Floats, Ints]:
    """Return labels, confidences with ties, and questions of about five replies each."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(count), 2)
    y = (rng.random(count) < 0.2 + 0.6 * p).astype(np.int64)
    return y, p, rng.integers(count // 5, size=count)


@given(replies, st.integers(0, 1_000))
def test_weights_stand_for_repeated_replies(rows: list[tuple[int, float, int]], seed: int) -> None:
    """A resample's AUROC is computed with each reply repeated as often as it is drawn (H02)."""
    y, p, _ = (np.array(values) for values in zip(*rows, strict=True))
    order = np.argsort(p, kind="stable")
    counts = np.random.default_rng(seed).integers(0, 3, size=len(y))
    found = RankedReplies(y, p).auroc(counts[None].astype(float))[0]
    drawn = np.repeat(order, counts)
    expected = auroc(y[drawn], p[drawn]) if len(drawn) else math.nan
    assert found == pytest.approx(expected, nan_ok=True)


@given(replies)
def test_the_jackknife_leaves_each_cluster_out(rows: list[tuple[int, float, int]]) -> None:
    """The jackknife's closed form equals leaving each question out and computing again (H02)."""
    y, p, cluster = (np.array(values) for values in zip(*rows, strict=True))
    expected = [
        auroc(y[cluster != one], p[cluster != one]) if (cluster != one).any() else math.nan
        for one in np.unique(cluster)
    ]
    assert RankedReplies(y, p, cluster).jackknife() == pytest.approx(expected, nan_ok=True)


def test_resamples_draw_whole_clusters() -> None:
    """A resample draws whole questions, and as many as there are."""
    y, p, questions = made_up(60)
    ranked = RankedReplies(y, p, questions)
    seen: list[Floats] = []

    class Recorded(RankedReplies):
        def auroc(self, weights: Floats) -> Floats:
            seen.append(weights)
            return super().auroc(weights)

    Recorded(y, p, questions).resample(50)
    weights = np.concatenate(seen)
    for cluster in range(ranked.clusters):
        inside = weights[:, ranked.cluster == cluster]
        assert (inside == inside[:, :1]).all()
    firsts = [np.flatnonzero(ranked.cluster == c)[0] for c in range(ranked.clusters)]
    assert (weights[:, firsts].sum(axis=1) == ranked.clusters).all()


def test_the_interval_is_scipys() -> None:
    """The BCa interval agrees with scipy's (H02)."""
    y, p, _ = made_up(400)
    found = auroc_interval(y, p)
    other = bootstrap(
        (np.arange(400),),
        lambda at: auroc(y[at], p[at]),
        method="BCa",
        n_resamples=2_000,
        vectorized=False,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert found.value == pytest.approx(auroc(y, p))
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.006)


def test_bca_is_scipys_on_a_skewed_mean() -> None:
    """Bias and acceleration are scipy's on a small skewed sample (H02)."""
    values = np.random.default_rng(3).exponential(size=25)
    other = bootstrap(
        (values,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    found = mean_interval(values, resamples=20_000)
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.02)
    plain = percentile_interval(values.mean(), np.array([0.0]))
    assert plain.low == plain.high == 0.0


def test_the_interval_covers_the_truth() -> None:
    """About 95 % of the intervals on fresh data contain the true AUROC (H02)."""
    truth = norm.cdf(1 / math.sqrt(2))  # for two unit normals one apart
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        y = np.repeat([0, 1], 60)
        found = auroc_interval(y, rng.normal(size=120) + y, resamples=400)
        held += found.low <= truth <= found.high
    assert 178 <= held <= 200


def test_copies_widen_only_the_clustered_interval() -> None:
    """Ten copies of each reply narrow the naive interval, but not the one over questions."""
    y, p, _ = made_up(100)
    alone = auroc_interval(y, p)
    ten = [np.tile(values, 10) for values in (y, p, np.arange(100))]
    naive, clustered = auroc_interval(ten[0], ten[1]), auroc_interval(*ten)
    assert naive.high - naive.low < 0.5 * (alone.high - alone.low)
    assert clustered.high - clustered.low == pytest.approx(alone.high - alone.low, rel=0.1)


def test_thirty_thousand_rows_take_seconds() -> None:
    """2,000 resamples of 28,630 rows take less than 20 s of CPU."""
    y, p, questions = made_up(28_630)
    started = time.process_time()
    auroc_interval(y, p, questions)
    assert time.process_time() - started < 20


@pytest.mark.parametrize("label", [0, 1])
def test_one_label_has_no_interval(label: int) -> None:
    """Labels of one kind have no figure and no interval."""
    found = auroc_interval([label] * 5, np.linspace(0, 1, 5))
    assert all(math.isnan(end) for end in (found.value, found.low, found.high))
    assert math.isnan(mean_interval([]).low)


def test_a_perfect_ranking_has_an_interval_of_one_point() -> None:
    """A perfect ranking has an interval of one point."""
    found = auroc_interval([0, 0, 1, 1] * 5, [0.1, 0.2, 0.8, 0.9] * 5)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    nothing = bca(0.5, np.array([np.nan]), np.array([0.5]))
    assert math.isnan(nothing.low)
    assert math.isnan(nothing.high)


def brute_delong(y: Ints, a: Floats, b: Floats) -> tuple[float, float]:
    """Return the difference of the areas and its deviation by DeLong's definition, in O(m n)."""
    parts = []
    for p in (a, b):
        right, wrong = p[y == 1], p[y == 0]
        psi = (right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)
        parts.append((psi.mean(axis=1), psi.mean(axis=0), psi.mean()))
    (v_a, w_a, area_a), (v_b, w_b, area_b) = parts
    variance = np.cov(v_a - v_b) / len(v_a) + np.cov(w_a - w_b) / len(w_a)
    return float(area_a - area_b), math.sqrt(float(variance))


@given(replies, st.integers(0, 1_000))
def test_delong_is_the_definition(rows: list[tuple[int, float, int]], seed: int) -> None:
    """Difference and p follow DeLong's definition, with ties (H05)."""
    y, a, _ = (np.array(values) for values in zip(*rows, strict=True))
    if min(y.sum(), len(y) - y.sum()) < 2:
        return
    b = np.round(np.random.default_rng(seed).random(len(y)), 1)
    difference, deviation = brute_delong(y, a, b)
    found = delong(y, a, b)
    assert found.difference.value == pytest.approx(difference, abs=1e-12)
    if deviation > 1e-9:
        assert found.p == pytest.approx(2 * norm.sf(abs(difference) / deviation), abs=1e-9)
        assert found.difference.high - found.difference.value == pytest.approx(
            norm.ppf(0.975) * deviation, abs=1e-9
        )


def test_delong_is_fair() -> None:
    """Of pairs of equally good rankings about 5 % differ at p < 0.05 (H05)."""
    rng = np.random.default_rng(2)
    small = 0
    for _ in range(400):
        y = np.repeat([0, 1], 80)
        a, b = (rng.normal(size=160) + y for _ in range(2))
        small += delong(y, a, b).p < 0.05
    assert 8 <= small <= 36  # 20 are expected


def test_delong_of_a_method_with_itself_finds_nothing() -> None:
    """A method compared with itself has a difference of 0 and p = 1 (H05)."""
    y, p, _ = made_up(50)
    found = delong(y, p, p)
    assert (found.difference.value, found.difference.low, found.p) == (0.0, 0.0, 1.0)
    assert delong([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], [0.9, 0.8, 0.2, 0.1]).p == 0.0


def test_delong_needs_two_of_each() -> None:
    """DeLong's test needs two correct and two wrong replies (H05)."""
    with pytest.raises(ValueError, match="two correct and two wrong"):
        delong([1, 0, 0], [0.5, 0.4, 0.3], [0.3, 0.4, 0.5])


def test_methods_are_drawn_alike() -> None:
    """Two methods that rank alike have the same AUROC on every resample (H06)."""
    y, p, questions = made_up(200)
    first, second = (RankedReplies(y, scores, questions).resample(100) for scores in (p, p**3))
    assert first == pytest.approx(second)
    assert not all(a == b for a, b in itertools.pairwise(first))
