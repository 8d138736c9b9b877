"""Confidences of replies that are also held against the operator's facts.

The file belongs to a generation of the configuration, the calibrator does not: each reply takes
those facts with it that it is about, to a scorer in this process or on another machine.
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
    """Return what scores replies with these facts; the calibrator's scores without any."""
    return scoring if facts is None else WithFacts(scoring, facts)


class WithFacts:
    """`scoring`, which also gets the facts that a reply is about."""

    def __init__(self, scoring: Scoring, facts: FactFile) -> None:
        self._scoring = scoring
        self._facts = facts

    @property
    def name(self) -> str | None:
        """The calibrator's name; facts are context, like a document in a conversation."""
        return self._scoring.name

    @property
    def opinion(self) -> str:
        """The provenance of a confidence that knows other answers."""
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
        """Return what other answers make of confidences that know the facts already."""
        scoring = self._scoring
        return await scoring.with_others(question, choices, found, others, model, domain, team)

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence:
        """Return a confidence with its signals, as `Scoring.with_signals` does."""
        return self._scoring.with_signals(found, signals)
