"""Another calibrator's number, where the configured one gives none in time.

The second step of load shedding (docs/operations.md): a calibrator that is busy, late, down or
still loading costs a reply its better number, and a quick one in this process gives its own. It is
told as what it is: its name, its recalibration, and the word for why the other one gave none. What
was fitted or certified for the one is never used for the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from calibrator import Question, Signals
from proxy.formats import Choice
from proxy.scoring.recalibrated import Scores
from proxy.scoring.scoring import Confidence, OtherAnswer, StandIn, Status

log = structlog.get_logger(__name__)

CAUSES: Final = frozenset({Status.LOADING, Status.SKIPPED, Status.TIMEOUT, Status.ERROR})
"""What the calibrator's own state costs a number; what it cannot read, it can read at no time."""
PREFIX: Final = "stand_in_"  # of the reason of a number that a stand-in gave
TOLD_EVERY_S: Final = 60.0


class WithStandIn:
    """`scores`, and where they are missing those of `stand_in`; each choice of a reply has its
    number from the same one, since they are compared."""

    def __init__(self, scores: Scores, stand_in: Scores) -> None:
        self._scores = scores
        self._stand_in = stand_in
        self._untold: Counter[str] = Counter()  # causes since the last line
        self._told_at = -TOLD_EVERY_S

    @property
    def name(self) -> str | None:
        """That of the configured calibrator's numbers; a stand-in's say whose they are."""
        return self._scores.name

    @property
    def opinion(self) -> str:
        """The provenance of the configured calibrator's numbers that know other answers."""
        return self._scores.opinion

    async def score(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]:
        """As `Scoring.score`; where the stand-in has no number either, the first word holds."""
        found = await self._scores.score(question, choices, model, domain, team)
        missing = next((each for each in found if each.value is None), None)
        if missing is None or any(each.status not in CAUSES for each in _without_number(found)):
            return found
        instead = await self._stand_in.score(question, choices, model, domain, team)
        if (name := self._stand_in.name) is None or _without_number(instead):
            return found
        cause = missing.reason or missing.status.value
        self._note(cause, name)
        by, reason = StandIn(name, cause), PREFIX + cause
        return [replace(each, stand_in=by, reason=reason) for each in instead]

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
        """As `Scoring.with_others`: whoever gave the numbers looks at what others say."""
        is_instead = any(each.stand_in is not None for each in found)
        scores = self._stand_in if is_instead else self._scores
        return await scores.with_others(question, choices, found, others, model, domain, team)

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence:
        """As `Scoring.with_signals`, by what was learned for whoever gave the number."""
        scores = self._scores if found.stand_in is None else self._stand_in
        return scores.with_signals(found, signals)

    def _note(self, cause: str, name: str) -> None:
        """A line for the first reply, then one a minute."""
        self._untold[cause] += 1
        if (now := time.monotonic()) - self._told_at < TOLD_EVERY_S:
            return
        self._told_at = now
        log.warning(
            "stand_in_scores",
            calibrator=name,
            instead_of=self.name,
            replies=dict(self._untold),
            hint="the configured calibrator is late, too busy or not there",
        )
        self._untold.clear()


def _without_number(found: Sequence[Confidence]) -> list[Confidence]:
    return [each for each in found if each.value is None]
