"""A scorer whose confidences pass through a recalibration file; its scores stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibrator.recalibration.curves import Recalibration
from calibrator.scorer import (
    Item,
    Score,
    Scorer,
    batch_characters_of,
    opinion_of,
    reads_images,
    reads_tool_use,
)


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A Scorer around another; the recalibration was fitted on that one's confidences.

    It stands on replies alone: where those of others were read, it changes what is said without
    them (`Score.alone`), and the number that knows them stays as it was.
    """

    scorer: Scorer
    recalibration: Recalibration

    @property
    def name(self) -> str:
        """E.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
        return f"{self.scorer.name}+{self.recalibration.name}"

    @property
    def reads_images(self) -> bool:
        return reads_images(self.scorer)

    @property
    def reads_tool_use(self) -> bool:
        return reads_tool_use(self.scorer)

    @property
    def opinion(self) -> str:
        return opinion_of(self.scorer)

    @property
    def batch_characters(self) -> int:
        return batch_characters_of(self.scorer)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        scores = self.scorer.score_batch(items)
        return [self._mend(item, score) for item, score in zip(items, scores, strict=True)]

    def _mend(self, item: Item, score: Score) -> Score:
        if score.alone is not None:
            return replace(score, alone=self._of(item, score.alone))
        return replace(score, confidence=self._of(item, score.confidence))

    def _of(self, item: Item, confidence: float) -> float:
        return self.recalibration.apply_to(confidence, item.source_model, item.domain)
