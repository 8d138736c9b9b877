"""Confidences after the recalibrations of this deployment.

Confidences of replies alone have one recalibration, and those that take other answers into account
have another: a curve is valid only for the numbers that it was fitted on.

A recalibration belongs to a generation of the configuration: a request keeps the one with which it
began, and each confidence is reported with the name of the one that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import structlog

from calibrator import LOGPROBS, Question, Signals
from proxy.formats import Choice
from proxy.scoring.scoring import Confidence, OtherAnswer, SignalChange

if TYPE_CHECKING:
    from calibrator import Recalibration, Recalibrations, SignalWeights, WeighedConfidence

log = structlog.get_logger(__name__)


class Scores(Protocol):
    """A source of confidences: the calibrator alone (`scoring.Scoring`), or recalibrated."""

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
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]: ...

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence: ...

    async def score(
        self,
        question: Callable[[], Question],
        choices: Sequence[Choice],
        model: str,
        domain: str | None = None,
        team: str | None = None,
    ) -> list[Confidence]: ...


def name_with(calibrator: str, recalibrations: Recalibrations | None) -> str:
    """Return the name of confidences of replies alone, e.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
    return calibrator if recalibrations is None else calibrator + _suffix(recalibrations.alone)


class RecalibratedScores:
    """Scores after `recalibrations`; without any, only a judge changes them."""

    def __init__(self, scores: Scores, recalibrations: Recalibrations | None) -> None:
        self._scores = scores
        self._alone: Recalibration | None = None
        self._with_others: Recalibration | None = None
        self._weights: SignalWeights | None = None
        if recalibrations is not None:
            self._alone, self._with_others = recalibrations.alone, recalibrations.with_others
            self._weights = recalibrations.signals
        if self._alone is None:  # saves a step for each reply
            self.score = scores.score  # type: ignore[method-assign]
        self._suffix = _suffix(self._alone)  # a hash, computed once
        self._suffix_with_others = _suffix(self._with_others)

    @property
    def name(self) -> str | None:
        """The name of checkpoint and recalibration, e.g. `embedded@3f2a91c0+platt@9c1d02ab`."""
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
        """Return recalibrated confidences like `Scoring.score`; `score` is the value before."""
        found = await self._scores.score(question, choices, model, domain, team)
        if (its := self._alone) is None:
            return found
        return [_apply_recalibration(its, each, model, domain, team) for each in found]

    @property
    def opinion(self) -> str:
        """The provenance of a confidence that knows other answers, with its recalibration."""
        name = self._scores.opinion
        return name if self._recalibration_for(name) is None else name + self._suffix_with_others

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
        """Return confidences after comparison with other answers, as `Scoring.with_others` does.

        Other answers change the calibrator's own value; the result gets the recalibration for such
        numbers, or none.
        """
        plain = [each if each.score is None else replace(each, value=each.score) for each in found]
        scores = self._scores
        moved = await scores.with_others(question, choices, plain, others, model, domain, team)
        return [
            self._recalibrate_with_others(before, after, model, domain, team)
            for before, after in zip(found, moved, strict=True)
        ]

    def with_signals(self, found: Confidence, signals: Signals) -> Confidence:
        """Return the confidence changed by its signals.

        With weights that were fitted on labels, signals are combined with the calibrator's own
        value, and no curve follows. Without such weights a judge changes the number by the prior,
        and log-probabilities change nothing.
        """
        plain = replace(found, signals=signals)
        evidence, names = found.evidence, self._scores
        said_by = names.name if evidence is None else names.opinion
        if found.value is None or not said_by or not signals.kinds:
            return plain
        own = found.value if found.score is None else found.score
        told_by = (self.name or "") if evidence is None else evidence.calibrator
        weighed = self._by_labels(own, said_by, signals)
        if weighed is None:
            from calibrator import weigh_by_prior  # loads numpy, which only a judge needs

            weighed = weigh_by_prior(found.value, told_by, signals)
        if weighed is None:
            return plain
        aided = SignalChange(found.value, told_by, found.score, weighed.calibrator, weighed.kinds)
        findings = found.findings
        if any(kind != LOGPROBS for kind in weighed.kinds):
            findings = findings.with_opinions()
        value = weighed.confidence
        return replace(plain, value=value, score=own, aided=aided, findings=findings)

    def _by_labels(self, own: float, said_by: str, signals: Signals) -> WeighedConfidence | None:
        """Return the number after the fitted weights; None without weights for its signals.

        The latter is logged once.
        """
        if self._weights is None:
            return None
        weighed = self._weights.weigh(own, said_by, signals)
        if weighed is None:
            _warn_unweighed(self._weights.name, said_by, signals.kinds)
        return weighed

    def _recalibrate_with_others(
        self,
        before: Confidence,
        after: Confidence,
        model: str,
        domain: str | None,
        team: str | None,
    ) -> Confidence:
        """Return a confidence that knows other answers, with the one before as evidence.

        Returns `before` if other answers were not taken into account.
        """
        if (evidence := after.evidence) is None or before.value is None:
            return before
        evidence = replace(evidence, before=before.value, score_before=before.score)
        knowing = replace(after, score=None, evidence=evidence)
        if (its := self._recalibration_for(evidence.calibrator)) is None:
            return knowing
        evidence = replace(evidence, calibrator=evidence.calibrator + self._suffix_with_others)
        return _apply_recalibration(its, replace(knowing, evidence=evidence), model, domain, team)

    def _recalibration_for(self, name: str) -> Recalibration | None:
        """Return the recalibration for numbers of exactly this name, or None."""
        its = self._with_others
        if its is None or its.calibrator == name:
            return its
        if name:
            _warn_unused(its.name, its.calibrator, name)
        return None


def _suffix(recalibration: Recalibration | None) -> str:
    return "" if recalibration is None else f"+{recalibration.name}"


def _apply_recalibration(
    recalibration: Recalibration,
    found: Confidence,
    model: str,
    domain: str | None,
    team: str | None,
) -> Confidence:
    if (score := found.value) is None:
        return found
    value = recalibration.apply_to(score, model, domain, team)
    return replace(found, value=value, score=score)


@lru_cache(maxsize=8)  # so that it is logged once
def _warn_unweighed(weights: str, calibrator: str, signals: tuple[str, ...]) -> None:
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
    log.warning(
        "recalibration_unused",
        recalibration=recalibration,
        fitted_for=fitted_for,
        numbers=numbers,
        hint="numbers that know others stay as the calibrator gives them; fit it again: "
        "pinocchio recalibrate --from-store --second-opinion",
    )
