"""Confidences of a second calibrator, used when the configured one gives none in time.

This is the second step of load shedding (docs/operations.md): if the calibrator is busy, late, down
or still loading, a reply loses its better number, and a quick calibrator in this process gives its
own. That number is marked as a substitute: with its calibrator's name, its recalibration, and the
reason why the other one gave none. What was fitted or certified for one calibrator is never used
for the other.
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
"""The statuses that a stand-in can help with: they come from the calibrator's state. A reply that
the calibrator cannot read stays without a number."""
PREFIX: Final = "stand_in_"  # begins the reason of a stand-in's number
TOLD_EVERY_S: Final = 60.0  # seconds between two log lines


class WithStandIn:
    """Scores that come from `stand_in` if `scores` has none.

    All choices of a reply get their number from the same one, because they are compared.
    """

    def __init__(self, scores: Scores, stand_in: Scores) -> None:
        self._scores = scores
        self._stand_in = stand_in
        self._untold: Counter[str] = Counter()  # causes since the last log line
        self._told_at = -TOLD_EVERY_S

    @property
    def name(self) -> str | None:
        """The name of the configured calibrator's numbers; the stand-in's carry their own."""
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
        """Return confidences like `Scoring.score`, from the stand-in if one is missing for load.

        If the stand-in has no number either, the configured calibrator's reason is kept.
        """
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
        """Return confidences like `Scoring.with_others`, by the calibrator that gave `found`."""
        is_instead = any(each.stand_in is not None for each in found)
        scores = self._stand_in if is_instead else self._scores
        return await scores.with_others(question, choices, found, others, model, domain, team)

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence:
        """Return a confidence with its signals, weighed for the calibrator that gave the number."""
        scores = self._scores if found.stand_in is None else self._stand_in
        return scores.with_signals(found, signals)

    def _note(self, cause: str, name: str) -> None:
        """Log the first substituted reply, then at most one line a minute."""
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
