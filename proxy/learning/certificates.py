"""A policy with its current certificate: without withdrawn grants, and with new ones.

Each grant that a rule relies on is watched (`policies.certifying.drift`). The first reply of a
conversation in its scope feeds a monitor of scores. The first verdict on a reply that it let
through feeds a monitor of errors. Further turns, retries and repetitions of a question are no new
evidence (`policies.SeenConversations`). When a monitor raises an alarm, or the calibrator's
calibration has drifted, the rules continue without the grant.
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
    decide,
    reaches,
    with_certificate,
    withdrawal,
)
from proxy.store.database.verdicts import Withdrawal
from proxy.store.record.reader import RecordedExchange

log = structlog.get_logger(__name__)

DELIVERED = ("deliver", "annotate")
REMEDY = (
    "label recent replies and certify them: pinocchio certify LABELLED.jsonl "
    "--max-error {max_error:g} --confidence {confidence:g}{scope} -o {path}"
)


@dataclass(frozen=True, slots=True)
class _Monitors:
    """The monitors of one grant; each sees one reply of a conversation."""

    scores: ScoreMonitor
    errors: ErrorMonitor
    scored: SeenConversations = field(default_factory=SeenConversations)
    judged: SeenConversations = field(default_factory=lambda: SeenConversations(None))


class CertifiedPolicy:
    """A policy that counts its certificate: `policy` decides, `given` is the one configured.

    The monitors of grants that stay are kept from `before`, the policy as it was loaded before.
    """

    def __init__(
        self,
        policy: Policy,
        withdrawn: Iterable[Withdrawal] = (),
        before: CertifiedPolicy | None = None,
    ) -> None:
        self.original = policy
        self.policy = policy
        self._certificate = policy.certificate
        self._withdrawn = {each.grant_digest: each for each in withdrawn}
        self._monitors: dict[Grant, _Monitors] = before._monitors if before else {}
        self._named: set[str | None] = {None}  # calibrators that were checked
        self._settle()

    def renew(self, certificate: Certificate | None) -> None:
        """Replace the certificate and update `policy`; grants that stay keep their monitors."""
        self._certificate = certificate
        self._named = {None}
        self._settle()

    def drop(self, withdrawn: Iterable[Withdrawal]) -> None:
        """Continue without the grants of these withdrawals: updates `policy`, and logs new ones."""
        new = {each.grant_digest: each for each in withdrawn}
        if not self._withdrawn.keys() >= new.keys():
            self._withdrawn |= new
            self._settle()

    def counts_for(self, calibrators: Container[str]) -> bool:
        """Return whether there are grants for these calibrators, and none of them is withdrawn."""
        grants = self._certificate.grants if self._certificate else ()
        matching = [each for each in grants if each.calibrator in calibrators]
        return bool(matching) and not any(each.digest in self._withdrawn for each in matching)

    def see(self, facts: Facts) -> Withdrawal | None:
        """Show a reply's confidence to the monitors of its grants, before it is decided on.

        Returns the withdrawal that this causes, which counts at once, or None. Nothing happens
        without a confidence.
        """
        if facts.confidence is None:
            return None
        if facts.calibrator not in self._named:
            self._warn_if_other(facts.calibrator)
        for grant, monitors in self._monitors.items():
            if not grant.is_for(facts) or not self._reaches(grant, facts):
                continue
            if monitors.scored.is_first(facts.conversation, time.monotonic()):
                monitors.scores.add(facts.confidence)
                if monitors.scores.is_alarmed:
                    return self._withdraw(grant, monitors)
        return None

    def note_verdict(self, verdict: RecordedExchange) -> Withdrawal | None:
        """Show a verdict on a reply that a grant let through to its monitor of errors.

        Returns the withdrawal that this causes, which counts at once. Returns None if no grant let
        the reply through, or no alarm is raised.
        """
        if verdict.is_correct is None or (grant := self._grant_used(verdict)) is None:
            return None
        monitors = self._monitors[grant]
        if not monitors.judged.is_first(verdict.conversation):
            return None
        monitors.errors.add(is_wrong=not verdict.is_correct)
        return self._withdraw(grant, monitors) if monitors.errors.is_alarmed else None

    def distrust(self, calibrators: Container[str]) -> Iterator[Withdrawal]:
        """Withdraw the grants for these calibrators, whose calibration has drifted.

        Yields each withdrawal, which counts at once.
        """
        for grant in [each for each in self._monitors if each.calibrator in calibrators]:
            yield self._without(grant, CALIBRATION_DRIFTED)

    def _settle(self) -> None:
        """Set `policy` and the monitors to what the certificate and the withdrawals allow.

        Grants that stay keep their monitors; newly withdrawn grants are logged.
        """
        full = with_certificate(self.original, self._certificate)
        for grant in self._certificate.grants if self._certificate else ():
            is_news = grant in self._monitors or self.policy is self.original
            if (withdrawal := self._withdrawn.get(grant.digest)) and is_news:
                self._log_withdrawal(grant, withdrawal, full)
        certificate = still_granted(self._certificate, self._withdrawn)
        if certificate != self.policy.certificate:
            self.policy = with_certificate(self.original, certificate)
        grants = {grant for _, condition in _promises(self.policy) for grant in condition.grants}
        self._monitors = {
            grant: self._monitors.get(grant)
            or _Monitors(ScoreMonitor(grant.scores), ErrorMonitor(grant.max_error))
            for grant in grants
        }

    def _reaches(self, grant: Grant, facts: Facts) -> bool:
        """Return whether the rule that a grant is for would be reached by these facts.

        True for a grant without a rule.
        """
        rule = grant.scope.rule
        return rule is None or reaches(self.policy, rule, facts)

    def _grant_used(self, recorded: RecordedExchange) -> Grant | None:
        """Return the grant that let a recorded reply through, by deciding on it again.

        None if no grant did, the reply was not delivered, is older than the certificate, or would
        be decided on otherwise now.
        """
        if recorded.policy_name != self.original.name or self._is_older(recorded):
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

    def _is_older(self, recorded: RecordedExchange) -> bool:
        """Return whether the reply is older than the certificate, hence no evidence about it."""
        issued = self._certificate.issued if self._certificate else ""
        return time.strftime("%Y-%m-%d", time.gmtime(recorded.started_at)) < issued

    def _withdraw(self, grant: Grant, monitors: _Monitors) -> Withdrawal:
        """Withdraw a grant for the reason that its monitors give; return the withdrawal."""
        reason = withdrawal(grant, grant.calibrator, monitors.scores, monitors.errors) or ""
        return self._without(grant, reason)

    def _without(self, grant: Grant, reason: str) -> Withdrawal:
        """Continue without a grant, for a reason; return the withdrawal."""
        withdrawal = Withdrawal(
            grant.digest, self.original.name, str(grant.scope), reason, time.time()
        )
        self.drop([withdrawal])
        return withdrawal

    def _log_withdrawal(self, grant: Grant, withdrawal: Withdrawal, full: Policy) -> None:
        """Log that a grant was withdrawn: why, since when, its rules, and the remedy.

        `full` is the policy with the grant.
        """
        log.warning(
            "certificate_withdrawn",
            policy=self.original.name,
            reason=withdrawal.reason,
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(withdrawal.withdrawn_at)),
            scope=withdrawal.scope,
            threshold=grant.threshold,
            max_error=grant.max_error,
            rules=[rule.name for rule, condition in _promises(full) if grant in condition.grants],
            effect="these rules match no such reply any more",
            remedy=self._remedy(grant),
        )

    def _remedy(self, grant: Grant) -> str:
        """Return a sentence with the command that creates a grant like this one."""
        options = {"model": grant.scope.model, "team": grant.scope.team, "rule": grant.scope.rule}
        if grant.scope.rule:
            options["policy"] = self.original.source
        scope = "".join(f" --{name} {quote(value)}" for name, value in options.items() if value)
        stated = {"max_error": grant.max_error, "confidence": grant.confidence}
        return REMEDY.format(path=self.original.certificate_path, scope=scope, **stated)

    def _warn_if_other(self, calibrator: str | None) -> None:
        """Log, once for each calibrator, that no grant is for the calibrator that scores.

        Nothing is logged for one that has a grant, or where there are no grants.
        """
        self._named.add(calibrator)
        certified_for = sorted({grant.calibrator for grant in self._monitors})
        if certified_for and calibrator not in certified_for:
            log.warning(
                "certificate_does_not_count",
                policy=self.original.name,
                reason="other_calibrator",
                calibrator=calibrator,
                certified_for=certified_for,
                effect="rules with max_error match nothing",
                remedy=self._remedy(next(iter(self._monitors))),
            )


def still_granted(certificate: Certificate | None, withdrawn: Container[str]) -> Certificate | None:
    """Return the certificate without the grants whose digests are in `withdrawn`.

    None for no certificate, and where `Certificate.without` leaves none.
    """
    kept = certificate
    for grant in certificate.grants if certificate else ():
        if kept is not None and grant.digest in withdrawn:
            kept = kept.without(grant)
    return kept


def _promises(policy: Policy) -> Iterator[tuple[Rule, MaxError]]:
    """Yield (rule, its condition) of the rules that state an error rate, `max_error`."""
    for rule in policy.rules:
        if isinstance(condition := rule.when.confidence, MaxError):
            yield rule, condition
