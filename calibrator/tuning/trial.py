"""A trial of fine-tuning on a deployment's labels, against today's numbers and a recalibration.

Fine-tuning has to beat today's numbers as a recalibration has to (`recalibration_trial`). The
recalibration in it would often be enough for that. Since a new checkpoint needs new certificates
and recalibrations, it must also beat a recalibration that learnt from the same labels (paper A09:
evaluate, then recalibrate, then fine-tune).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calibrator.metrics.metrics import Floats
from calibrator.recalibration.fit import FOLDS, LabelledConfidences
from calibrator.recalibration.trial import (
    ROUNDS,
    Trial,
    compare_fits,
    fixed_confidences,
    predict_unseen,
    recalibrate_unseen,
)
from calibrator.tuning.last_layer import Readings, TunedCheckpoint, fit_tuned

TUNING_STEPS = FOLDS + ROUNDS + 1  # approximate number of calls of `progress`


@dataclass(frozen=True, slots=True)
class TuningTrial:
    """The result of fine-tuning on all labels, and trials of the same on unseen labels."""

    tuned: TunedCheckpoint
    now: Trial  # fine-tuned against today's numbers
    recalibration: Trial  # a recalibration alone against today's numbers
    beside: Trial  # fine-tuned against that recalibration

    @property
    def is_better(self) -> bool:
        """Whether the fine-tuned checkpoint may replace today's."""
        return self.now.is_better and self.beside.is_better

    def as_dict(self) -> dict[str, Any]:
        """Return the trials and what was learnt as plain values."""
        trials = {"now": self.now, "recalibration": self.recalibration, "beside": self.beside}
        told = {name: each.as_dict() for name, each in trials.items()}
        learnt = {"learnt": self.tuned.learnt, "models": dict(self.tuned.models)}
        return {"is_better": self.is_better, **learnt, **told}


def try_tuning(
    found: Readings, now: Floats, progress: Callable[[], None] = lambda: None
) -> TuningTrial:
    """Try fine-tuning on replies in the order of time.

    `now` (n,) are their confidences with today's recalibration. Raises JudgingError for too few
    labels, or labels of one kind.
    """

    def learn(known: Sequence[int], judged: Sequence[int]) -> Floats:
        return fit_tuned(found.take(known)).confidence(found.read.take(judged))

    tuned = fit_tuned(found)  # first, as it reports missing labels
    progress()
    nobody = [""] * len(found)
    own = found.read.confidence
    observed = LabelledConfidences(found.correct, own, nobody, found.questions, found.weights)
    before, less = fixed_confidences(now), recalibrate_unseen(observed)
    more = predict_unseen(observed, learn, progress)
    return TuningTrial(
        tuned,
        compare_fits(observed, before, more),
        compare_fits(observed, before, less),
        compare_fits(observed, less, more),
    )
