"""The second stage: from a reply's own log-odds and other replies to new log-odds.

    log-odds' = log-odds + trust ((trees(evidence) + linear(plain evidence)) / 2 - log-odds)

Both models were fitted on log-odds of replies that tower and forest had not seen (`training`), and
never fall as the reply's own log-odds rise. The trees know more about tasks like those of training.
The linear model knows little but agreement, and so does better on new tasks. Whatever their output,
others that never agree cannot raise a confidence, and others that never differ cannot lower it.

`trust` is 0 where nothing can be compared, because the reply or all others have no final answer. It
is also 0 where agreement misled in training on questions with a similar meaning (riddles with a
popular wrong answer), since others repeat the mistake there. Without others the second stage is not
used and the number does not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.features.forest import Forest
from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.readers.opinion.answers import final_answer
from calibrator.readers.opinion.evidence import (
    EVIDENCE,
    MAX_OTHERS,
    PLAIN,
    Opinion,
    Opinions,
    evidence,
    plain_evidence,
)
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.scorer import OPINIONS, Item, Score, basis_with, known_name
from calibrator.text.stripping import strip_addresses
from calibrator.text.word_pieces import Layout, WordPieces

Array = NDArray[np.generic]
Floats = NDArray[np.float32]
PREFIX: Final = "opinion."
TRUST: Final = "trust."
LINEAR: Final = "linear."
NEARNESS: Final = 0.05  # decrease of a cosine that makes a question count e times less
PRIOR: Final = 0.01  # weight of the mean of all questions beside the near ones
DISTRUSTED: Final = 0.05  # gain of agreement up to which nothing is changed
TRUSTED: Final = 0.08  # gain of agreement from which the models are trusted fully
READ: Final = b"differ never up, agree never down; calls by their parts, or none"
"""The rules of comparison, which are a part of the version because they change numbers."""


@dataclass(frozen=True, slots=True)
class OpinionReader:
    """A second stage with the models that it needs.

    `numbers` maps the names of models in lower case to their rows in the forest.
    """

    stage: SecondStage
    forest: Forest
    word_pieces: WordPieces
    layout: Layout
    numbers: Mapping[str, int]

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]:
        """Return the scores, changed by the second stage for items that have other replies.

        Scores of items without `others` are returned unchanged. A changed score has the old
        confidence as `alone`, and the outcomes as `compared`.
        """
        found = list(scores)
        chosen = [at for at, item in enumerate(items) if item.others]
        if not chosen:
            return found
        ids = self.word_pieces.encode([items[at].question for at in chosen], self.layout)
        pieces = [np.unique(np.array(each, dtype=np.int32)) for each in ids]
        replies = [self._opinions(items[at], scores[at].confidence) for at in chosen]
        odds = self.stage.odds(replies, self.forest.difficulty.meanings(pieces))
        for at, reply, confidence in zip(chosen, replies, sigmoid(odds).tolist(), strict=True):
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
        """Return a reply and the others to it as the second stage reads them.

        `confidence` is that of the reply by its text alone. At most `MAX_OTHERS` others are
        read.
        """
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


class Trust:
    """The worth of agreement on questions with a similar meaning.

    `questions` (Q, D) int8 have any length. `gain` (Q,) is the mean of P(right) - P(right by its
    text alone) for replies that others agree with, negative for those they differ from. `weight`
    (Q,) is the number of replies behind it. Raises ValueError for other shapes.
    """

    def __init__(self, questions: Array, gain: Array, weight: Array) -> None:
        """Take the questions, each scaled to length 1, their gains and weights."""
        if questions.shape[:1] != gain.shape or gain.shape != weight.shape or not len(gain):
            raise ValueError(f"a trust of another shape: {questions.shape}, {gain.shape}")
        vectors = questions.astype(np.float32)
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        self.questions = vectors / lengths
        self.gain, self.weight = gain.astype(np.float32), weight.astype(np.float32)
        self.usual = float((self.gain * self.weight).sum() / max(1e-6, float(self.weight.sum())))

    def trust_in(self, meanings: Floats) -> NDArray[np.float64]:
        """Return the trust, 0 to 1, for questions with meanings (B, D), each of length 1 or 0.

        It is the gain of agreement on near questions, scaled: 0 up to `DISTRUSTED`, 1 from
        `TRUSTED`.
        """
        near = np.exp((np.einsum("bd,qd->bq", meanings, self.questions) - 1) / NEARNESS)
        near = near * self.weight
        gain = (near @ self.gain + PRIOR * self.usual) / (near.sum(axis=1) + PRIOR)
        return np.asarray(np.clip((gain - DISTRUSTED) / (TRUSTED - DISTRUSTED), 0, 1), np.float64)

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Trust:
        """Build it from arrays named `trust.<name>`. Raises KeyError where one is missing."""
        return cls(*(state[TRUST + name] for name in ("questions", "gain", "weight")))


class Linear:
    """Logistic regression on the plain evidence. Raises ValueError for arrays of another shape."""

    def __init__(self, weights: Array, base: Array) -> None:
        """Take the weights (PLAIN,) and the base (1,)."""
        if weights.shape != (PLAIN,) or base.shape != (1,):
            raise ValueError(f"a linear model of another shape: {weights.shape}, {base.shape}")
        self.weights, self.base = weights.astype(np.float64), float(base[0])

    def read(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-odds (B,) of rows (B, PLAIN)."""
        return np.asarray(self.base + np.einsum("bp,p->b", rows, self.weights))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Linear | None:
        """Build it from arrays named `linear.<name>`; None for a stage of trees alone.

        Raises KeyError for a missing base and ValueError for another shape.
        """
        if LINEAR + "weights" not in state:
            return None
        return cls(state[LINEAR + "weights"], state[LINEAR + "base"])


class SecondStage:
    """The trees, the linear model and the trust of a checkpoint.

    `linear` is None for a stage of trees alone; `version` is a hash of all arrays and of the
    rules of comparison. Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load the arrays of a checkpoint, without the prefix `opinion.`."""
        self.trees = Trees(state, EVIDENCE)
        self.trust = Trust.from_state(state)
        self.linear = Linear.from_state(state)
        digest = hashlib.sha256(READ)
        for name in sorted(state):
            digest.update(name.encode() + np.ascontiguousarray(state[name]).tobytes())
        self.version = digest.hexdigest()[:8]  # recalibrations of its numbers are bound to it

    def odds(self, replies: Sequence[Opinions], meanings: Floats) -> NDArray[np.float64]:
        """Return the new log-odds (B,); `meanings` (B, D) are those of the questions.

        Unchanged are replies whose comparison tells nothing, and all where the questions
        have no trust. Agreement alone never lowers the log-odds and difference alone never
        raises them.
        """
        own = np.array([each.odds for each in replies])
        found = np.array([evidence(each) for each in replies], dtype=np.float32)
        new = self.trees.read(found.reshape(-1, EVIDENCE))
        if self.linear is not None:
            plain = np.array([plain_evidence(each) for each in replies]).reshape(-1, PLAIN)
            new = (new + self.linear.read(plain)) / 2
        is_informative = np.array([each.is_informative() for each in replies])
        agree, differ = (
            np.array([word in each.outcomes() for each in replies]) for word in ("agree", "differ")
        )
        new = np.where(differ & ~agree, np.minimum(new, own), new)
        new = np.where(agree & ~differ, np.maximum(new, own), new)
        return np.asarray(
            own + np.where(is_informative, self.trust.trust_in(meanings), 0.0) * (new - own)
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> SecondStage | None:
        """Load the arrays of a checkpoint; None if none begins with `opinion.`.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None
