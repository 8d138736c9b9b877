"""Advice to leave a calibrator alone, recalibrate it, fine-tune it, or collect labels (paper A09).

Intervals decide, never a figure alone:

    ranking      AUROC depends on the choice of labelled replies. It is lower where their
                 confidences are close together, as those of delivered replies are, and where the
                 mix of questions differs from the checkpoint's own. So it is compared with the
                 AUROC that these confidences would have if they were the true probabilities
                 (`expected_auroc`). Where the whole interval over questions is more than
                 `MATERIAL` below that, and below the AUROC on the checkpoint's own card (without a
                 card: below `NEAR_CHANCE`), these replies are ranked worse than they should be:
                 fine-tune.
                 Where its low end does not exclude that, it is undecided: collect labels.
    calibration  a recalibration, cross-fitted over questions, must beat the present confidences by
                 the rule that promotes one (`recalibration_trial`). Where it does not, and the log
                 loss that it might still gain is at most `HARMLESS`, there is nothing to correct;
                 where it might be more, it is undecided.

A recalibration keeps the ranking, so a bad ranking comes first. With too few labels to fine-tune,
they are used for a recalibration meanwhile. Where confidences are too close together to rank
anything (`expected_auroc` below `NEAR_CHANCE`), calibration alone is judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from calibrator.metrics.intervals import Interval, auroc_interval, holds_chance
from calibrator.metrics.metrics import Floats, brier, ece, expected_auroc
from calibrator.recalibration.curves import Kind
from calibrator.recalibration.fit import observed_rows
from calibrator.recalibration.study import mend
from calibrator.recalibration.trial import Trial, trial
from calibrator.rows.rows import Row, labels_of, question_numbers

Action = Literal["leave", "recalibrate", "fine_tune", "collect"]

NEAR_CHANCE: Final = 0.6
MATERIAL: Final = 0.1
"""The loss of AUROC from which fine-tuning is advised. On the kinds of questions that the shipped
calibrator was tested on, up to 0.09 are missing."""
HARMLESS: Final = 0.02
"""The log loss for each reply that about equals an ECE of 0.1 at medium confidences."""
LEAST_LABELS: Final = 50
LEAST_TO_RANK: Final = 20
"""The least labels for which the ranking is reported with its interval, though without advice."""
TO_TUNE: Final = 100
EXPECTED_WITH: Final = (50, 100, 200, 500, 1_000)
KINDS: Final[tuple[Kind, ...]] = ("platt", "isotonic")


@dataclass(frozen=True, slots=True)
class ExpectedEce:
    """The mean ECE on other questions after a curve was fitted on this many labels."""

    labels: int
    platt: float
    isotonic: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The action, the reason, and the figures behind it.

    `own_auroc` is the AUROC on the checkpoint's card, or nan without one; `expected_auroc` is what
    the confidences of these rows would have if they were true. `more_labels` is the number of
    missing labels, or 0. `is_delivered_only` means that the rows come from a record and none of
    them was held.
    """

    action: Action
    why: str
    rows: int
    questions: int
    right: float = math.nan
    auroc: Interval = field(default_factory=lambda: Interval(math.nan, math.nan, math.nan))
    own_auroc: float = math.nan
    expected_auroc: float = math.nan
    is_delivered_only: bool = False
    ece: float = math.nan
    brier: float = math.nan
    trials: Mapping[Kind, Trial] = field(default_factory=dict)
    expected: tuple[ExpectedEce, ...] = ()
    more_labels: int = 0

    @property
    def is_chance(self) -> bool:
        """Whether the 95 % interval of the AUROC includes 0.5, the value of a random order.

        It is False where no AUROC was measured.
        """
        return holds_chance(self.auroc)

    @property
    def kind(self) -> Kind:
        """The curve, `platt` or `isotonic`, with the lower log loss on labels not fitted on.

        It is `platt` where none was tried.
        """
        found = [name for name in KINDS if name in self.trials]
        return min(found, key=lambda name: self.trials[name].after.log_loss, default="platt")

    def as_dict(self) -> dict[str, Any]:
        """Return the advice as a dict of values for JSON, with None instead of nan.

        Beside the fields it has `is_chance`, and each trial has `is_better`.
        """
        trials = {name: each.as_dict() for name, each in self.trials.items()}
        fields = {**asdict(self), "trials": trials, "is_chance": self.is_chance}
        values: dict[str, Any] = _without_nan(fields)
        return values


