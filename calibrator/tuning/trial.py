"""Whether fine-tuning on labels of a deployment is better than what counts now, and than less.

What counts now is beaten as a recalibration has to beat it (`recalibration_trial`). That alone
would often be the recalibration in it; a new checkpoint, for which certificates and recalibrations
have to be made anew, must also beat a recalibration that learnt from the same labels (paper A09:
evaluate, then recalibrate, then fine-tune).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calibrator.metrics.metrics import Floats
from calibrator.recalibration.fit import FOLDS, Observed
from calibrator.recalibration.trial import ROUNDS, Trial, compared, fixed, recalibrated, unseen
from calibrator.tuning.last_layer import Readings, Tuned, fit_tuned

TUNING_STEPS = FOLDS + ROUNDS + 1  # that `progress` hears of, or a few more or less


@dataclass(frozen=True, slots=True)
class TuningTrial:
    """What was learnt from all labels, and how its like did on labels that it did not see."""

    tuned: Tuned
    now: Trial  # fine-tuned against what counts now
    recalibration: Trial  # a recalibration alone against what counts now
    beside: Trial  # fine-tuned against that recalibration

    @property
    def is_better(self) -> bool:
        """Whether the fine-tuned one may take the place of what counts now."""
        return self.now.is_better and self.beside.is_better

    def as_dict(self) -> dict[str, Any]:
        trials = {"now": self.now, "recalibration": self.recalibration, "beside": self.beside}
        told = {name: each.as_dict() for name, each in trials.items()}
        learnt = {"learnt": self.tuned.learnt, "models": dict(self.tuned.models)}
        return {"is_better": self.is_better, **learnt, **told}


def try_tuning(
    found: Readings, now: Floats, progress: Callable[[], None] = lambda: None
) -> TuningTrial:
    """Try it on replies in the order of time; `now` (n,) is what was told of each, by today's
    recalibration.

    Raises JudgingError for labels that are too few, or of one kind.
    """

    def learn(known: Sequence[int], judged: Sequence[int]) -> Floats:
        return fit_tuned(found.taken(known)).confidence(found.read.taken(judged))

    tuned = fit_tuned(found)  # first: it says what is missing
    progress()
    nobody = [""] * len(found)
    own = found.read.confidence
    observed = Observed(found.correct, own, nobody, found.questions, found.weights)
    before, less = fixed(now), recalibrated(observed)
    more = unseen(observed, learn, progress)
    return TuningTrial(
        tuned,
        compared(observed, before, more),
        compared(observed, before, less),
        compared(observed, less, more),
    )
