"""The confidences of one generation of the configuration, with its facts and recalibrations.

The calibrator lives longer than a configuration. A request keeps the facts and recalibrations of
the generation with which it began, and each confidence is reported with the name of the calibrator
and recalibration that made it. Confidences of replies alone have one recalibration, and those that
take other answers into account have another: a curve is valid only for the numbers that it was
fitted on.

A stand-in is the second step of load shedding (docs/operations.md): if the calibrator is busy,
late, down or still loading, a reply loses its better number, and a quick calibrator in this process
gives its own. That number is marked as a substitute: with its calibrator's name, its recalibration,
and the reason why the other one gave none. What was fitted or certified for one calibrator is never
used for the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import structlog

from calibrator import LOGPROBS, Signals
from proxy.scoring.scoring import (
    Confidence,
    OtherAnswer,
    ScoreRequest,
    Scoring,
    SignalChange,
    StandIn,
    Status,
)

if TYPE_CHECKING:
    from calibrator import (
        FactFile,
        Recalibration,
        Recalibrations,
        SignalWeights,
        WeighedConfidence,
    )

log = structlog.get_logger(__name__)

CAUSES: Final = frozenset({Status.LOADING, Status.SKIPPED, Status.TIMEOUT, Status.ERROR})
"""The statuses that a stand-in can help with: they come from the calibrator's state. A reply that
the calibrator cannot read stays without a number."""
PREFIX: Final = "stand_in_"  # begins the reason of a stand-in's number
LOG_EVERY_S: Final = 60.0  # seconds between two log lines


def name_with(calibrator: str, recalibrations: Recalibrations | None) -> str:
    """Return a calibrator's name with that of its recalibration for replies alone.

    For example `embedded@3f2a91c0+platt@9c1d02ab`; without a recalibration, the name alone.
    """
    return calibrator if recalibrations is None else calibrator + _suffix(recalibrations.alone)


class RecalibratedScores:
    """Scores of replies that are also compared with `facts`, after `recalibrations`.

    Without recalibrations, only a judge changes the numbers of the calibrator.
    """

    def __init__(
        self,
        scores: Scoring,
        recalibrations: Recalibrations | None,
        facts: FactFile | None = None,
    ) -> None:
        self._scores, self._facts = scores, facts
        self._alone: Recalibration | None = None
        self._with_others: Recalibration | None = None
        self._weights: SignalWeights | None = None
        if recalibrations is not None:
            self._alone, self._with_others = recalibrations.alone, recalibrations.with_others
            self._weights = recalibrations.signals
        if self._alone is None and facts is None:  # saves a step for each reply
            self.score = scores.score  # type: ignore[method-assign]
        self._suffix = _suffix(self._alone)  # a hash, computed once
        self._suffix_with_others = _suffix(self._with_others)

    @property
    def name(self) -> str | None:
        """The name of checkpoint and recalibration, e.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
        name = self._scores.name
        return None if name is None else name + self._suffix

    async def score(self, request: ScoreRequest) -> list[Confidence]:
        """Return one recalibrated confidence for each choice, in order; raises nothing.

        The `score` of each is the value before the recalibration.
        """
        if self._facts is not None:  # the scorer, which may be elsewhere, gets the relevant ones
            request = replace(request, facts=self._facts.about_item)
        confidences = await self._scores.score(request)
        if (recalibration := self._alone) is None:
            return confidences
        return [_apply_recalibration(recalibration, each, request) for each in confidences]

    @property
    def opinion(self) -> str:
        """The provenance of a confidence that knows other answers, with its recalibration."""
        name = self._scores.opinion
        return name if self._recalibration_for(name) is None else name + self._suffix_with_others

    async def with_others(
        self, request: ScoreRequest, found: Sequence[Confidence], others: Sequence[OtherAnswer]
    ) -> list[Confidence]:
        """Return confidences after comparison with other answers, as `Scoring.with_others` does.

        Other answers change the calibrator's own value; the result gets the recalibration for such
        numbers, or none.
        """
        plain = [each if each.score is None else replace(each, value=each.score) for each in found]
        moved = await self._scores.with_others(request, plain, others)
        return [
            self._recalibrate_with_others(before, after, request)
            for before, after in zip(found, moved, strict=True)
        ]

    def with_signals(self, confidence: Confidence, signals: Signals) -> Confidence:
        """Return the confidence changed by its signals.

        With weights that were fitted on labels, signals are combined with the calibrator's own
        value, and no curve follows. Without such weights a judge changes the number by the prior,
        and log-probabilities change nothing.
        """
        plain = replace(confidence, signals=signals)
        evidence, names = confidence.evidence, self._scores
        scorer = names.name if evidence is None else names.opinion
        if confidence.value is None or not scorer or not signals.kinds:
            return plain
        own = confidence.value if confidence.score is None else confidence.score
        origin = (self.name or "") if evidence is None else evidence.calibrator
        weighed = self._by_labels(own, scorer, signals)
        if weighed is None:
            from calibrator import weigh_by_prior  # loads numpy, which only a judge needs

            weighed = weigh_by_prior(confidence.value, origin, signals)
        if weighed is None:
            return plain
        aided = SignalChange(
            confidence.value, origin, confidence.score, weighed.calibrator, weighed.kinds
        )
        findings = confidence.findings
        if any(kind != LOGPROBS for kind in weighed.kinds):
            findings = findings.with_opinions()
        value = weighed.confidence
        return replace(plain, value=value, score=own, aided=aided, findings=findings)

    def _by_labels(self, own: float, scorer: str, signals: Signals) -> WeighedConfidence | None:
        """Return the confidence `own` after the fitted weights for its signals.

        `scorer` is the name of the calibrator. None without weights, or if they do not know these
        signals, which is logged once.
        """
        if self._weights is None:
            return None
        weighed = self._weights.weigh(own, scorer, signals)
        if weighed is None:
            _warn_unweighed(self._weights.name, scorer, signals.kinds)
        return weighed

    def _recalibrate_with_others(
        self, before: Confidence, after: Confidence, request: ScoreRequest
    ) -> Confidence:
        """Return a confidence that knows other answers, with the one before as evidence.

        Returns `before` if other answers were not taken into account.
        """
        if (evidence := after.evidence) is None or before.value is None:
            return before
        evidence = replace(evidence, before=before.value, score_before=before.score)
        knowing = replace(after, score=None, evidence=evidence)
        if (recalibration := self._recalibration_for(evidence.calibrator)) is None:
            return knowing
        evidence = replace(evidence, calibrator=evidence.calibrator + self._suffix_with_others)
        return _apply_recalibration(recalibration, replace(knowing, evidence=evidence), request)

    def _recalibration_for(self, name: str) -> Recalibration | None:
        """Return the recalibration of numbers that know other answers, if it was fitted for `name`.

        `name` is their provenance, such as `embedded@3f2a91c0+opinion@9c1d02ab`. Returns None, and
        logs it once, if it was fitted for numbers of another name; None also if none is configured.
        """
        recalibration = self._with_others
        if recalibration is None or recalibration.calibrator == name:
            return recalibration
        if name:
            _warn_unused(recalibration.name, recalibration.calibrator, name)
        return None


