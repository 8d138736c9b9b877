"""The tool calls of a reply as a reviewer needs to see them: name, arguments, and what is unusual.

Marks point out an argument that appears nowhere in the conversation, and a call that the deciding
rule names: two entries of the queue that ask for the same may differ in nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from calibrator import HIGH, CallNotes, NotScorableError, call_doubts
from policies import Facts, Rule, ToolCall, risk_of
from proxy.formats import NoAnswerError
from proxy.formats.conversation import format_of, read_reply
from proxy.http.wire.json_splice import json_object
from proxy.store.queue import QueueEntry
from proxy.store.reviews.held_replies import HeldReply

EDITED: Final = "changed by the reviewer"
AMBIGUOUS: Final = "tools may read this differently"
MOST_REMEMBERED: Final = 2_000  # replies whose doubts are kept, see `Doubts`


def plain_arguments(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call by their names, as every tool reads them.

    None for text that is no JSON object, and for an object that repeats a member: one tool takes
    the first of them and another the last, and a reviewer would see only one.
    """
    try:
        values = json.loads(
            arguments or "{}", object_pairs_hook=_without_repeats, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members as a dict; raises ValueError if a name is there twice."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member stands twice")
    return found


def _refuse_constant(name: str) -> None:
    """Refuse a constant such as `NaN`, which JSON does not have; raises ValueError."""
    raise ValueError(f"{name} is no JSON")


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A tool call; `arguments` is its text, usually a JSON object.

    `marks` says what is unusual about arguments, by name; the empty name is the call as a whole.
    `risk` is the pattern of the rule that it matches. `level` is how bad a wrong call would be
    (low, medium or high, empty where unknown), and `reasons` say why.
    """

    name: str
    arguments: str
    marks: Mapping[str, str] = field(default_factory=dict)
    risk: str | None = None
    level: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any] | None:
        """The arguments by their names; None where the text is not a plain JSON object."""
        return plain_arguments(self.arguments)

    @property
    def is_ambiguous(self) -> bool:
        """Whether tools may read different arguments in the text of an object."""
        return self.values is None and self.arguments.lstrip().startswith("{")

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """Each argument as (code, mark): `amount=84.2` and a mark or an empty text.

        For arguments that are no plain object, the whole text.
        """
        if (values := self.values) is None:
            return [(self.arguments, AMBIGUOUS if self.is_ambiguous else "")]
        return [
            (f"{name}={_code(each)}", self.marks.get(name, "")) for name, each in values.items()
        ]

    @property
    def line(self) -> str:
        """The call as code: `refund_order(order_id="A-1", amount=84.2)`."""
        return f"{self.name}({', '.join(code for code, _ in self.pieces)})"

    @property
    def marked_line(self) -> str:
        """The call as code, with its marks in words: `amount=842.0 [not in the conversation]`."""
        arguments = (f"{code} [{mark}]" if mark else code for code, mark in self.pieces)
        call_mark = f"  [{mark}]" if (mark := self.marks.get("", "")) else ""
        return f"{self.name}({', '.join(arguments)}){call_mark}"

    @property
    def warning(self) -> str:
        """What a person must know about the call as a whole: a high risk, and its marks."""
        warnings = [f"high risk: {'; '.join(self.reasons)}"] if self.level == HIGH else []
        return "; ".join([*warnings, *([mark] if (mark := self.marks.get("", "")) else [])])

    def facts(self) -> dict[str, Any]:
        """Return the call as JSON values by name: arguments, marks, risk, level and reasons."""
        values = self.values
        return {
            "name": self.name,
            "arguments": self.arguments if values is None else values,
            "marks": dict(self.marks),
            "risk": self.risk,
            "level": self.level or None,
            "reasons": list(self.reasons),
        }


def calls_in(reply: bytes, path: str | None) -> list[WaitingCall]:
    """Return the calls of all choices of a reply, in order, without marks.

    `path` is the request's, such as `/chat/completions`. There are none in an unknown format.
    """
    parts = (part for turn in read_reply(reply, path) for part in turn.calls)
    return [WaitingCall(part.name, part.text) for part in parts]


def with_arguments(choices: Sequence[Facts], held: HeldReply) -> tuple[Facts, ...]:
    """Return the facts of each choice with the arguments of its calls, taken from the held reply.

    No record keeps the arguments. Facts with other calls than the reply stay unchanged.
    """
    calls = calls_in(held.reply, held.path)
    names = [call.name for call in calls]
    return tuple(
        replace(facts, tools=_with_arguments(facts.tools, calls))
        if [call.name for call in facts.tools] == names
        else facts
        for facts in choices
    )


def _with_arguments(
    recorded: Sequence[ToolCall], calls: Sequence[WaitingCall]
) -> tuple[ToolCall, ...]:
    """Return the recorded calls, with their marks and risk, and these arguments."""
    pairs = zip(recorded, calls, strict=True)
    return tuple(replace(tool_call, arguments=call.arguments) for tool_call, call in pairs)


Known: TypeAlias = tuple[list[dict[str, str]], list[str], list[CallNotes]]


class Doubts:
    """The doubts about calls of held replies; they are computed once for each reply."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def of(self, held: HeldReply | QueueEntry) -> Known:
        """Return (marks of each call, reasons in words, notes on each call) of a held reply.

        Marks are dicts of words by the argument's name. The reasons are for all calls together. All
        three are empty for a reply without content.
        """
        if not held.reply or held.request is None:
            return [], [], []
        if held.id not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[held.id] = _doubts(held.request, held.reply, held.path)
        return self._known[held.id]

    def waiting_calls(self, held: HeldReply | QueueEntry, rule: Rule | None) -> list[WaitingCall]:
        """Return the calls of a reply, or of the reviewer's edit of it, with their marks.

        In an edit the changed arguments are marked. With a `rule`, `risk` is its pattern that
        matches.
        """
        if not held.reply:
            return []
        calls = calls_in(held.reply, held.path)
        notes: list[CallNotes] = []
        if held.edit:
            found = _mark_edits(calls, calls_in(held.edit, held.path))
        else:
            marks, _, notes = self.of(held) if calls else ([], [], [])
            found = [
                replace(call, marks=marks[at] if len(marks) == len(calls) else {})
                for at, call in enumerate(calls)
            ]
            if len(notes) == len(calls):
                found = [
                    replace(call, level=note.risk, reasons=note.reasons)
                    for call, note in zip(found, notes, strict=True)
                ]
        if rule is None:
            return found
        call_notes = notes if len(notes) == len(found) else [None] * len(found)
        pairs = zip(found, call_notes, strict=True)
        return [replace(call, risk=risk_of(rule, _tool_call(call, note))) for call, note in pairs]


