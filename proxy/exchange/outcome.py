"""The findings and the decision about one answer, as headers and as the `pinocchio` member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from calibrator import IN_WORDS, LOGPROBS, NO_SIGNALS, CallNotes, FieldDoubt, Mark
from policies import Decision, Facts, ShadowAction, strictest
from proxy.formats import Choice
from proxy.http.wire import headers as names
from proxy.http.wire.headers import Headers
from proxy.scoring.engines.findings import LONG_TEXT, NOTHING, Findings, unsupported_values
from proxy.scoring.scoring import TRUNCATED, Confidence, Evidence, Status, least_sure

DIGITS = 4
_WITHHOLDING = ("hold", "block", "clarify")  # actions that replace the reply
_PLAIN = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"  # with letters and digits, all of ASCII but %


@lru_cache(maxsize=64)  # most replies have one choice, with the reply's own confidence
def round_confidence(value: float) -> float:
    """Round a confidence to four decimals, as header, body and log show it, so that they agree."""
    return round(value, DIGITS)


@dataclass(slots=True)
class Outcome:
    """The facts of one exchange that the client receives; `action` is the action carried out."""

    request_id: str
    status: Status
    reason: str | None = None
    confidence: float | None = None
    action: str = "deliver"
    decision: Decision | None = None
    calibrator: str | None = None
    review_id: str | None = None
    escalated_from: str | None = None
    is_revised: bool = False  # by a model that was told what is wrong
    fallback_from: str | None = None  # the model that was called first and failed
    clarification: Literal["template", "generated"] | None = None  # the source of its text
    standing_approval: str | None = None  # the approval that covers a call otherwise held
    approvals: Sequence[dict[str, Any]] = ()  # items by which a client reports an approval
    calls: Sequence[dict[str, Any]] = ()  # where more than one was made
    choices: Sequence[tuple[Choice, Confidence, Decision | None]] = ()
    facts: Sequence[Facts] = ()  # on which the policy first decided
    shadowed: tuple[ShadowAction, ...] = ()  # what rules in shadow would have done
    overhead_ms: float = 0.0
    score_ms: float | None = None
    score: float | None = None  # the number before its recalibration
    evidence: Evidence | None = None  # second opinions that moved the confidence
    least: Confidence | None = None  # the confidence of the least sure choice, where any was scored
    findings: Findings = NOTHING  # about the least sure choice
    is_rewritten: bool = False  # a reviewer changed the text that the findings are about

    @property
    def would_action(self) -> str | None:
        """The action that the policy would have taken, in shadow mode."""
        return self.decision.would_action if self.decision else None

    @property
    def label(self) -> str | None:
        """The label with which the policy annotates the reply."""
        return self.decision.annotation if self.decision else None

    def headers(self) -> Headers:
        """Return our response header fields, such as `x-pinocchio-confidence`, as pairs.

        Fields without a value are left out. Whole replies have all of them, also fetched ones; the
        head of a live stream is sent before its score and has what is known by then.
        """
        decision, findings = self.decision, self.findings
        if decision is None:
            shared = _shared_fields(self.status, self.action, self.calibrator, findings.basis)
        else:
            shared = _shared_fields(
                self.status,
                self.action,
                self.calibrator,
                findings.basis,
                decision.label,
                decision.mode,
                decision.would_action,
                decision.annotation,
            )
        fields: Headers = [
            *shared,
            (names.REQUEST_ID, self.request_id.encode()),
            (names.OVERHEAD_MS, b"%.1f" % self.overhead_ms),
        ]
        if self.confidence is not None:
            fields.insert(
                0, (names.CONFIDENCE, b"%.4f" % self.confidence)
            )  # rounds like `round_confidence`
        if findings.support is not None:
            fields.append((names.SUPPORT, b"%.4f" % findings.support))
        if self.reason is not None:
            fields.append((names.REASON, self.reason.encode("latin-1")))
        if self.review_id is not None:
            fields.append((names.REVIEW_ID, self.review_id.encode()))
        if self.fallback_from is not None:
            fields.append((names.FALLBACK_FROM, _in_ascii(self.fallback_from)))
        if self.clarification is not None:
            fields.append((names.CLARIFICATION, self.clarification.encode()))
        if self.score_ms is not None:
            fields.append((names.SCORE_MS, b"%.1f" % self.score_ms))
        return fields

    def member(self) -> dict[str, Any]:
        """Return the `pinocchio` object of a body: the facts of the headers and each choice.

        Members without a value are left out, except `confidence`, which is None then.
        """
        decision = self.decision
        member: dict[str, Any] = {
            "request_id": self.request_id,
            "confidence": None if self.confidence is None else round_confidence(self.confidence),
        }
        findings = self.findings
        if findings.support is not None:
            member["support"] = round_confidence(findings.support)
        member["status"] = self.status
        if self.reason is not None:
            member["reason"] = self.reason
        has_text = self.action not in _WITHHOLDING and not self.is_rewritten
        if findings is not NOTHING:
            member |= findings_member(findings, has_text=has_text)
        member["action"] = self.action
        if decision is not None:
            member["policy"] = decision.label
            member["mode"] = decision.mode
            if decision.would_action is not None:
                member["would_action"] = decision.would_action
            member |= decision.additions
        if self.calibrator is not None:
            member["calibrator"] = self.calibrator
        if (least := self.least) is not None and _has_evidence(least):
            member["evidence"] = evidence_member(least)
        if self.review_id is not None:
            member["review_id"] = self.review_id
        if self.escalated_from is not None:
            member["escalated_from"] = self.escalated_from
        if self.is_revised:
            member["revised"] = True
        if self.fallback_from is not None:
            member["fallback_from"] = self.fallback_from
        if self.clarification is not None:
            member["clarification"] = self.clarification
        if self.standing_approval is not None:
            member["standing_approval"] = self.standing_approval
        if self.approvals:
            member["approvals"] = self.approvals
        if self.calls:
            member["calls"] = self.calls
        if self.shadowed:
            member["shadowed"] = self.shadowed_values()
        member["choices"] = [choice_member(*each, has_text=has_text) for each in self.choices]
        return member

    def shadowed_values(self) -> list[dict[str, str]]:
        """Return what rules in shadow would have done, as `{"rule": .., "action": ..}` each."""
        return [{"rule": each.rule, "action": each.action.name} for each in self.shadowed]


@lru_cache(maxsize=4_096)
def _shared_fields(
    status: str,
    action: str,
    calibrator: str | None,
    basis: tuple[str, ...],
    policy: str | None = None,
    mode: str | None = None,
    would_action: str | None = None,
    label: str | None = None,
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header fields that are the same for many replies, as (name, value) pairs.

    Values that are None are left out; `label` is percent-encoded to ASCII. Results are cached.
    """
    values = (
        (names.STATUS, status),
        (names.ACTION, action),
        (names.POLICY, policy),
        (names.MODE, mode),
        (names.WOULD_ACTION, would_action),
        (names.CALIBRATOR, calibrator),
        (names.BASIS, ",".join(basis) or None),
    )
    fields = [(name, value.encode("latin-1")) for name, value in values if value is not None]
    return (*fields, *([] if label is None else [(names.LABEL, _in_ascii(label))]))


