"""Whether confidences still mean what they say, going by verdicts: a sequential test.

    monitor = CalibrationMonitor()
    monitor.add(0.92, is_correct=False)      # every verdict on an audited reply, once
    monitor.is_alarmed, monitor.finding      # True, Finding(band=(0.8, 1.0), is_too_sure=True)

Gamblers bet against "of replies with a confidence of p, a share within `tolerance` of p is right":
overall and in three bands of confidence, that replies are less often right than that, or more
often. Their common wealth is a test martingale (or falls), so that the probability of ever raising
a false alarm is at most its `false_alarm_rate`, however often one looks (Ville's inequality).

The verdicts have to be on replies drawn at random, or with probabilities that do not depend on
whether they are right; the shares with which they were drawn need not be the same, since the
statement is about every reply, and so do the weights not matter.
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
    """Where confidences are off the most: a band, and whether they are too high there."""

    band: tuple[float, float]
    is_too_sure: bool


@dataclass(slots=True)
class Band:
    """Verdicts on replies with confidences in (low, high]: how many, how sure, how often right."""

    low: float
    high: float
    verdicts: int = 0
    confidence: float = 0.0  # the sum
    right: int = 0

    def holds(self, confidence: float) -> bool:
        return self.low < confidence <= self.high or confidence == self.low == 0.0

    @property
    def gap(self) -> float | None:
        """Mean confidence less the share of right replies; above 0 is too sure."""
        return (self.confidence - self.right) / self.verdicts if self.verdicts else None


class CalibrationMonitor:
    """Fed with verdicts on audited replies, in any order that does not depend on them."""

    def __init__(
        self, false_alarm_rate: float = FALSE_ALARM_RATE, tolerance: float = TOLERANCE
    ) -> None:
        self._tolerance = tolerance
        gamblers = len(BANDS) * 2 * len(_STAKES)
        self._wealth = Wealth(gamblers, false_alarm_rate, _SWITCH)
        self.bands = [Band(*ends) for ends in BANDS]

    def add(self, confidence: float, *, is_correct: bool) -> None:
        """Bet on one more verdict."""
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
        """What the richest gambler bets on; it means something once there is an alarm."""
        place = self._wealth.richest // len(_STAKES)
        return Finding(BANDS[place // 2], is_too_sure=place % 2 == 0)

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` goes on with in another process."""
        sums = [[band.verdicts, band.confidence, band.right] for band in self.bands]
        return {"bands": sums, **self._wealth.as_dict()}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], false_alarm_rate: float = FALSE_ALARM_RATE
    ) -> CalibrationMonitor:
        monitor = cls(false_alarm_rate)
        monitor.bands = [
            Band(*ends, *sums) for ends, sums in zip(BANDS, values["bands"], strict=True)
        ]
        monitor._wealth.restore(values)
        return monitor