def _tool_call(call: WaitingCall, notes: CallNotes | None) -> ToolCall:
    """Return a call as a rule reads it, with its marks and risk if they are known."""
    if notes is None:
        return ToolCall(call.name, call.arguments)
    marks = tuple((mark.name, mark.argument) for mark in notes.marks)
    return ToolCall(call.name, call.arguments, marks=marks, risk=notes.risk)


def _mark_edits(before: Sequence[WaitingCall], after: Sequence[WaitingCall]) -> list[WaitingCall]:
    """Return the calls of an edit, with the arguments that it changes marked as `EDITED`.

    None are marked if the edit has another number of calls.
    """
    if len(before) != len(after):
        return list(after)
    return [
        replace(new, marks=dict.fromkeys(_changed_names(old.values, new.values), EDITED))
        for old, new in zip(before, after, strict=True)
    ]


def _changed_names(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    """Return the names of arguments that are new, or have another value than before."""
    return [name for name, value in (new or {}).items() if (old or {}).get(name, old) != value]


def _doubts(request: bytes, reply: bytes, path: str | None) -> Known:
    """Return (marks, reasons, notes) of a reply's calls, as `Doubts.of` returns them.

    All three are empty where the request or reply cannot be read.
    """
    format, payload, completion = format_of(path), json_object(request), json_object(reply)
    if format is None or payload is None or completion is None:
        return [], [], []
    try:
        question = format.question(payload)
        tool_uses = [question.tool_use(each.message) for each in format.choices(completion)]
    except (NoAnswerError, NotScorableError):
        return [], [], []
    doubts = [call_doubts(each) for each in tool_uses if each is not None and each.has_calls]
    notes = [note for each in doubts for note in each.notes]
    marks = [mark for each in doubts for mark in each.arguments]
    if len(notes) == len(marks):
        marks = [_with_others(*pair) for pair in zip(marks, notes, strict=True)]
    reasons = list(dict.fromkeys(reason for each in doubts for reason in each.reasons))
    return marks, reasons, notes


def _with_others(marks: dict[str, str], notes: CallNotes) -> dict[str, str]:
    """Return a copy of the marks of arguments, with the words of marks of other kinds added.

    `marks` has only those of values that the conversation does not mention.
    """
    found = dict(marks)
    for mark in notes.marks:
        name = mark.argument.partition(".")[0]
        if mark.name not in (*_OF_VALUES, *_OF_REASONS) and mark.words not in found.get(name, ""):
            found[name] = f"{found[name]}; {mark.words}" if name in found else mark.words
    return found


_OF_VALUES: Final = ("not_in_conversation", "placeholder")
_OF_REASONS: Final = ("unconfirmed", "not_looked_up")
"""Marks that are shown among the reasons and not in red, since right calls have them as often."""


def _code(value: Any) -> str:
    """Return a value as JSON, as it is shown in a call."""
    return json.dumps(value, ensure_ascii=False)