def findings_member(findings: Findings, *, has_text: bool = True) -> dict[str, Any]:
    """Return the findings as members of a `pinocchio` object, except `support`.

    Members are `basis`, `unsupported`, `needs_facts` and `act`, each only if there is something to
    say. Without `has_text` nothing of the reply is quoted, because the client does not get it.
    """
    member: dict[str, Any] = {}
    if findings.basis:
        member["basis"] = list(findings.basis)
    if findings.unsupported and has_text:
        member["unsupported"] = unsupported_values(findings.unsupported)
    if findings.needs_facts:
        member["needs_facts"] = True
    if findings.act not in (None, "answer"):
        member["act"] = findings.act
    return member


def _in_ascii(text: str) -> bytes:
    """Return a text as percent-encoded ASCII bytes, as a header can carry it."""
    return quote(text, safe=_PLAIN).encode()


def choice_member(
    choice: Choice, confidence: Confidence, decision: Decision | None, *, has_text: bool = True
) -> dict[str, Any]:
    """Return one choice's entry of `choices` in the `pinocchio` object.

    It has index, confidence (None without a number), status, findings, doubts and action. For
    `has_text` see `findings_member`.
    """
    member: dict[str, Any] = {
        "index": choice.index,
        "confidence": None if confidence.value is None else round_confidence(confidence.value),
    }
    findings = confidence.findings
    if findings.support is not None:
        member["support"] = round_confidence(findings.support)
    member["status"] = confidence.status
    if confidence.reason:
        member["reason"] = confidence.reason
    if findings is not NOTHING:
        member |= findings_member(findings, has_text=has_text)
    if confidence.because:
        member["because"] = list(confidence.because)
    if confidence.fields:
        member["fields"] = [_field_member(each) for each in confidence.fields]
    if confidence.notes and has_text:
        member["calls"] = _calls_member(choice.message, confidence.notes)
    if _has_evidence(confidence):
        member["evidence"] = evidence_member(confidence)
    if decision is not None:
        member["action"] = decision.applied.name
        member |= decision.additions
    return member


def _field_member(field: FieldDoubt) -> dict[str, Any]:
    """Return a doubt about one argument of a call as JSON: call, name, mark, and share if known."""
    member: dict[str, Any] = {"call": field.call, "name": field.name, "mark": field.mark}
    return member if field.share is None else {**member, "share": round_confidence(field.share)}


