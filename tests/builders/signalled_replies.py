"""Simulated replies with a judge's P(correct) and log-probabilities, each there half the time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.signals import LabelledSignals
from calibrator.scorer import Signals

JUDGE = "gpt-5-mini"
IsThere = Callable[[float, np.random.Generator], bool]


def half(_: float, rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def mostly_where_hard(truth: float, rng: np.random.Generator) -> bool:
    """A judge that answers hard questions more often: its silence says something."""
    return bool(rng.random() < sigmoid(-1.5 * truth))


def replies(
    count: int,
    seed: int,
    is_judged: IsThere = half,
    has_logprobs: IsThere = half,
    calibrator: str = "words@1",
) -> list[LabelledSignals]:
    """`calibrator` says the truth without signals; each signal says more."""
    rng = np.random.default_rng(seed)
    found = []
    for odds in rng.normal(0.3, 1.2, count):
        is_right = bool(rng.random() < sigmoid(odds))
        judged = float(sigmoid((1.2 if is_right else -1.2) + rng.normal(0, 1.5)))
        mean = -abs(rng.normal(0.3 if is_right else 0.6, 0.2))
        is_there = is_judged(odds, rng)
        found.append(
            LabelledSignals(
                is_right,
                float(sigmoid(odds)),
                calibrator,
                Signals(
                    judged if is_there else None,
                    JUDGE if is_there else "",
                    (mean, 4 * mean) if has_logprobs(odds, rng) else None,
                ),
            )
        )
    return found
