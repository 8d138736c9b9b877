"""Up to three plain reasons for a low confidence in an agent's call."""

from __future__ import annotations

from typing import NamedTuple

from calibrator.readers.calls.notes.marks import BY_LIMIT, BY_SCHEMA, DIFFERS, marks_of_values
from calibrator.readers.calls.notes.notes import has_unread_calls, notes_of
from calibrator.readers.calls.notes.risk import effect_of
from calibrator.readers.calls.notes.said import SaidText
from calibrator.readers.calls.reading.conversation import Call, View
from calibrator.readers.calls.reading.reply import CallReply, read_reply
from calibrator.readers.calls.reading.requests import date_traits
from calibrator.readers.calls.reading.rules import rule_traits, sentences_of
from calibrator.readers.calls.reading.steps import schema_of, steps_of
from calibrator.scorer import CallNotes, ToolUse

MOST = 3
_BY_STEP = {
    "same_again_after_success": "the same call has been made already",
    "same_again_after_error": "the same call has failed already",
    "write_unlooked": "no read-only call came before this one",
}
_BY_RULE = {**BY_LIMIT, "yes_missing": "the instructions ask for a confirmation first"}
_BY_DATE = {
    "weekday_wrong": "a date is not on the weekday that was asked for",
    "order_wrong": "a range ends before it starts",
    "date_unreal": "a date is not in the calendar",
}


_FOR_PEOPLE = (_BY_DATE["weekday_wrong"],)
"""Facts that hardly change the confidence; only people see them."""


def reasons(reply: CallReply) -> list[str]:
    """Return at most three plain facts that speak against a reply's calls; maybe none.

    They are facts of the conversation and the call, not the largest contributions to the
    confidence.
    """
    return [each for each in _find_reasons(reply) if each not in _FOR_PEOPLE][:MOST]


def _find_reasons(reply: CallReply) -> list[str]:
    view = reply.view
    said = SaidText(view, reply.sources)
    found = [reason for call in view.calls for reason in _reasons(call, view, said)]
    return list(dict.fromkeys(found))


def _reasons(call: Call, view: View, said: SaidText) -> list[str]:
    """Return the reasons against one call: its values, schema, steps and rules."""
    found = []
    tool = view.tools.get(call.name)
    is_read = effect_of(call, tool, view).is_read
    for mark in marks_of_values(call, tool, said):
        if mark.name == "placeholder":
            found.append(f"placeholder: {mark.argument}")
        else:
            _, differs, near = mark.words.partition(DIFFERS)
            found.append(f"value not in conversation: {mark.argument}{differs}{near}")
    sentences = sentences_of(view.rules)
    for texts, traits in (
        (BY_SCHEMA, schema_of(call, tool, view)),
        (_BY_STEP, steps_of(call, view)),
        (_BY_RULE, rule_traits(call, tool, view, said.sources, sentences)),
        (_BY_DATE, date_traits(call, said.sources)),
    ):
        found += [
            text
            for trait, text in texts.items()
            if traits[trait] > 0 and not (is_read and trait in ("write_unlooked", "yes_missing"))
        ]
    return found


class CallDoubts(NamedTuple):
    """The evidence against the calls of a reply, for a person who checks them.

    `arguments` maps, for each call, the names of arguments without a source to the reason; it is
    empty if there are too many calls to check. `reasons` are those of `reasons` and the ones for
    people alone. `notes` has the marks and the risk of each call.
    """

    arguments: list[dict[str, str]]
    reasons: list[str]
    notes: tuple[CallNotes, ...] = ()


def call_doubts(used: ToolUse) -> CallDoubts:
    """Return the evidence against a reply's calls. Raises nothing, whatever they hold."""
    reply = read_reply(used)
    return CallDoubts(
        unfounded_arguments(reply), _find_reasons(reply)[:MOST], notes_of(reply) or ()
    )


def unfounded_arguments(reply: CallReply) -> list[dict[str, str]]:
    """Return for each call its arguments without a source, by name, with the reasons.

    The list is empty if there are too many calls to check.
    """
    if has_unread_calls(reply):
        return []
    said = SaidText(reply.view, reply.sources)
    return [_unfounded_in(call, said) for call in reply.view.calls]


def _unfounded_in(call: Call, said: SaidText) -> dict[str, str]:
    """Return the marks of each argument with a value that nobody said, the strongest first."""
    found: dict[str, str] = {}
    for mark in marks_of_values(call, said.view.tools.get(call.name), said):
        for name in call.arguments:
            if mark.argument == name or mark.argument.startswith(f"{name}."):
                before = found.get(name)
                found[name] = mark.words if before is None else f"{before}; {mark.words}"
    return found