def _suffix(recalibration: Recalibration | None) -> str:
    """Return a recalibration's part of a name, such as `+platt@9c1d02ab`; empty for None."""
    return "" if recalibration is None else f"+{recalibration.name}"


def _apply_recalibration(
    recalibration: Recalibration, confidence: Confidence, request: ScoreRequest
) -> Confidence:
    """Return the confidence with the recalibrated value, and the value before as its `score`.

    Returns it unchanged if it has no value.
    """
    if (score := confidence.value) is None:
        return confidence
    value = recalibration.apply_to(score, request.model, request.domain, request.team)
    return replace(confidence, value=value, score=score)


@lru_cache(maxsize=8)  # so that it is logged once
def _warn_unweighed(weights: str, calibrator: str, signals: tuple[str, ...]) -> None:
    """Log that the fitted weights do not know these signals for this calibrator's numbers."""
    log.warning(
        "signals_unweighed",
        weights=weights,
        numbers=calibrator,
        signals=list(signals),
        hint="no labels have taught what these are worth beside such numbers: a judge counts by "
        "the prior, log-probabilities do not; fit the weights again: "
        "pinocchio recalibrate --from-store --signals",
    )


@lru_cache(maxsize=8)  # so that it is logged once
def _warn_unused(recalibration: str, fitted_for: str, numbers: str) -> None:
    """Log that a recalibration is not applied, because it was fitted for other numbers."""
    log.warning(
        "recalibration_unused",
        recalibration=recalibration,
        fitted_for=fitted_for,
        numbers=numbers,
        hint="numbers that know others stay as the calibrator gives them; fit it again: "
        "pinocchio recalibrate --from-store --second-opinion",
    )


