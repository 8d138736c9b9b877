"""Confidences of replies that are also compared with the operator's facts.

The file of facts belongs to a generation of the configuration, the calibrator does not. The facts
that are relevant to a reply are therefore passed with it to the scorer, which may be on another
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from calibrator import Question, Signals
from proxy.formats import Choice
from proxy.scoring.recalibrated import Scores
from proxy.scoring.scoring import Confidence, OtherAnswer, Scoring

if TYPE_CHECKING:
    from calibrator import FactFile


def with_facts(scoring: Scoring, facts: FactFile | None) -> Scores:
    """Return scores that use these facts; the calibrator's own scores if there are none."""
    return scoring if facts is None else WithFacts(scoring, facts)


class WithFacts:
    """Scores by `scoring`, which also gets the facts that are relevant to a reply."""

    def __init__(self, scoring: Scoring, facts: FactFile) -> None:
        self._scoring = scoring
        self._facts = facts

    @property
    def name(self) -> str | None:
        """The calibrator's name; facts are context, like a document in a conversation."""
        return self._scoring.name

    @property
    def opinion(self) -> str:
        """The provenance of a confidence that takes other answers into account."""
        return self._scoring.opinion

    async def score(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]:
        """Return one confidence for each choice, as `Scoring.score` does."""
        score, facts = self._scoring.score, self._facts.about_item
        return await score(question, choices, model, domain, team, facts=facts)

    async def with_others(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        found: Sequence[Confidence],
        others: Sequence[OtherAnswer],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]:
        """Return confidences after comparison with other answers; they know the facts already."""
        scoring = self._scoring
        return await scoring.with_others(question, choices, found, others, model, domain, team)

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence:
        """Return a confidence with its signals, as `Scoring.with_signals` does."""
        return self._scoring.with_signals(found, signals)
