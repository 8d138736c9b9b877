"""A sequential test of calibration: whether confidences still agree with verdicts on replies.

    monitor = CalibrationMonitor()
    monitor.add(0.92, is_correct=False)      # every verdict on an audited reply, once
    monitor.is_alarmed, monitor.finding      # True, Finding(band=(0.8, 1.0), is_too_sure=True)

The hypothesis is "of replies with a confidence of p, a share within `tolerance` of p is right".
Gamblers bet against it, overall and in three bands of confidence: half of them that replies are
right less often, half that they are right more often. Their common wealth is a test martingale (or
falls), so that the probability of ever raising a false alarm is at most `false_alarm_rate`, however
often one looks (Ville's inequality).

The verdicts have to be on replies drawn at random, or with probabilities that do not depend on
whether they are right. The probabilities may differ between replies: the hypothesis is about every
reply, so weights do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.certifying.drift import FALSE_ALARM_RATE, Wealth

TOLERANCE: Final = 0.05
BANDS: Final = ((0.0, 1.0), (0.0, 0.5), (0.5, 0.8), (0.8, 1.0))
_STAKES: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
_SWITCH: Final = 0.001


@dataclass(frozen=True, slots=True)
class Finding:
    """The band where confidences are off the most, and whether they are too high there."""

    band: tuple[float, float]
    is_too_sure: bool


@dataclass(slots=True)
class VerdictBand:
    """The verdicts on replies with confidences in (low, high]: their count and sums."""

    low: float
    high: float
    verdicts: int = 0
    confidence: float = 0.0  # sum over the verdicts
    right: int = 0

    def holds(self, confidence: float) -> bool:
        """Return whether the confidence is in (low, high]; a band from 0 includes 0."""
        return self.low < confidence <= self.high or confidence == self.low == 0.0

    @property
    def gap(self) -> float | None:
        """The mean confidence less the share of right replies; above 0 means too sure."""
        return (self.confidence - self.right) / self.verdicts if self.verdicts else None


class CalibrationMonitor:
    """A sequential test fed with verdicts on audited replies.

    The order of the verdicts must not depend on the verdicts.
    """

    def __init__(
        self, false_alarm_rate: float = FALSE_ALARM_RATE, tolerance: float = TOLERANCE
    ) -> None:
        """Start without verdicts; `tolerance` is the allowed gap of confidence and accuracy."""
        self._tolerance = tolerance
        gamblers = len(BANDS) * 2 * len(_STAKES)
        self._wealth = Wealth(gamblers, false_alarm_rate, _SWITCH)
        self.bands = [VerdictBand(*ends) for ends in BANDS]

    def add(self, confidence: float, *, is_correct: bool) -> None:
        """Count the verdict in each band with its confidence, and settle all gamblers' bets on it.

        `confidence` is P(correct) of the audited reply. It may raise the alarm.
        """
        excess = confidence - is_correct
        factors: list[float] = []
        for band in self.bands:
            is_inside = band.holds(confidence)
            if is_inside:
                band.verdicts += 1
                band.confidence += confidence
                band.right += is_correct
            for surplus in (excess - self._tolerance, -excess - self._tolerance):
                bets = (1.0 + stake * surplus if is_inside else 1.0 for stake in _STAKES)
                factors += bets
        self._wealth.bet(factors)

    @property
    def is_alarmed(self) -> bool:
        """Whether the confidences are off; once alarmed, it stays so."""
        return self._wealth.is_alarmed

    @property
    def finding(self) -> Finding:
        """The bet of the richest gambler; it is meaningful only once there is an alarm."""
        place = self._wealth.richest // len(_STAKES)
        return Finding(BANDS[place // 2], is_too_sure=place % 2 == 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the state, from which `from_dict` continues in another process.

        It has `bands`, a list of [verdicts, sum of confidences, right] each, `logs` and
        `is_alarmed`.
        """
        sums = [[band.verdicts, band.confidence, band.right] for band in self.bands]
        return {"bands": sums, **self._wealth.as_dict()}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], false_alarm_rate: float = FALSE_ALARM_RATE
    ) -> CalibrationMonitor:
        """Return a monitor with the state that `as_dict` returned, under a given false alarm rate.

        The tolerance is the default one. Raises KeyError or ValueError for another kind of state.
        """
        monitor = cls(false_alarm_rate)
        monitor.bands = [
            VerdictBand(*ends, *sums) for ends, sums in zip(BANDS, values["bands"], strict=True)
        ]
        monitor._wealth.restore(values)
        return monitor
