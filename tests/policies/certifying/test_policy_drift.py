"""Monitors of scores and errors: changed traffic withdraws a certificate."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import (
    ErrorMonitor,
    Grant,
    LabelledScore,
    RecentConfidences,
    Scope,
    ScoreMonitor,
    certify,
    withdrawal,
)
from policies.conditions.ranking import Counts

CALIBRATOR = "embedded@1"


def draw(rng: random.Random, shift: float = 0.0) -> float:
    return min(1.0, max(0.0, rng.betavariate(5, 1) - shift))


def granted(rng: random.Random, labels: int = 500) -> Grant:
    """Return a certificate on replies that `draw` generates, all of them right."""
    rows = [LabelledScore(str(n), draw(rng), True) for n in range(labels)]
    return certify(rows, 0.1).grant(CALIBRATOR, Scope())


def alarm_after(monitor: ScoreMonitor, confidences: list[float]) -> int | None:
    for count, confidence in enumerate(confidences, start=1):
        monitor.add(confidence)
        if monitor.is_alarmed:
            return count
    return None


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_unchanged_scores_raise_an_alarm_no_more_often_than_stated(count: int) -> None:
    """At most 5 % of the monitors raise an alarm over 800 unchanged replies."""
    rng = random.Random(1)
    alarms = 0
    for seed in range(count):
        grant = granted(rng, 200)
        monitor = ScoreMonitor(grant.scores, false_alarm_rate=0.05, seed=seed)
        alarms += alarm_after(monitor, [draw(rng) for _ in range(800)]) is not None
    assert alarms / count <= 0.05 + 0.04  # 0.04 for noise


@pytest.mark.parametrize(
    ("shift", "calm", "within"),
    [(0.2, 0, 150), (0.1, 0, 500), (-0.2, 0, 600), (0.2, 3_000, 600)],
)
def test_shifted_scores_withdraw_the_certificate(shift: float, calm: int, within: int) -> None:
    """Scores that fall or rise withdraw the certificate within some hundred replies."""
    rng = random.Random(2)
    grant = granted(rng)
    monitor = ScoreMonitor(grant.scores)
    assert alarm_after(monitor, [draw(rng) for _ in range(calm)]) is None
    assert withdrawal(grant, CALIBRATOR, monitor) is None
    found = alarm_after(monitor, [draw(rng, shift) for _ in range(within)])
    assert found is not None
    assert withdrawal(grant, CALIBRATOR, monitor) == "scores_drifted"


def test_scores_that_only_spread_are_noticed() -> None:
    """Scores that spread around the same mean raise an alarm."""
    rng = random.Random(3)
    grant = granted(rng)
    spread = [rng.choice([0.66, 1.0]) for _ in range(1_000)]
    assert alarm_after(ScoreMonitor(grant.scores), spread) is not None


def test_audits_that_find_what_was_promised_raise_no_alarm() -> None:
    """At the promised error rate at most 5 % of 300 series of 1,000 verdicts raise an alarm."""
    rng = random.Random(4)
    alarms = 0
    for _ in range(300):
        monitor = ErrorMonitor(0.1, false_alarm_rate=0.05)
        for _ in range(1_000):
            monitor.add(is_wrong=rng.random() < 0.1)
        alarms += monitor.is_alarmed
    assert alarms / 300 <= 0.05 + 0.04


def test_audits_that_find_more_errors_withdraw_the_certificate() -> None:
    """Twice the promised errors withdraw the certificate for good."""
    rng = random.Random(5)
    grant = granted(rng)
    monitor = ErrorMonitor(0.1)
    for _ in range(500):
        monitor.add(is_wrong=rng.random() < 0.2)
    assert monitor.is_alarmed
    for _ in range(2_000):
        monitor.add(is_wrong=False)
    assert monitor.is_alarmed
    assert withdrawal(grant, CALIBRATOR, None, monitor) == "too_many_errors"


def test_another_calibrator_withdraws_the_certificate() -> None:
    """Another calibrator version, or none, withdraws the certificate."""
    grant = granted(random.Random(6))
    assert withdrawal(grant, CALIBRATOR) is None
    assert withdrawal(grant, "embedded@2") == "other_calibrator"
    assert withdrawal(grant, None) == "other_calibrator"


def test_a_monitor_costs_microseconds() -> None:
    """A monitor takes less than 200 us for each confidence."""
    rng = random.Random(7)
    monitor = ScoreMonitor(granted(rng).scores)
    confidences = [draw(rng) for _ in range(2_000)]
    started = time.process_time()
    alarm_after(monitor, confidences)
    assert (time.process_time() - started) / 2_000 < 200e-6


# --- recent confidences -------------------------------------------------------------------------


@given(st.lists(st.integers(0, 19), max_size=60), st.lists(st.integers(0, 5), max_size=20))
def test_counts_are_sums(added: list[int], initial: list[int]) -> None:
    """The tree of counts gives the same sums as adding up the bins."""
    bins = initial + [0] * (20 - len(initial))
    counts = Counts(bins)
    for position in added:
        counts.add(position)
        bins[position] += 1
    if added:
        counts.add(added[0], -1)
        bins[added[0]] -= 1
    assert [counts.below(position) for position in range(21)] == [sum(bins[:n]) for n in range(21)]
    assert counts.total == sum(bins)


@given(
    st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=10, max_size=80),
    st.integers(0, 100).map(lambda n: n / 100),
)
def test_the_share_below_is_that_of_the_last_replies(
    confidences: list[float], confidence: float
) -> None:
    """The share below is computed from the last 30 replies; half of the equal ones count."""
    recent = RecentConfidences(window=30, least_known=10)
    for each in confidences:
        recent.add(each)
    window = confidences[-30:]
    expected = sum(c < confidence for c in window) + sum(c == confidence for c in window) / 2
    assert recent.share_below(confidence) == pytest.approx(expected / len(window))


def test_too_few_replies_have_no_share() -> None:
    """The share is None until a hundred confidences are known."""
    recent = RecentConfidences()
    for _ in range(99):
        recent.add(0.5)
    assert recent.share_below(0.1) is None
    recent.add(0.5)
    assert recent.share_below(0.1) == 0.0
    assert recent.share_below(1.0) == 1.0
    assert recent.share_below(0.5) == 0.5
