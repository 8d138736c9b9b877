"""Calibration monitors: verdicts reveal a miscalibrated model and leave a calibrated one alone."""

from __future__ import annotations

import json
import random

import pytest

from policies import CalibrationMonitor, ScoreMonitor


def watch(
    monitor: CalibrationMonitor, rng: random.Random, verdicts: int, off: float = 0.0
) -> int | None:
    """Return the number of verdicts until an alarm, or None.

    A reply is right with a probability of its confidence less `off`.
    """
    for count in range(1, verdicts + 1):
        confidence = rng.betavariate(4, 1.5)
        is_correct = rng.random() < confidence - off
        monitor.add(confidence, is_correct=is_correct)
        if monitor.is_alarmed:
            return count
    return None


@pytest.mark.parametrize(
    ("monitors", "most"), [(12, 1), pytest.param(50, 3, marks=pytest.mark.slow)]
)
def test_a_right_calibrator_raises_an_alarm_no_more_often_than_stated(
    monitors: int, most: int
) -> None:
    """A calibrated model raises alarms at no more than the stated rate of 5 %.

    This holds too if confidences are off by the tolerance.
    """
    rng = random.Random(1)
    for off in (0.0, 0.05):
        alarms = sum(
            watch(CalibrationMonitor(false_alarm_rate=0.05), rng, 500, off) is not None
            for _ in range(monitors)
        )
        assert alarms <= most


@pytest.mark.parametrize(("calm", "off"), [(0, 0.25), (300, 0.25), (0, -0.25)])
def test_an_error_is_found_within_three_hundred_verdicts(calm: int, off: float) -> None:
    """An error is found within 300 verdicts, in both directions, also after a calm."""
    for seed in range(5):
        rng, monitor = random.Random(seed), CalibrationMonitor()
        assert watch(monitor, rng, calm) is None
        found = watch(monitor, rng, 300, off)
        assert found is not None
        assert monitor.finding.is_too_sure is (off > 0)


def test_an_error_in_one_band_is_not_lost_in_the_mean() -> None:
    """An error in one band raises an alarm that names the band, even if the mean is right."""
    rng, monitor = random.Random(2), CalibrationMonitor()
    for _ in range(600):
        monitor.add(0.9, is_correct=rng.random() < 0.7)
        monitor.add(0.4, is_correct=rng.random() < 0.6)
    assert monitor.is_alarmed
    assert monitor.finding.band != (0.0, 1.0)
    overall, low, middle, high = monitor.bands
    assert overall.gap == pytest.approx(0.0, abs=0.05)
    assert (low.verdicts, middle.gap, high.verdicts) == (600, None, 600)
    assert high.gap == pytest.approx(0.2, abs=0.06)


def test_monitors_go_on_in_another_process() -> None:
    """Monitors that are saved as JSON and loaded raise the same alarms at the same replies."""
    rng = random.Random(3)
    whole, parted = CalibrationMonitor(), CalibrationMonitor()
    scores, broken = ScoreMonitor(seed=1), ScoreMonitor(seed=1)
    for count in range(400):
        confidence = rng.betavariate(4, 1.5) if count < 200 else rng.betavariate(1, 2)
        is_correct = rng.random() < 0.5
        for one in (whole, parted):
            one.add(confidence, is_correct=is_correct)
        for each in (scores, broken):
            each.add(confidence)
        if count == 250:
            parted = CalibrationMonitor.from_dict(json.loads(json.dumps(parted.as_dict())))
            broken = ScoreMonitor.from_dict(json.loads(json.dumps(broken.as_dict())))
        assert whole.is_alarmed == parted.is_alarmed
    assert whole.as_dict() == parted.as_dict()
    assert scores.is_alarmed
    assert broken.is_alarmed
    with pytest.raises(ValueError, match="as many gamblers"):
        ScoreMonitor.from_dict({"counts": [0] * 100, "logs": [0.0], "is_alarmed": False})
