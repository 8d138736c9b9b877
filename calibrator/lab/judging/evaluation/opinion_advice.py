"""The worth of second opinions on labelled replies, and the replies to ask for them about.

A policy asks where the confidence is in a band. Each band has a price, the calls for each reply,
and a gain, in the share that can be kept at a stated error rate (paper L02). The band is chosen on
half of the questions and judged on the other half, so the figures are of unseen replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.drawn_others import (
    SEED,
    ReadsOthers,
    check_reads_others,
    confidences_of,
    draw_others,
)
from calibrator.metrics.metrics import Floats, Ints, auroc, coverage_at
from calibrator.rows.rows import Row, labels_of
from calibrator.scorer import Score

LEAST_REPLIES: Final = 100
"""The least replies with others; half of fewer would not determine a share at 95 % right."""
WANTED: Final = 0.95
"""The share of the gain that the advised band needs, on the half that it is chosen on. The cheapest
such band is the advice. As it was chosen for its figure, it has less elsewhere; nine tenths should
remain."""
BUDGETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)  # calls for each reply, one for each line
LEAST_GAIN: Final = 0.01  # share of replies; a smaller gain is not worth a call
EDGES: Final = tuple(round(0.05 * step, 2) for step in range(21))


@dataclass(frozen=True, slots=True)
class BandEffect:
    """The effect of asking about confidences from `low` up to, but not including, `high`.

    It has the calls for each reply, the AUROC, and the share kept at the wanted error rate.
    """

    low: float
    high: float
    calls: float
    auroc: float
    kept: float

    @property
    def is_nobody(self) -> bool:
        """Whether the band is empty, so that no reply is asked about."""
        return self.low >= self.high


@dataclass(frozen=True, slots=True)
class OpinionAdvice:
    """The effects of asking about no reply, about all, and in the best band for each budget.

    All are measured on the judged half. `band` is the cheapest with `WANTED` of the gain, None
    where opinions gain too little.
    """

    calibrator: str
    replies: int
    questions: int
    max_error: float
    nobody: BandEffect
    everybody: BandEffect
    bands: tuple[BandEffect, ...]
    band: BandEffect | None

    def gain(self, effect: BandEffect) -> float:
        """Return the share of the whole gain in kept replies that asking in this band has.

        The whole gain is that of asking about all. It is 0 where that is not above 0.
        """
        whole = self.everybody.kept - self.nobody.kept
        return (effect.kept - self.nobody.kept) / whole if whole > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the advice as nested dicts; `band` is None where none is advised."""
        return asdict(self)


def advise_opinion(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    alone: Sequence[Score],
    *,
    model: str | None = None,
    max_error: float = 0.05,
    seed: int = SEED,
) -> OpinionAdvice:
    """Return advice on the band of confidences to ask in, from labelled rows with other replies.

    `alone` are the rows' scores without others, (N,). `model` is the one that would be asked;
    without it one is drawn for each reply. `max_error` is the error rate of the kept replies.
    Raises JudgingError for a calibrator that reads no others, or for fewer than `LEAST_REPLIES`
    labelled replies with one, or where all of them have one label.
    """
    check_reads_others(calibrator)
    drawn = draw_others(calibrator, rows, model=model, seed=seed)
    judged = [rows[each.at] for each in drawn]
    labels = labels_of(judged) if judged else np.zeros(0, int)
    if len(judged) < LEAST_REPLIES or len(set(labels.tolist())) < 2:
        by = f" by {model}" if model else ""
        raise JudgingError(
            f"{len(judged)} labelled replies have another reply{by} to the same question "
            f"(`question_id`), or `others` of their own: {LEAST_REPLIES} are the least, right and "
            "wrong ones"
        )
    own = [alone[each.at] for each in drawn]
    together = calibrator.with_others([each.item for each in drawn], own)
    figures = _Figures(labels, confidences_of(own), confidences_of(together), max_error)
    questions = [row.question_id for row in judged]
    is_chosen_on = np.array([_is_chosen_half(each) for each in questions])
    return _advice(
        figures.choose(is_chosen_on), figures.choose(~is_chosen_on), calibrator.opinion, questions
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    """Labels, and confidences without and with other replies, of the same replies, (N,)."""

    labels: Ints
    alone: Floats
    together: Floats
    max_error: float

    def choose(self, chosen: Any) -> _Figures:
        """Return the figures of the `chosen` replies, a boolean mask (N,)."""
        return _Figures(
            self.labels[chosen], self.alone[chosen], self.together[chosen], self.max_error
        )

    def effect_of(self, low: float, high: float) -> BandEffect:
        """Return the effect of asking about replies with a confidence from `low` to below `high`.

        Those get their confidence with other replies, the rest keep the one without.
        """
        is_asked = (self.alone >= low) & (self.alone < high)
        confidences = np.where(is_asked, self.together, self.alone)
        return BandEffect(
            low,
            high,
            float(is_asked.mean()),
            auroc(self.labels, confidences),
            coverage_at(self.labels, confidences, 1 - self.max_error),
        )


def _advice(
    chosen_on: _Figures, judged: _Figures, calibrator: str, questions: Sequence[str]
) -> OpinionAdvice:
    """Choose bands on the figures of one half of the questions, and measure them on the other.

    `chosen_on` and `judged` are those halves; `questions` has the question of each reply of both.
    For each budget the band that keeps most is chosen, without repetitions; the advised band is the
    cheapest with `WANTED` of the whole gain, None if that gain is below `LEAST_GAIN`.
    """
    nobody, everybody = chosen_on.effect_of(0.0, 0.0), chosen_on.effect_of(0.0, 1.01)
    ends = (*EDGES[:-1], 1.01)
    every = [chosen_on.effect_of(low, high) for low in EDGES for high in ends if low < high]
    best = [
        max((each for each in every if each.calls <= budget), key=lambda each: each.kept)
        for budget in BUDGETS
        if any(each.calls <= budget for each in every)
    ]
    wanted = nobody.kept + WANTED * (everybody.kept - nobody.kept)
    enough = min((each for each in every if each.kept >= wanted), key=lambda each: each.calls)
    bands = dict.fromkeys((each.low, each.high) for each in best)
    is_worth_it = everybody.kept - nobody.kept >= LEAST_GAIN
    return OpinionAdvice(
        calibrator,
        len(questions),
        len(set(questions)),
        judged.max_error,
        judged.effect_of(0.0, 0.0),
        judged.effect_of(0.0, 1.01),
        tuple(judged.effect_of(*band) for band in bands),
        judged.effect_of(enough.low, enough.high) if is_worth_it else None,
    )


def _is_chosen_half(question: str) -> bool:
    """Return whether the band is chosen on this question, by a hash: about half of all are."""
    return hashlib.sha256(question.encode()).digest()[0] % 2 == 0
