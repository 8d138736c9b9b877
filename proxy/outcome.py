"""What was found out and decided about one answer, as headers and as the `pinocchio` member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from policies import Annotate, Decision, Deliver, Facts, Shadowed, strictest
from proxy import headers as names
from proxy.formats import Choice
from proxy.scoring import Confidence, Status
from proxy.upstream import Headers

DIGITS = 4
_PLAIN = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"  # with letters and digits, all of ASCII but %


def shown(value: float) -> float:
    """A confidence as it is shown everywhere, so that header, body and log agree."""
    return round(value, DIGITS)


@dataclass(slots=True)
class Outcome:
    """The facts of one exchange that the client is told; `action` is what was carried out."""

    request_id: str
    status: Status
    reason: str | None = None
    confidence: float | None = None
    action: str = "deliver"
    decision: Decision | None = None
    calibrator: str | None = None
    review_id: str | None = None
    escalated_from: str | None = None
    clarification: Literal["template", "generated"] | None = None  # of what is clarified
    calls: Sequence[dict[str, Any]] = ()  # where more than one was made
    choices: list[tuple[Choice, Confidence, Decision | None]] = field(default_factory=list)
    facts: Sequence[Facts] = ()  # that the policy was first asked about
    shadowed: tuple[Shadowed, ...] = ()  # what rules in shadow would have done
    overhead_ms: float = 0.0
    score_ms: float | None = None
    score: float | None = None  # what a recalibration made the confidence of

    @property
    def would_action(self) -> str | None:
        """What the policy would have done, in shadow mode."""
        if self.decision is None or self.decision.is_enforced:
            return None
        return self.decision.action.name

    @property
    def label(self) -> str | None:
        """What the policy annotates the reply with."""
        return _label(self.decision)

    def headers(self) -> Headers:
        """Our response headers; those without a value are absent."""
        decision = self.decision
        told = _told(
            self.action,
            decision.label if decision else None,
            decision.mode if decision else None,
            self.would_action,
            self.calibrator,
            _label(decision),
        )
        fields = [
            (names.STATUS, _STATUSES[self.status]),
            *told,
            (names.REQUEST_ID, self.request_id.encode()),
            (names.OVERHEAD_MS, b"%.1f" % self.overhead_ms),
        ]
        if self.confidence is not None:
            fields.insert(0, (names.CONFIDENCE, b"%.4f" % shown(self.confidence)))
        if self.reason is not None:
            fields.append((names.REASON, self.reason.encode("latin-1")))
        if self.review_id is not None:
            fields.append((names.REVIEW_ID, self.review_id.encode()))
        if self.clarification is not None:
            fields.append((names.CLARIFICATION, self.clarification.encode()))
        if self.score_ms is not None:
            fields.append((names.SCORE_MS, b"%.1f" % self.score_ms))
        return fields

    def member(self) -> dict[str, Any]:
        """The `pinocchio` object: the same facts, and each choice's."""
        decision = self.decision
        member: dict[str, Any] = {
            "request_id": self.request_id,
            "confidence": None if self.confidence is None else shown(self.confidence),
            "status": self.status,
        }
        if self.reason is not None:
            member["reason"] = self.reason
        member["action"] = self.action
        if decision is not None:
            member["policy"] = decision.label
            member["mode"] = decision.mode
            if not decision.is_enforced:
                member["would_action"] = decision.action.name
            member |= _added(decision)
        if self.calibrator is not None:
            member["calibrator"] = self.calibrator
        if self.review_id is not None:
            member["review_id"] = self.review_id
        if self.escalated_from is not None:
            member["escalated_from"] = self.escalated_from
        if self.clarification is not None:
            member["clarification"] = self.clarification
        if self.calls:
            member["calls"] = self.calls
        if self.shadowed:
            member["shadowed"] = self.shadowed_values()
        member["choices"] = [_choice_member(*choice) for choice in self.choices]
        return member

    def shadowed_values(self) -> list[dict[str, str]]:
        """What rules in shadow would have done, as it is told everywhere."""
        return [{"rule": each.rule, "action": each.action.name} for each in self.shadowed]


_STATUSES = {status: status.value.encode() for status in Status}


def _label(decision: Decision | None) -> str | None:
    applied = decision.applied if decision is not None else None
    return applied.label if type(applied) is Annotate else None


def _added(decision: Decision) -> dict[str, str]:
    """What a policy adds to a reply besides a number: a label, or a notice."""
    applied = decision.applied
    if type(applied) is Annotate:
        return {"label": applied.label}
    if type(applied) is Deliver and applied.notice is not None:
        return {"notice": applied.notice}
    return {}


@lru_cache(maxsize=4_096)
def _told(
    action: str,
    policy: str | None,
    mode: str | None,
    would: str | None,
    calibrator: str | None,
    label: str | None,
) -> tuple[tuple[bytes, bytes], ...]:
    """The fields that are the same for many replies; a label in ASCII, percent-encoded."""
    values = (
        (names.ACTION, action),
        (names.POLICY, policy),
        (names.MODE, mode),
        (names.WOULD_ACTION, would),
        (names.CALIBRATOR, calibrator),
        (names.LABEL, None if label is None else quote(label, safe=_PLAIN)),
    )
    return tuple((name, value.encode("latin-1")) for name, value in values if value is not None)


def _choice_member(
    choice: Choice, confidence: Confidence, decision: Decision | None
) -> dict[str, Any]:
    member: dict[str, Any] = {
        "index": choice.index,
        "confidence": None if confidence.value is None else shown(confidence.value),
        "status": confidence.status,
    }
    if confidence.reason:
        member["reason"] = confidence.reason
    if decision is not None:
        member["action"] = decision.applied.name
        member |= _added(decision)
    return member


def summarise(
    request_id: str,
    choices: Sequence[Choice],
    confidences: Sequence[Confidence],
    decisions: Sequence[Decision],
    calibrator: str | None,
) -> Outcome:
    """The outcome of scored choices; the lowest confidence speaks for all of them."""
    lowest = confidences[0]
    if len(confidences) > 1:
        lowest = min(confidences, key=lambda c: -1.0 if c.value is None else c.value)
    each: list[Decision | None] = list(decisions) or [None] * len(choices)
    return Outcome(
        request_id=request_id,
        status=lowest.status,
        reason=lowest.reason or ("long_text" if lowest.status is Status.TRUNCATED else None),
        confidence=lowest.value,
        calibrator=calibrator,
        choices=list(zip(choices, confidences, each, strict=True)),
        shadowed=_together([decision.shadowed for decision in decisions]),
        score=lowest.score,
    )


def _together(shadowed: Sequence[tuple[Shadowed, ...]]) -> tuple[Shadowed, ...]:
    """What rules in shadow say about any of the choices, each once."""
    if len(shadowed) == 1:
        return shadowed[0]
    return tuple(dict.fromkeys(each for one in shadowed for each in one))


def joined(outcomes: Sequence[Outcome]) -> Outcome | None:
    """One outcome for all choices of a stream: the strictest decision, the lowest confidence."""
    if not outcomes:
        return None
    lowest = min(outcomes, key=lambda o: -1.0 if o.confidence is None else o.confidence)
    lowest.choices = sorted((c for o in outcomes for c in o.choices), key=lambda c: c[0].index)
    lowest.facts = [facts for o in outcomes for facts in o.facts]
    lowest.shadowed = _together([o.shadowed for o in outcomes])
    decisions = [o.decision for o in outcomes if o.decision is not None]
    lowest.decision = strictest(decisions) if decisions else None
    return lowest