class WithStandIn:
    """Scores that come from `stand_in` if `scores` has none.

    All choices of a reply get their number from the same one, because they are compared.
    """

    def __init__(self, scores: RecalibratedScores, stand_in: RecalibratedScores) -> None:
        self._scores = scores
        self._stand_in = stand_in
        self._unlogged: Counter[str] = Counter()  # causes since the last log line
        self._logged_at = -LOG_EVERY_S

    @property
    def name(self) -> str | None:
        """The name of the configured calibrator's numbers; the stand-in's carry their own."""
        return self._scores.name

    @property
    def opinion(self) -> str:
        """The provenance of the configured calibrator's numbers that know other answers."""
        return self._scores.opinion

    async def score(self, request: ScoreRequest) -> list[Confidence]:
        """Return one confidence for each choice, all from the stand-in if one is missing for load.

        Those of the stand-in are marked with its name and the reason. The configured calibrator's
        result is returned if the stand-in is not loaded or lacks a number too, or if a number is
        missing for another cause, such as a reply that cannot be read. Raises nothing.
        """
        confidences = await self._scores.score(request)
        missing = next((each for each in confidences if each.value is None), None)
        if missing is None or any(
            each.status not in CAUSES for each in _without_number(confidences)
        ):
            return confidences
        instead = await self._stand_in.score(request)
        if (name := self._stand_in.name) is None or _without_number(instead):
            return confidences
        cause = missing.reason or missing.status.value
        self._note(cause, name)
        by, reason = StandIn(name, cause), PREFIX + cause
        return [replace(each, stand_in=by, reason=reason) for each in instead]

    async def with_others(
        self, request: ScoreRequest, found: Sequence[Confidence], others: Sequence[OtherAnswer]
    ) -> list[Confidence]:
        """Return confidences like `Scoring.with_others`, by the calibrator that gave `found`."""
        is_instead = any(each.stand_in is not None for each in found)
        scores = self._stand_in if is_instead else self._scores
        return await scores.with_others(request, found, others)

    def with_signals(self, confidence: Confidence, signals: Signals) -> Confidence:
        """Return a confidence with its signals, weighed for the calibrator that gave the number."""
        scores = self._scores if confidence.stand_in is None else self._stand_in
        return scores.with_signals(confidence, signals)

    def _note(self, cause: str, name: str) -> None:
        """Count a reply that the stand-in scored; log the counts by cause at most once a minute.

        `cause` is the reason that the reply would have had without a number, `name` the stand-in's
        name.
        """
        self._unlogged[cause] += 1
        if (now := time.monotonic()) - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = now
        log.warning(
            "stand_in_scores",
            calibrator=name,
            instead_of=self.name,
            replies=dict(self._unlogged),
            hint="the configured calibrator is late, too busy or not there",
        )
        self._unlogged.clear()


def _without_number(confidences: Sequence[Confidence]) -> list[Confidence]:
    """Return the confidences that have no value."""
    return [each for each in confidences if each.value is None]


Scores = RecalibratedScores | WithStandIn
