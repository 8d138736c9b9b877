"""Pass a scorer's confidences through a recalibration file; its scores stay unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibrator.errors import CheckpointError
from calibrator.recalibration.curves import Recalibration
from calibrator.recalibration.versions import Recalibrations
from calibrator.scorer import (
    LOGPROBS,
    OPINIONS,
    Item,
    Score,
    Scorer,
    basis_with,
    batch_characters_of,
    opinion_of,
    provenance,
    reads_images,
    reads_tool_use,
)


@dataclass(frozen=True, slots=True)
class RecalibratedScorer:
    """A Scorer around another; the recalibrations were fitted on that one's confidences.

    Numbers of replies alone and numbers that know other replies have a recalibration each. The
    second stage reads the scorer's own confidence, so `Score.alone` is corrected beside the number
    that knows other replies. The weights of signals apply to the scorer's own confidence as well.
    """

    scorer: Scorer
    recalibrations: Recalibrations

    def __post_init__(self) -> None:
        """Raise CheckpointError for a recalibration that was fitted on other numbers."""
        self.recalibrations.check_fit(self.scorer.name)
        known, opinion = self.recalibrations.with_others, opinion_of(self.scorer)
        if known is not None and known.calibrator != opinion:
            raise CheckpointError(
                f"recalibration {known.name} was fitted for {known.calibrator}, not for "
                f"{opinion or self.scorer.name}; fit it again with pinocchio recalibrate"
            )

    @property
    def name(self) -> str:
        """The names of scorer and recalibration, e.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
        return _full_name(self.scorer.name, self.recalibrations.alone)

    @property
    def reads_images(self) -> bool:
        return reads_images(self.scorer)

    @property
    def reads_tool_use(self) -> bool:
        return reads_tool_use(self.scorer)

    @property
    def opinion(self) -> str:
        return _full_name(opinion_of(self.scorer), self.recalibrations.with_others)

    @property
    def signals(self) -> str:
        weights = self.recalibrations.signals
        return "" if weights is None else weights.name

    @property
    def batch_characters(self) -> int:
        return batch_characters_of(self.scorer)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        scores = self.scorer.score_batch(items)
        return [self._mend(item, score) for item, score in zip(items, scores, strict=True)]

    def _mend(self, item: Item, score: Score) -> Score:
        """Return the score with recalibrated confidences, changed by the item's signals if any.

        Signals are a judge's P(correct) and the tokens' log-probabilities.
        """
        alone, with_others = self.recalibrations.alone, self.recalibrations.with_others
        if score.alone is None:
            mended = replace(score, confidence=_correct(alone, item, score.confidence))
        else:
            mended = replace(
                score,
                alone=_correct(alone, item, score.alone),
                confidence=_correct(with_others, item, score.confidence),
            )
        return self._with_signals(item, score, mended)

    def _with_signals(self, item: Item, own: Score, mended: Score) -> Score:
        """Return `mended` with the confidence that joins the item's signals to `own`.

        `own` is the scorer's own score. Return `mended` itself if no weights know these signals.
        """
        weights, name = self.recalibrations.signals, provenance(self.scorer, own)
        found = weights.weigh(own.confidence, name, item.signals) if weights is not None else None
        if found is None:
            return mended
        is_heard = any(kind != LOGPROBS for kind in found.kinds)
        return replace(
            mended,
            basis=basis_with(mended.basis, OPINIONS) if is_heard else mended.basis,
            unaided=mended.confidence,
            confidence=found.confidence,
            calibrator=found.calibrator,
        )


def _full_name(name: str, recalibration: Recalibration | None) -> str:
    return name if recalibration is None else f"{name}+{recalibration.name}"


def _correct(recalibration: Recalibration | None, item: Item, confidence: float) -> float:
    """Return the recalibrated confidence for the item's model and domain; unchanged for None."""
    if recalibration is None:
        return confidence
    return recalibration.apply_to(confidence, item.source_model, item.domain)
