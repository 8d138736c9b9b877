"""Confidences as a recalibration of this deployment corrects them.

It belongs to a generation of the configuration: a request keeps the one with which it began, and
the name that is told with a confidence is that of what made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from calibrator import Question
from proxy.formats import Choice
from proxy.scoring.scoring import Confidence, OtherAnswer

if TYPE_CHECKING:
    from calibrator import Recalibration


class Scores(Protocol):
    """What gives confidences: the calibrator alone (`scoring.Scoring`), or recalibrated."""

    @property
    def name(self) -> str | None: ...

    @property
    def opinion(self) -> str: ...

    async def with_others(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        found: Sequence[Confidence],
        others: Sequence[OtherAnswer],
        model: str,
    ) -> list[Confidence]: ...

    async def score(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]: ...


class Recalibrated:
    """`scores` as `recalibration` corrects them."""

    def __init__(self, scores: Scores, recalibration: Recalibration) -> None:
        self._scores = scores
        self._recalibration = recalibration
        self._suffix = f"+{recalibration.name}"  # a hash, made once

    @property
    def name(self) -> str | None:
        """Checkpoint and recalibration, e.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
        name = self._scores.name
        return None if name is None else name + self._suffix

    async def score(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]:
        """As `Scoring.score`; each confidence says what it was before."""
        found = await self._scores.score(question, choices, model, domain, team)
        return [self._mended(each, model, domain, team) for each in found]

    @property
    def opinion(self) -> str:
        return self._scores.opinion

    async def with_others(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        found: Sequence[Confidence],
        others: Sequence[OtherAnswer],
        model: str,
    ) -> list[Confidence]:
        """As `Scoring.with_others`: what others say changes what the calibrator itself said, and
        the recalibration, which stands on replies alone, changes that no more."""
        plain = [each if each.score is None else replace(each, value=each.score) for each in found]
        moved = await self._scores.with_others(question, choices, plain, others, model)
        return [
            before
            if after.evidence is None or before.value is None
            else replace(after, score=None, evidence=replace(after.evidence, before=before.value))
            for before, after in zip(found, moved, strict=True)
        ]

    def _mended(
        self, found: Confidence, model: str, domain: str | None, team: str | None
    ) -> Confidence:
        if (score := found.value) is None:
            return found
        value = self._recalibration.apply_to(score, model, domain, team)
        return replace(found, value=value, score=score)