def _without_nan(value: Any) -> Any:
    """Return a value with None for nan and infinity, and lists for tuples, at any depth."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def advise(rows: Sequence[Row], confidence: Floats, own_auroc: float = math.nan) -> Advice:
    """Return advice about a calibrator that gave these confidences (n,) to labelled rows.

    The action is `leave`, `recalibrate`, `fine_tune` or `collect`. `own_auroc` is the AUROC on the
    checkpoint's card, nan without one. Rows of one label give `collect` without further figures;
    fewer than `LEAST_LABELS` rows give `collect` with the AUROC alone, from `LEAST_TO_RANK` rows
    on.
    """
    y, questions = labels_of(rows), question_numbers(rows)
    count, distinct = len(rows), int(questions.max()) + 1
    if y.min() == y.max():
        which = "correct" if y[0] else "wrong"
        why = f"all {count} rows are {which}: nothing tells how right and wrong replies differ"
        return Advice("collect", why, count, distinct, float(y.mean()), more_labels=LEAST_LABELS)
    if count < LEAST_LABELS:
        few = f"{count} labelled rows are too few to judge a calibrator by"
        why = f"{few}: {LEAST_LABELS} are the least"
        missing = LEAST_LABELS - count
        advice = Advice("collect", why, count, distinct, float(y.mean()), more_labels=missing)
        if count < LEAST_TO_RANK:
            return advice
        return replace(advice, auroc=auroc_interval(y, confidence, questions))
    found = observed_rows(rows, confidence)
    trials = {kind: trial(found, confidence, kind=kind) for kind in KINDS}
    interval = auroc_interval(y, confidence, questions)
    expected = expected_auroc(confidence)
    action, why, missing = _decide(count, RankingCheck(interval, expected, own_auroc), trials)
    return Advice(
        action,
        why,
        count,
        distinct,
        float(y.mean()),
        interval,
        own_auroc,
        expected,
        is_delivered_only(rows),
        ece(y, confidence),
        brier(y, confidence),
        trials,
        tuple(_expected_eces(rows, confidence)),
        missing,
    )


def is_delivered_only(rows: Sequence[Row]) -> bool:
    """Return whether the rows come from a record (`pinocchio export`) and none was held.

    Such rows have a `kind`, which is `hold` for a reply that was not delivered. Their confidences
    are then those that a policy let through, not those of all replies.
    """
    kinds = [row.raw["kind"] for row in rows if isinstance(row.raw.get("kind"), str)]
    return bool(kinds) and "hold" not in kinds


@dataclass(frozen=True, slots=True)
class RankingCheck:
    """The measured AUROC of labelled replies, the `expected` one, and the card's `own`.

    `expected` is the AUROC if the confidences were true; `own` is nan where the checkpoint has no
    card.
    """

    auroc: Interval
    expected: float
    own: float

    @property
    def bar(self) -> float:
        """The AUROC below which the ranking is materially worse than expected.

        It is `MATERIAL` less than the expected one.
        """
        return self.expected - MATERIAL

    @property
    def is_narrow(self) -> bool:
        """Whether the confidences are so close together that they rank almost nothing.

        The AUROC that they would have if they were true is then below `NEAR_CHANCE`.
        """
        return self.expected < NEAR_CHANCE

    @property
    def is_degraded(self) -> bool:
        """Whether the whole interval of the AUROC is below both `bar` and the card's AUROC.

        Without a card `NEAR_CHANCE` takes the place of its AUROC.
        """
        own = self.own if math.isfinite(self.own) else NEAR_CHANCE
        return self.auroc.high < min(self.bar, own)

    @property
    def is_open(self) -> bool:
        """Whether the labels do not exclude a bad ranking.

        That is where the low end of the interval is below both `bar` and `NEAR_CHANCE`; never where
        `is_narrow`.
        """
        return not self.is_narrow and self.auroc.low < min(self.bar, NEAR_CHANCE)

    def __str__(self) -> str:
        """Return the AUROC with its interval, as `AUROC 0.731, 95 % between 0.700 and 0.760`."""
        return (
            f"AUROC {self.auroc.value:.3f}, 95 % between {self.auroc.low:.3f} and "
            f"{self.auroc.high:.3f}"
        )


def _decide(
    count: int, ranking: RankingCheck, trials: Mapping[Kind, Trial]
) -> tuple[Action, str, int]:
    """Return the action, the reason in words, and the number of missing labels, 0 if none.

    `count` is the number of labelled rows. The rules are those of the module: a degraded ranking,
    an open one, then calibration. Of the `trials`, the best one counts.
    """
    is_chance = holds_chance(ranking.auroc)
    mending = max(trials.values(), key=lambda each: (each.is_better, each.gain.value))
    claim = f"these confidences promise {ranking.expected:.3f}"
    if ranking.is_degraded:
        why = f"it ranks these replies worse than it should: {ranking}; {claim}"
        if is_chance:
            why = f"it cannot rank these replies, as far as {count:,} labels show: {ranking}"
        if count >= TO_TUNE:
            return "fine_tune", why, 0
        if is_chance:
            return "collect", why, TO_TUNE - count
        return _recalibrate_or_collect(mending, why, TO_TUNE - count)
    if ranking.is_open:
        reach = ranking.auroc.value - min(ranking.bar, NEAR_CHANCE)
        missing = max(_missing_labels(count, ranking.auroc, reach), TO_TUNE - count)
        if is_chance:
            why_chance = f"it cannot rank these replies, as far as {count:,} labels show: {ranking}"
            return "collect", why_chance, missing
        return _recalibrate_or_collect(
            mending, f"whether it ranks nobody can tell yet ({ranking})", missing
        )
    ranks = f"it ranks ({ranking}; {claim})"
    if ranking.is_narrow:
        ranks = (
            f"the confidences of these replies are too close together to rank them ({ranking}; "
            f"{claim}, so nothing is wrong with that)"
        )
    if mending.is_better:
        return (
            "recalibrate",
            f"{ranks}, and a recalibration gains {_gain_in_words(mending.gain)}",
            0,
        )
    if mending.gain.high > HARMLESS:
        missing = _missing_labels(count, mending.gain, HARMLESS)
        why = f"{ranks}; a recalibration might gain {_gain_in_words(mending.gain)} or nothing"
        return "collect", why, missing
    return "leave", f"{ranks}, and no recalibration is better beyond noise", 0


def _recalibrate_or_collect(mending: Trial, why: str, missing: int) -> tuple[Action, str, int]:
    """Return `recalibrate` where the trial gains beyond noise, else `collect`.

    The result is (action, reason, missing labels). The reason is `why`, followed by the gain where
    there is one; `missing` is returned unchanged.
    """
    if mending.is_better:
        return (
            "recalibrate",
            f"{why}; a recalibration gains {_gain_in_words(mending.gain)} already",
            missing,
        )
    return "collect", why, missing


def _gain_in_words(gain: Interval) -> str:
    """Return a gain as `0.012 of log loss, 95 % between +0.003 and +0.020`."""
    return f"{gain.value:.3f} of log loss, 95 % between {gain.low:+.3f} and {gain.high:+.3f}"


def _missing_labels(count: int, interval: Interval, reach: float) -> int:
    """Return how many labels more than `count` shrink the interval's half width to `reach`.

    It is rounded up to fifties. The width falls with the root of the number of labels. The total is
    at least half as many again as now, and at most ten times as many.
    """
    width = (interval.high - interval.low) / 2
    factor = (width / max(abs(reach), width / 3)) ** 2
    wanted = count * min(max(factor, 1.5), 10.0)
    return math.ceil((wanted - count) / 50) * 50


def _expected_eces(rows: Sequence[Row], confidence: Floats) -> list[ExpectedEce]:
    """Return the ECE expected with each number of labels in `EXPECTED_WITH` that the rows allow.

    It is measured by fitting on random questions of these rows and judging the others. Numbers
    above half of the rows are left out.
    """
    y, questions = labels_of(rows), question_numbers(rows)
    found = ((count, mend("", y, confidence, questions, count)) for count in EXPECTED_WITH)
    return [
        ExpectedEce(count, mended.ece_platt, mended.ece_isotonic)
        for count, mended in found
        if mended is not None and np.isfinite(mended.ece_platt)
    ]
