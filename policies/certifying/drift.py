"""Monitors that withdraw a grant once its certificate no longer fits the traffic.

    monitor = ScoreMonitor(grant.scores)     # one for each grant, fed with every reply in its scope
    monitor.add(0.31)
    audit = ErrorMonitor(grant.max_error)    # fed with verdicts on delivered, certified replies
    audit.add(is_wrong=True)
    if reason := withdrawal(grant, calibrator, monitor, audit):
        policy = certified(policy, certificate.without(grant))

Both are sequential tests: they may be looked at after every reply, forever, and the probability
that one ever raises a false alarm is at most its `false_alarm_rate`. Each bets against "nothing
has changed" at fair odds; by Ville's inequality the wealth of such a gambler passes 1/rate with a
probability of at most rate.

ScoreMonitor bets on the rank of each confidence among the labelled ones and all live ones before
it: as long as they are exchangeable these ranks are independent and uniform (Vovk, conformal test
martingales). ErrorMonitor bets that more than `max_error` of the verdicts are errors. Neither sees
errors that grow while the confidences stay the same and nobody audits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from policies.conditions.certificate import BINS, Grant
from policies.conditions.ranking import Counts, bin_of

FALSE_ALARM_RATE: Final = 0.01
CALIBRATION_DRIFTED: Final = "calibration_drifted"
"""The reason of a withdrawal where a `CalibrationMonitor` of the grant's calibrator is alarmed."""
_TILTS: Final = (-0.9, -0.5, -0.2, 0.2, 0.5, 0.9)
_SPREADS: Final = (-0.8, 0.8)
_STAKES: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
_SWITCH: Final = 0.001


