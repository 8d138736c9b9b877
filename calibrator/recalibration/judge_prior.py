"""Weigh a judge's opinion by a prior, before any labels of the deployment show its worth.

    log-odds' = log-odds + WORTH * clip(log-odds of the judge / log-odds of SURE, -1, 1)

A judge that is right with probability a, whatever the reply, multiplies the odds by a / (1 - a).
`RIGHT` is the mean accuracy of the 17 judges of the data set "MMLU (LLM judges)" on Hugging Face
(`potsawee/mmlu-llm-judges`, card of revision 2fd9dc3): open models of 7 to 72 billion parameters
that say whether a chosen answer to a question is right, on 28,084 replies, half of them right, and
without a reference, as a judge of this proxy does. They range from 0.53 to 0.85.

The prior is meant to be modest. Strong models that judge the replies of strong models to hard
questions are right little more often than chance (JudgeBench, arXiv 2410.12784), and a judge errs
where the calibrator does. So a certain judge adds 0.76, not the 1.75 of the best one. These figures
do not say how the accuracy depends on the judge's probability: it is an assumption that the shift
grows with its log-odds up to `SURE` and no further.

Labels replace the prior: `pinocchio recalibrate --from-store --signals`.
"""

from __future__ import annotations

import math
from typing import Final

from calibrator.recalibration.curves import content_hash, log_odds, probability
from calibrator.recalibration.signals import WeighedConfidence
from calibrator.scorer import LOGPROBS, PRIOR, Signals

ACCURACIES: Final = (
    *(0.5356, 0.5785, 0.5265, 0.6047, 0.6699, 0.6710, 0.6777, 0.7151, 0.6443, 0.6938, 0.6954),
    *(0.8224, 0.7405, 0.8516, 0.8032, 0.8195, 0.5524),
)
"""The accuracies of the data set's judges, from its card, small models first."""
RIGHT: Final = sum(ACCURACIES) / len(ACCURACIES)
WORTH: Final = math.log(RIGHT / (1 - RIGHT))  # 0.76
SURE: Final = 0.9  # a judge's P(correct) from which (and from 1 - it) its opinion counts in full
NAME: Final = f"{PRIOR}@{content_hash([WORTH, SURE])}"


def prior_shift(judged: float) -> float:
    """Return the log-odds that a judge's P(correct) adds, from -WORTH to WORTH."""
    return WORTH * max(-1.0, min(1.0, log_odds(judged) / log_odds(SURE)))


def weigh_by_prior(
    confidence: float, calibrator: str, signals: Signals
) -> WeighedConfidence | None:
    """Return the confidence moved by a judge's P(correct), by weights set without labels.

    None if no judge gave a number. `calibrator` is the name of the scorer that gave the confidence,
    with its recalibration; the result has a longer name.
    """
    if signals.judged is None:
        return None
    moved = probability(log_odds(confidence) + prior_shift(signals.judged))
    judge = tuple(kind for kind in signals.kinds if kind != LOGPROBS)
    return WeighedConfidence(moved, f"{calibrator}+{NAME}", judge)