def _calls_member(message: Mapping[str, Any], notes: Sequence[CallNotes]) -> list[dict[str, Any]]:
    """Return the risk, reasons and marks of each call of a choice, for the `pinocchio` object.

    The call's `id` is added if every call of the message has one.
    """
    tool_calls = message.get("tool_calls")
    ids = [each.get("id") for each in tool_calls] if isinstance(tool_calls, list) else []
    found = []
    for at, note in enumerate(notes):
        id = ids[at] if len(ids) == len(notes) else None
        member: dict[str, Any] = {"id": id} if isinstance(id, str) else {}
        member |= {"risk": note.risk, "reasons": list(note.reasons)}
        if note.marks:
            member["marks"] = [_mark_member(mark) for mark in note.marks]
        found.append(member)
    return found


def _mark_member(mark: Mark) -> dict[str, str]:
    """Return a mark of a call as JSON, without its empty members."""
    member = {"mark": mark.name, "argument": mark.argument, "words": mark.words}
    return {name: text for name, text in member.items() if text}


def _has_evidence(confidence: Confidence) -> bool:
    """Return whether a number is based on more than the reply, which is rare."""
    if confidence.evidence is None and confidence.signals is NO_SIGNALS:
        return False
    has_any = confidence.evidence is not None or confidence.signals.kinds != ()
    return has_any and confidence.value is not None


def evidence_member(confidence: Confidence) -> list[dict[str, Any]]:
    """Return the evidence beyond the reply: its kind, its source, and how it moved the number.

    Empty where there is none, or no number.
    """
    if confidence.value is None:
        return []
    aided, found = confidence.aided, []
    if (evidence := confidence.evidence) is not None:
        opinions = [
            {"model": other.model, "agreement": agreement}
            | ({"usage": other.usage} if other.usage else {})
            for other, agreement in zip(evidence.others, evidence.opinions, strict=True)
        ]
        after = confidence.value if aided is None else aided.before
        change = {"before": round_confidence(evidence.before), "after": round_confidence(after)}
        found.append({"kind": "second_opinion", **change, "opinions": opinions})
    return [*found, *_signals_member(confidence, confidence.value)]


def _signals_member(confidence: Confidence, after: float) -> Iterator[dict[str, Any]]:
    """Yield what a judge and log-probabilities said.

    `counts` is whether labels have shown what a signal is worth. Those that count moved the number
    together.
    """
    signals, aided = confidence.signals, confidence.aided
    before = after if aided is None else aided.before
    change = {"before": round_confidence(before), "after": round_confidence(after)}
    for kind in signals.kinds:
        counts = {"counts": aided is not None and kind in aided.kinds}
        if signals.logprobs is not None and kind == LOGPROBS:
            mean, lowest = map(round_confidence, signals.logprobs)
            yield {"kind": "logprobs", "mean": mean, "lowest": lowest, **counts, **change}
        elif signals.judged is not None:
            by = "words" if signals.judge.endswith(IN_WORDS) else "token"
            judgement: dict[str, Any] = {"model": signals.judge.removesuffix(IN_WORDS), "by": by}
            judgement |= {"p_correct": round_confidence(signals.judged)}
            yield {"kind": "judge", **judgement, **counts, **change}


def summarise(
    request_id: str,
    choices: Sequence[Choice],
    confidences: Sequence[Confidence],
    decisions: Sequence[Decision],
    calibrator: str | None,
) -> Outcome:
    """Return the outcome of scored choices, by the lowest confidence and the strictest decision."""
    lowest = least_sure(confidences)
    reason = lowest.reason
    if reason is None and lowest.status is TRUNCATED:
        reason = LONG_TEXT
    decision = strictest(decisions)
    action = decision.applied.name
    outcome = Outcome(request_id, lowest.status, reason, lowest.value, action, decision, calibrator)
    outcome.choices = [*zip(choices, confidences, decisions, strict=True)]
    outcome.shadowed = _together(decisions)
    outcome.score, outcome.evidence, outcome.least = lowest.score, lowest.evidence, lowest
    outcome.findings = lowest.findings
    if lowest.stand_in is not None:
        outcome.calibrator = lowest.stand_in.calibrator
    if lowest.evidence is not None:
        outcome.calibrator = lowest.evidence.calibrator
    if lowest.aided is not None:
        outcome.calibrator = lowest.aided.calibrator
    return outcome


def _together(decided: Sequence[Decision | Outcome]) -> tuple[ShadowAction, ...]:
    """Return what rules in shadow would have done with any of the choices, without repetitions."""
    if len(decided) == 1:
        return decided[0].shadowed
    return tuple(dict.fromkeys(each for one in decided for each in one.shadowed))


def join_outcomes(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return one outcome for all choices of a stream, or None without any.

    It has the strictest decision and the lowest confidence; the outcome of that choice is changed
    in place.
    """
    if len(outcomes) < 2:
        return outcomes[0] if outcomes else None
    lowest = min(outcomes, key=lambda o: -1.0 if o.confidence is None else o.confidence)
    lowest.choices = sorted([c for o in outcomes for c in o.choices], key=lambda c: c[0].index)
    lowest.facts = [facts for o in outcomes for facts in o.facts]
    lowest.shadowed = _together(outcomes)
    decisions = [o.decision for o in outcomes if o.decision is not None]
    lowest.decision = strictest(decisions) if decisions else None
    return lowest
