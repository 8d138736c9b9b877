"""The facts of an exchange, stored in its record as JSON where no other column holds them.

    '[{"finish_reason":"stop","length":412,"tools":["send_email"]}]'

There is one object for each choice that was judged. The names, marks and risks of tool calls are
kept. Their arguments are text, which the record does not hold. Defaults are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from policies import Facts, ToolCall

MOST_CHARACTERS: Final = 16_384
NOT_KEPT: Final = "arguments are not recorded"
"""The text in place of a call's arguments: no JSON, so that no policy takes them for harmless."""
NOT_IN_ROW: Final = frozenset(
    ("tools", "finish_reason", "n", "domain", "tags", "team", "key", "refusal", "length")
)
"""The facts that are missing where a record has no facts, since they were too long."""
FINDINGS: Final = frozenset(("support", "basis", "act", "needs_facts", "familiar"))
"""The facts that are missing where the calibrator told no basis of its confidence."""


class RowFindings(Protocol):
    """The findings in a row's own columns: those of the least certain choice."""

    @property
    def support(self) -> float | None: ...
    @property
    def basis(self) -> tuple[str, ...]: ...
    @property
    def act(self) -> str | None: ...
    @property
    def needs_facts(self) -> bool | None: ...
    @property
    def is_familiar(self) -> bool | None: ...


def facts_json(
    facts: Sequence[Facts],
    model: str | None,
    confidence: float | None,
    findings: RowFindings | None = None,
) -> str | None:
    """Return the facts as JSON for the record, or None if it is longer than `MOST_CHARACTERS`.

    The model and the confidence are left out where they equal the row's own, and so are findings
    equal to those of the row, `findings`, and all findings where `findings` is None.
    """
    kept = []
    for each in facts:
        values = _values(each, model, confidence)
        if findings is not None and (
            each.basis != findings.basis
            or each.support != findings.support
            or each.act != findings.act
            or each.needs_facts is not findings.needs_facts
            or each.familiar is not findings.is_familiar
        ):
            values |= {name: getattr(each, name) for name in FINDINGS}
        kept.append(values)
    try:
        text = orjson.dumps(kept).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, which JSON allows
        text = json.dumps(kept)
    return text if len(text) <= MOST_CHARACTERS else None


def _values(facts: Facts, model: str | None, confidence: float | None) -> dict[str, Any]:
    """Return by name the facts that differ from the defaults and from the row's own columns.

    Every request needs this, so it takes about a microsecond.
    """
    values: dict[str, Any] = {}
    if facts.confidence != confidence:
        values["confidence"] = facts.confidence
    if facts.model != model:
        values["model"] = facts.model
    if facts.finish_reason is not None:
        values["finish_reason"] = facts.finish_reason
    if facts.length:
        values["length"] = facts.length
    if facts.tools:
        values["tools"] = [call.name for call in facts.tools]
        if any(call.readings != () for call in facts.tools):
            values["tool_readings"] = [call.readings for call in facts.tools]
        if any(call.marks is not None for call in facts.tools):
            values["tool_marks"] = [_written_marks(call) for call in facts.tools]
            values["tool_risks"] = [call.risk for call in facts.tools]
    if facts.refusal:
        values["refusal"] = True
    if facts.n != 1:
        values["n"] = facts.n
    if facts.tags:
        values["tags"] = sorted(facts.tags)
    if facts.domain is not None:
        values["domain"] = facts.domain
    if facts.share_below is not None:
        values["share_below"] = facts.share_below
    if facts.opinions:
        values["alone"], values["opinions"] = facts.alone, facts.opinions
        values["alone_calibrator"] = facts.alone_calibrator
        if facts.alone_score is not None:
            values["alone_score"] = facts.alone_score
    if facts.judge is not None or facts.logprobs:
        values |= _signals(facts)
    return values


def _written_marks(call: ToolCall) -> list[list[str]] | None:
    """Return up to 20 marks of a call, each as [mark, argument] or [mark] for the whole call.

    Values of arguments are not kept. None for a call that was not examined.
    """
    if call.marks is None:
        return None
    return [[mark, name[:80]] if name else [mark] for mark, name in call.marks[:20]]


def _signals(facts: Facts) -> dict[str, Any]:
    """Return the results of a judge and log-probabilities by name, for the record.

    The confidence without them, `unaided`, is included where they changed it.
    """
    names = ["judged", "judge"] if facts.judge is not None else []
    names += ["logprobs"] if facts.logprobs else []
    if facts.unaided is not None:
        names += ["unaided", "unaided_calibrator"]
        names += ["unaided_score"] if facts.unaided_score is not None else []
    return {name: getattr(facts, name) for name in names}


def facts_in(row: Mapping[str, Any]) -> tuple[tuple[Facts, ...], frozenset[str]]:
    """Return (facts of each choice in a row of the record, names of the facts that the row lacks).

    Both are empty where no policy decided, as for requests that are no completions. If the facts
    were too long to keep, one Facts is made of the row's columns.
    """
    if row["policy"] is None:
        return (), frozenset()
    if row["facts"] is None:
        return (_facts({}, row),), NOT_IN_ROW | FINDINGS
    facts = tuple(_facts(values, row) for values in json.loads(row["facts"]))
    lacks = FINDINGS if row["basis"] is None and row["confidence"] is not None else frozenset()
    calls = [call for each in facts for call in each.tools]
    if not calls:
        return facts, lacks
    is_marked = row["confidence"] is None or all(call.marks is not None for call in calls)
    return facts, lacks | ({"arguments"} if is_marked else {"arguments", "marks"})


def _calls(values: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Remove the members of tool calls from stored facts, and return them as tool calls.

    A call has its name, the other names by which it was decided on, its marks and its risk. Its
    arguments are `NOT_KEPT`.
    """
    names = values.pop("tools", ())
    readings = values.pop("tool_readings", None) or [()] * len(names)
    marks = values.pop("tool_marks", None) or [None] * len(names)
    risks = values.pop("tool_risks", None) or [None] * len(names)
    return tuple(
        ToolCall(
            name,
            NOT_KEPT,
            None if others is None else tuple(others),
            marks=None if found is None else tuple((m[0], m[1] if m[1:] else "") for m in found),
            risk=risk,
        )
        for name, others, found, risk in zip(names, readings, marks, risks, strict=True)
    )


def _facts(values: Mapping[str, Any], row: Mapping[str, Any]) -> Facts:
    """Return the Facts of one choice: its stored values, and the row's columns for all others."""
    fields = {**values, "tags": frozenset(values.get("tags", ()))}
    fields["opinions"] = tuple(values.get("opinions", ()))
    fields["logprobs"] = tuple(values.get("logprobs", ()))
    fields["tools"] = _calls(fields)
    extra = {
        "confidence": row["confidence"],
        "model": row["model"] or "",
        "stream": bool(row["is_stream"]),
        "calibrator": row["calibrator"],
        "team": row["team"],
        "key": row["key"],
        "conversation": row["conversation"],
        "support": row["support"],
        "basis": tuple(row["basis"].split(",")) if row["basis"] else (),
        "act": row["act"],
        "needs_facts": _flag(row["needs_facts"]),
        "familiar": _flag(row["is_familiar"]),
    }
    if "basis" in fields:
        fields["basis"] = tuple(fields["basis"])
    return Facts(**(extra | fields))


def _flag(value: Any) -> bool | None:
    """Return the truth value of a database column, which may be an integer; None for None."""
    return None if value is None else bool(value)
