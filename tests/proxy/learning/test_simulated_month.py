"""A month with reviewers: an overconfident calibrator is corrected, and a shift is noticed.

Two weeks of traffic under an overconfident calibrator, of which the audit draws a share;
`recalibrate --from-store` on the verdicts; two weeks more, with a shift in the third week or
without. All through the real store and the real commands, see `simulated_traffic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from calibrator.metrics.metrics import Floats
from proxy.learning.drift import look, monitor_states
from proxy.store.database.verdicts import VerdictStore
from tests.builders.simulated_traffic import Traffic, overconfident, usual_truth
from tests.proxy.learning.test_drift import harder

Truth = Callable[[np.random.Generator, int], Floats]

HALF = 5_000  # replies in two weeks
LABELS = 200


@dataclass(frozen=True)
class Month:
    """The results of a month; `alarm_after` counts replies from the shift to the first alarm."""

    error_before: float
    error_after: float
    alarms_before: list[str]
    alarm_after: int | None
    alarm_of: str | None
    labels: int


OFF = 0.25


def less_often_right(rng: np.random.Generator, count: int) -> Floats:
    """Return the usual probabilities of being right, all lower by a quarter."""
    return np.clip(usual_truth(rng, count) - OFF, 0.01, 1.0)


def without_noticing(truth: Floats) -> Floats:
    """Return the calibrator's confidences if it does not notice the shift."""
    return overconfident(np.clip(truth + OFF, 0.0, 1.0))


def live(
    folder: Path,
    seed: int,
    *,
    shift: Truth = usual_truth,
    says: Callable[[Floats], Floats] = overconfident,
    half: int = HALF,
) -> Month:
    """Simulate a month and return its results.

    From the third week on, audited replies get their verdicts at once.
    """
    traffic = Traffic(folder, seed)
    traffic.pass_by(half, 14, audit_share=1.15 * LABELS / half)
    labels = traffic.label(LABELS)
    truth = usual_truth(np.random.default_rng(seed + 1_000), 50_000)
    before = traffic.calibration_error(truth)
    done = traffic.run("recalibrate", "--from-store")
    assert done.returncode == 0, done.stdout + done.stderr
    after = traffic.calibration_error(truth)
    share = 1.0 if says is not overconfident else LABELS / half
    traffic.pass_by(half // 10, 1, audit_share=share)
    traffic.label()
    findings = VerdictStore(traffic.url)
    look(findings.engine)
    old = [each.alarm.key for each in monitor_states(findings.engine) if each.alarm is not None]
    start = len(traffic.ids)
    traffic.pass_by(half - half // 10, 12.9, audit_share=share, truth=shift, says=says)
    traffic.label()
    alarms = look(findings.engine)
    findings.close()
    when = [
        (traffic.ids.index(alarm.request_id or "") - start + 1, alarm.key.kind) for alarm in alarms
    ]
    unexpected = [key.kind for key in old if "+" in key.calibrator or key.kind == "scores"]
    first, by = min(when, default=(None, None))
    return Month(before, after, unexpected, first, by, labels)


def test_a_month_in_which_the_calibrator_is_mended_and_a_shift_noticed(tmp_path: Path) -> None:
    """ECE falls below half after 200 verdicts; shifted scores
    raise the alarm within 300 replies, without a label.
    """
    month = live(tmp_path, 1, shift=harder, half=2_500)
    assert month.labels == LABELS
    assert month.error_after < month.error_before / 2
    assert month.alarms_before == []
    assert month.alarm_of == "scores"
    assert month.alarm_after is not None
    assert month.alarm_after <= 300


@pytest.mark.slow
def test_ten_months_with_a_shift(tmp_path: Path) -> None:
    """In each of ten months ECE falls below half, and the shift is noticed within 300 replies."""
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        month = live(folder, seed, shift=harder)
        print(seed, month)
        assert month.error_after < month.error_before / 2
        assert month.alarm_after is not None
        assert month.alarm_after <= 300


@pytest.mark.slow
def test_errors_that_grow_unseen_by_scores_are_found_by_verdicts(tmp_path: Path) -> None:
    """Errors that grow while scores stay the same are noticed within 300 audited replies."""
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        month = live(folder, seed, shift=less_often_right, says=without_noticing)
        print(seed, month)
        assert month.alarm_of == "calibration"
        assert month.alarm_after is not None
        assert month.alarm_after <= 300


@pytest.mark.slow
def test_twenty_months_without_a_shift(tmp_path: Path) -> None:
    """Twenty months without a shift have fewer than one false alarm in all."""
    alarms = []
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        month = live(folder, seed)
        print(seed, month)
        alarms += [*month.alarms_before, *([month.alarm_after] if month.alarm_after else [])]
    assert alarms == []
