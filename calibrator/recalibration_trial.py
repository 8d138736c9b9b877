"""Whether a new recalibration is better than what counts now, judged on labels it did not see.

The new one is cross-fitted: each label is judged by a curve that was fitted without the question
it is about. What counts now is taken as it is, also where it was fitted on some of these labels,
which favours it. The rule of promotion:

    the log loss falls, and its 95 % interval over resampled questions lies above no gain

Log loss is proper: it is least for the true probabilities, so that nothing but better confidences
can lower it for long. ECE and Brier score are told beside it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibrator.intervals import RESAMPLES, SEED, Interval, percentile_interval
from calibrator.metrics import Floats, brier, ece, log_losses
from calibrator.recalibration_fit import Observed
from calibrator.sampling import effective_size


@dataclass(frozen=True, slots=True)
class Figures:
    """How good confidences are, each lower is better."""

    ece: float
    brier: float
    log_loss: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What the new recalibration gains; `effective_labels` is what the weighed labels are worth."""

    labels: int
    effective_labels: float
    before: Figures
    after: Figures
    gain: Interval  # of log loss, above 0 is better

    @property
    def is_better(self) -> bool:
        """Whether the new one may take the place of what counts now."""
        return self.gain.low > 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_better": self.is_better}


def trial(found: Observed, before: ArrayLike, after: ArrayLike) -> Trial:
    """Compares confidences (n,) of the observed replies before and after."""
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    saved = log_losses(found.correct, old) - log_losses(found.correct, new)
    return Trial(
        len(found.correct),
        effective_size(found.weights),
        _figures(found, old),
        _figures(found, new),
        _mean_interval(saved, found),
    )


def _figures(found: Observed, confidence: Floats) -> Figures:
    y, w = found.correct, found.weights
    losses = log_losses(y, confidence)
    return Figures(
        ece(y, confidence, weights=w),
        brier(y, confidence, weights=w),
        float(np.average(losses, weights=w)),
    )


def _mean_interval(values: Floats, found: Observed) -> Interval:
    """The weighed mean, and its interval over resamples of whole clusters."""
    _, cluster = np.unique(np.asarray(found.clusters), return_inverse=True)
    sums = np.bincount(cluster, weights=values * found.weights)
    sizes = np.bincount(cluster, weights=found.weights)
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    means = (drawn @ sums) / (drawn @ sizes)
    return percentile_interval(float(sums.sum() / sizes.sum()), means)