class Wealth:
    """The wealth of gamblers who start with equal shares of one coin and always bet the same way.

    With `switch`, each gives that share of its wealth to all at every bet. So a change after a long
    calm is bet on with more than the calm left over. The mixture stays fair.
    """

    def __init__(self, gamblers: int, false_alarm_rate: float, switch: float = 0.0) -> None:
        """Give each of the `gamblers` an equal share of 1; the alarm is at 1/`false_alarm_rate`."""
        self._logs = [-math.log(gamblers)] * gamblers
        self._alarm_at = -math.log(false_alarm_rate)
        self._switch = switch
        self.log = 0.0
        self.is_alarmed = False

    def bet(self, factors: list[float]) -> None:
        """Multiply each gambler's wealth by its factor, in order, and then mix by `switch`.

        The alarm is raised for good once the common wealth reaches 1 / `false_alarm_rate`. The
        expectation of a factor has to be at most 1 as long as nothing has changed. Raises
        ValueError for another number of factors than gamblers.
        """
        logs = [own + math.log(factor) for own, factor in zip(self._logs, factors, strict=True)]
        self.log = _log_sum_of(logs)
        if self._switch:
            shared = math.log(self._switch / len(logs)) + self.log
            logs = [_log_sum(each + math.log1p(-self._switch), shared) for each in logs]
        self._logs = logs
        self.is_alarmed = self.is_alarmed or self.log >= self._alarm_at

    def as_dict(self) -> dict[str, Any]:
        """Return the state, from which `restore` continues in another process.

        It has `logs`, the logarithm of each gambler's wealth, and `is_alarmed`.
        """
        return {"logs": self._logs, "is_alarmed": self.is_alarmed}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Take over the state of `as_dict`.

        Raises KeyError or ValueError for the state of another kind of wealth.
        """
        if len(values["logs"]) != len(self._logs):
            raise ValueError("there are as many gamblers as there were")
        self._logs, self.is_alarmed = list(values["logs"]), bool(values["is_alarmed"])
        self.log = _log_sum_of(self._logs)

    @property
    def richest(self) -> int:
        """The index of the gambler that owns most."""
        return max(range(len(self._logs)), key=self._logs.__getitem__)


class ScoreMonitor:
    """A test of whether confidences still have the distribution of those before.

    `known` counts the confidences that are known at the start, in equal bins: the labelled ones of
    a grant, or none.
    """

    def __init__(
        self,
        known: Sequence[int] = (0,) * BINS,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        seed: int = 0,
    ) -> None:
        """Start with `known`, one count for each bin; `seed` is for the random ranks."""
        self._counts = Counts(known)
        self._bins = len(known)
        self._random = random.Random(seed)  # draws the ranks within a bin
        bets = len(_TILTS) + len(_SPREADS)
        self._wealth = Wealth(bets, false_alarm_rate, _SWITCH)

    def add(self, confidence: float) -> None:
        """Count one more confidence, and bet on its rank among all counted so far, itself included.

        It may raise the alarm. The rank, 0 to 1, is drawn at random within the confidence's bin.
        """
        position = bin_of(confidence, self._bins)
        self._counts.add(position)
        below, upto = self._counts.below(position), self._counts.below(position + 1)
        rank = (below + self._random.random() * (upto - below)) / self._counts.total
        tilted = [1.0 + tilt * 2.0 * (rank - 0.5) for tilt in _TILTS]
        curve = 12.0 * (rank - 0.5) ** 2 - 1.0  # -1 in the middle, 2 at the ends, 0 on average
        self._wealth.bet(tilted + [1.0 + spread * curve / 2.0 for spread in _SPREADS])

    @property
    def is_alarmed(self) -> bool:
        """Whether the confidences have changed; once alarmed, it stays so."""
        return self._wealth.is_alarmed

    def as_dict(self) -> dict[str, Any]:
        """Return the state, from which `from_dict` continues in another process.

        It has `counts`, the confidences in each bin, `logs` and `is_alarmed`.
        """
        below = [self._counts.below(position) for position in range(self._bins + 1)]
        counts = [after - before for before, after in pairwise(below)]
        return {"counts": counts, **self._wealth.as_dict()}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], false_alarm_rate: float = FALSE_ALARM_RATE, seed: int = 0
    ) -> ScoreMonitor:
        """Return a monitor with the state that `as_dict` returned; `seed` draws the later ranks.

        Raises KeyError or ValueError for another kind of state.
        """
        monitor = cls(values["counts"], false_alarm_rate, seed)
        monitor._wealth.restore(values)
        return monitor


class ErrorMonitor:
    """A test of whether more certified replies are wrong than was promised, according to verdicts.

    The verdicts have to be a random sample of the delivered, certified replies. A reviewer's own
    choice of replies says nothing about the others.
    """

    def __init__(self, max_error: float, false_alarm_rate: float = FALSE_ALARM_RATE) -> None:
        """Start with no verdicts; `max_error` is the share of wrong replies that was promised."""
        self._max_error = max_error
        self._wealth = Wealth(len(_STAKES), false_alarm_rate)

    def add(self, *, is_wrong: bool) -> None:
        """Multiply the wealth by the bets' outcome on one more verdict; it may raise the alarm."""
        surplus = is_wrong / self._max_error - 1.0  # at most 0 on average, while the promise holds
        self._wealth.bet([1.0 + stake * surplus for stake in _STAKES])

    @property
    def is_alarmed(self) -> bool:
        """Whether the promise is broken; once alarmed, it stays so."""
        return self._wealth.is_alarmed


def withdrawal(
    grant: Grant,
    calibrator: str | None,
    scores: ScoreMonitor | None = None,
    errors: ErrorMonitor | None = None,
) -> str | None:
    """Return why the grant no longer counts, or None while it counts.

    The reason is `other_calibrator`, `too_many_errors` or `scores_drifted`, the first that applies.
    `calibrator` is the version that scores now: a grant for another one has its threshold on
    another scale. `scores` and `errors` count only if they are given and alarmed.
    """
    if calibrator != grant.calibrator:
        return "other_calibrator"
    if errors is not None and errors.is_alarmed:
        return "too_many_errors"
    if scores is not None and scores.is_alarmed:
        return "scores_drifted"
    return None


def _log_sum_of(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of numbers whose logarithms are given."""
    most = max(logs)
    return most + math.log(math.fsum(math.exp(each - most) for each in logs))


def _log_sum(one: float, other: float) -> float:
    """Return the logarithm of the sum of two numbers whose logarithms are given."""
    most = max(one, other)
    return most + math.log1p(math.exp(min(one, other) - most))
