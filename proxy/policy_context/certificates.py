"""A policy with its certificate as it stands now: without what was withdrawn, with what is new.

Each grant that a rule relies on is watched (`policies.certifying.drift`): the first reply of a
conversation in its scope feeds a monitor of scores, the first verdict on a reply that it let
through one of errors. Further turns, retries and the same question again are no evidence of their
own (`policies.SeenConversations`). When one of them raises an alarm, or the calibrator's
calibration has drifted, the rules go on without the grant.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from shlex import quote

import structlog

from policies import (
    CALIBRATION_DRIFTED,
    Certificate,
    ErrorMonitor,
    Facts,
    Grant,
    MaxError,
    Policy,
    Rule,
    ScoreMonitor,
    SeenConversations,
    certified,
    decide,
    reaches,
    withdrawal,
)
from proxy.store.record.reader import Recorded
from proxy.store.verdicts.verdicts import Withdrawal

log = structlog.get_logger(__name__)

DELIVERED = ("deliver", "annotate")
REMEDY = (
    "label recent replies and certify them: pinocchio certify LABELLED.jsonl "
    "--max-error {max_error:g} --confidence {confidence:g}{scope} -o {path}"
)


@dataclass(frozen=True, slots=True)
class _Monitors:
    """Of one grant; each sees one reply of a conversation."""

    scores: ScoreMonitor
    errors: ErrorMonitor
    scored: SeenConversations = field(default_factory=SeenConversations)
    judged: SeenConversations = field(default_factory=lambda: SeenConversations(None))


class CertifiedPolicy:
    """`policy` is what decides; `given` is the policy as it was configured.

    Of the policy as it was loaded `before`, the monitors of grants that stay are kept.
    """

    def __init__(
        self,
        given: Policy,
        withdrawn: Iterable[Withdrawal] = (),
        before: CertifiedPolicy | None = None,
    ) -> None:
        self.given = given
        self.policy = given
        self._certificate = given.certificate
        self._withdrawn = {each.grant_digest: each for each in withdrawn}
        self._monitors: dict[Grant, _Monitors] = before._monitors if before else {}
        self._named: set[str | None] = {None}  # calibrators that were looked at
        self._settle()

    def renew(self, certificate: Certificate | None) -> None:
        """Relies on another certificate from now on; grants that stay keep their monitors."""
        self._certificate = certificate
        self._named = {None}
        self._settle()

    def drop(self, withdrawn: Iterable[Withdrawal]) -> None:
        """Goes on without these grants."""
        new = {each.grant_digest: each for each in withdrawn}
        if not self._withdrawn.keys() >= new.keys():
            self._withdrawn |= new
            self._settle()

    def counts_for(self, calibrators: Container[str]) -> bool:
        """Whether all that is certified for these calibrators counts, and there is something."""
        grants = self._certificate.grants if self._certificate else ()
        its = [each for each in grants if each.calibrator in calibrators]
        return bool(its) and not any(each.digest in self._withdrawn for each in its)

    def see(self, facts: Facts) -> Withdrawal | None:
        """Looks at a reply before it is decided on; what is withdrawn for it counts at once."""
        if facts.confidence is None:
            return None
        if facts.calibrator not in self._named:
            self._say_if_other(facts.calibrator)
        for grant, monitors in self._monitors.items():
            if not grant.is_for(facts) or not self._reaches(grant, facts):
                continue
            if monitors.scored.is_first(facts.conversation, time.monotonic()):
                monitors.scores.add(facts.confidence)
                if monitors.scores.is_alarmed:
                    return self._withdraw(grant, monitors)
        return None

    def hear(self, verdict: Recorded) -> Withdrawal | None:
        """Takes in a verdict on a reply, if it went out because a grant covered it."""
        if verdict.is_correct is None or (grant := self._relied_on(verdict)) is None:
            return None
        monitors = self._monitors[grant]
        if not monitors.judged.is_first(verdict.conversation):
            return None
        monitors.errors.add(is_wrong=not verdict.is_correct)
        return self._withdraw(grant, monitors) if monitors.errors.is_alarmed else None

    def distrust(self, calibrators: Container[str]) -> Iterator[Withdrawal]:
        """Goes on without the grants for these: their confidences do not mean what they did."""
        for grant in [each for each in self._monitors if each.calibrator in calibrators]:
            yield self._without(grant, CALIBRATION_DRIFTED)

    def _settle(self) -> None:
        """Brings the policy and the monitors in line with certificate and withdrawals."""
        whole = certified(self.given, self._certificate)
        for grant in self._certificate.grants if self._certificate else ():
            is_news = grant in self._monitors or self.policy is self.given
            if (found := self._withdrawn.get(grant.digest)) and is_news:
                self._say_withdrawn(grant, found, whole)
        certificate = still_granted(self._certificate, self._withdrawn)
        if certificate != self.policy.certificate:
            self.policy = certified(self.given, certificate)
        grants = {grant for _, condition in _promises(self.policy) for grant in condition.grants}
        self._monitors = {
            grant: self._monitors.get(grant)
            or _Monitors(ScoreMonitor(grant.scores), ErrorMonitor(grant.max_error))
            for grant in grants
        }

    def _reaches(self, grant: Grant, facts: Facts) -> bool:
        rule = grant.scope.rule
        return rule is None or reaches(self.policy, rule, facts)

    def _relied_on(self, recorded: Recorded) -> Grant | None:
        """The grant that let a recorded reply through, as far as it still counts."""
        if recorded.policy_name != self.given.name or self._is_older(recorded):
            return None
        if (recorded.would_action or recorded.action) not in DELIVERED or len(recorded.facts) != 1:
            return None
        [facts] = recorded.facts
        decision = decide(self.policy, facts)
        is_same = decision.label.startswith(f"{recorded.policy_name}/{recorded.rule}@")
        if not is_same or decision.because != "rule":
            return None
        conditions = (found for rule, found in _promises(self.policy) if rule.name == decision.rule)
        return next((condition.grant(facts) for condition in conditions), None)

    def _is_older(self, recorded: Recorded) -> bool:
        """Whether the reply was there before the certificate, so that it says nothing about it."""
        issued = self._certificate.issued if self._certificate else ""
        return time.strftime("%Y-%m-%d", time.gmtime(recorded.started_at)) < issued

    def _withdraw(self, grant: Grant, monitors: _Monitors) -> Withdrawal:
        reason = withdrawal(grant, grant.calibrator, monitors.scores, monitors.errors) or ""
        return self._without(grant, reason)

    def _without(self, grant: Grant, reason: str) -> Withdrawal:
        found = Withdrawal(grant.digest, self.given.name, str(grant.scope), reason, time.time())
        self.drop([found])
        return found

    def _say_withdrawn(self, grant: Grant, found: Withdrawal, whole: Policy) -> None:
        log.warning(
            "certificate_withdrawn",
            policy=self.given.name,
            reason=found.reason,
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.withdrawn_at)),
            scope=found.scope,
            threshold=grant.threshold,
            max_error=grant.max_error,
            rules=[rule.name for rule, condition in _promises(whole) if grant in condition.grants],
            effect="these rules match no such reply any more",
            remedy=self._remedy(grant),
        )

    def _remedy(self, grant: Grant) -> str:
        """The command that makes a grant like this one."""
        told = {"model": grant.scope.model, "team": grant.scope.team, "rule": grant.scope.rule}
        if grant.scope.rule:
            told["policy"] = self.given.source
        scope = "".join(f" --{name} {quote(value)}" for name, value in told.items() if value)
        stated = {"max_error": grant.max_error, "confidence": grant.confidence}
        return REMEDY.format(path=self.given.certificate_path, scope=scope, **stated)

    def _say_if_other(self, calibrator: str | None) -> None:
        """Says once that no grant is for the calibrator that scores."""
        self._named.add(calibrator)
        certified_for = sorted({grant.calibrator for grant in self._monitors})
        if certified_for and calibrator not in certified_for:
            log.warning(
                "certificate_does_not_count",
                policy=self.given.name,
                reason="other_calibrator",
                calibrator=calibrator,
                certified_for=certified_for,
                effect="rules with max_error match nothing",
                remedy=self._remedy(next(iter(self._monitors))),
            )


def still_granted(certificate: Certificate | None, withdrawn: Container[str]) -> Certificate | None:
    """The certificate without the grants whose digests are among those withdrawn."""
    kept = certificate
    for grant in certificate.grants if certificate else ():
        if kept is not None and grant.digest in withdrawn:
            kept = kept.without(grant)
    return kept


def _promises(policy: Policy) -> Iterator[tuple[Rule, MaxError]]:
    """The rules that state an error rate."""
    for rule in policy.rules:
        if isinstance(condition := rule.when.confidence, MaxError):
            yield rule, condition
