"""Reads other replies with the second stage and changes the scores of items by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrator.features.forest import Forest
from calibrator.readers.opinion.answers import final_answer
from calibrator.readers.opinion.evidence import MAX_OTHERS, Opinion, Opinions
from calibrator.readers.opinion.second_stage import SecondStage
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.scorer import OPINIONS, Item, Score, basis_with, known_name
from calibrator.text.stripping import strip_addresses
from calibrator.text.word_pieces import Layout, WordPieces


@dataclass(frozen=True, slots=True)
class OpinionReader:
    """A second stage with the models that it needs.

    `numbers` are the forest's numbers of models, by their names in lower case.
    """

    stage: SecondStage
    forest: Forest
    word_pieces: WordPieces
    layout: Layout
    numbers: Mapping[str, int]

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
        """Return the scores, changed by the second stage for items that have other replies.

        A changed score has the old confidence as `alone`, and the outcomes as `compared`.
        """
        found = list(scores)
        asked = [at for at, item in enumerate(items) if item.others]
        if not asked:
            return found
        ids = self.word_pieces.encode([items[at].question for at in asked], self.layout)
        pieces = [np.unique(np.array(each, dtype=np.int32)) for each in ids]
        replies = [self._opinions(items[at], scores[at].confidence) for at in asked]
        odds = self.stage.odds(replies, self.forest.difficulty.meanings(pieces))
        for at, reply, confidence in zip(asked, replies, sigmoid(odds).tolist(), strict=True):
            found[at] = replace(
                scores[at],
                score=confidence,
                confidence=confidence,
                alone=scores[at].confidence,
                compared=tuple(reply.outcomes()),
                basis=basis_with(scores[at].basis, OPINIONS),
            )
        return found

    def _opinions(self, item: Item, confidence: float) -> Opinions:
        """Return the final answers of a reply and of the others, with their models' abilities."""
        return Opinions(
            float(logit(confidence)),
            self.ability(item.source_model),
            final_answer(item.question, strip_addresses(item.answer), item.tool_use),
            len(item.answer),
            [
                Opinion(
                    final_answer(item.question, strip_addresses(other.answer), other.tool_use),
                    self.ability(other.source_model),
                    len(other.answer),
                    other.source_model is not None and other.source_model == item.source_model,
                )
                for other in item.others[:MAX_OTHERS]
            ],
        )

    def ability(self, model: str | None) -> float:
        """Return a model's ability on the forest's scale; an unknown one has that of no name."""
        known = known_name(model, self.numbers)
        return float(self.forest.ability[self.numbers[known] if known else 0])
