"""A few plain reasons for a low number of an agent's call."""

from __future__ import annotations

from typing import NamedTuple

from calibrator.calls.reading.conversation import Call, View, view_of
from calibrator.calls.reading.grounding import SOUGHT, Sources, is_placeholder, sources_of
from calibrator.calls.reading.requests import dating
from calibrator.calls.reading.rules import ruling, sentences_of
from calibrator.calls.reading.steps import schema_of, steps_of
from calibrator.scorer import ToolUse

MOST = 3
_BY_STEP = {
    "same_again_after_success": "the same call has been made already",
    "same_again_after_error": "the same call has failed already",
    "write_unlooked": "nothing was looked up before",
}
_BY_SCHEMA = {
    "unknown_tool": "the tool was not offered",
    "required_missing": "a required argument is missing",
    "type_wrong": "an argument has another type than the schema says",
    "choice_wrong": "an argument is not among the values that the schema allows",
    "unreadable": "the arguments are no JSON object",
}
_BY_RULE = {
    "limit_passed": "a number is beyond a limit in the instructions",
    "time_outside": "a time is outside the hours in the instructions",
    "too_late": "a date in the record is further back than the instructions allow",
    "yes_missing": "the instructions ask for a confirmation first",
}
_BY_DATE = {
    "weekday_wrong": "a date is not on the weekday that was asked for",
    "order_wrong": "a range ends before it starts",
    "date_unreal": "a date is not in the calendar",
}


def reasons(used: ToolUse) -> list[str]:
    """At most three plain facts that speak against a reply's calls; they may be none.

    Facts of the conversation and the call, not what moved the number most.
    """
    view = view_of(used)
    return _told(view, sources_of(view))


def _told(view: View, sources: Sources) -> list[str]:
    found = [reason for call in view.calls for reason in _reasons(call, view, sources)]
    return list(dict.fromkeys(found))[:MOST]


def _reasons(call: Call, view: View, sources: Sources) -> list[str]:
    found = []
    for value in call.values:
        name = value.path.replace(" ", ".")[:60] or "?"
        if value.kind in SOUGHT and not sources.holds(value):
            what = "placeholder" if is_placeholder(value) else "value not in conversation"
            found.append(f"{what}: {name}")
    tool = view.tools.get(call.name)
    sentences = sentences_of(view.rules)
    for texts, traits in (
        (_BY_SCHEMA, schema_of(call, tool, view)),
        (_BY_STEP, steps_of(call, view)),
        (_BY_RULE, ruling(call, tool, view, sources, sentences)),
        (_BY_DATE, dating(call, sources)),
    ):
        found += [text for trait, text in texts.items() if traits[trait] > 0]
    return found


class CallDoubts(NamedTuple):
    """What speaks against the calls of a reply, for a person who looks at them.

    `arguments` has for each call the names of those that come from nowhere, and why; it is empty
    where there are more calls than are looked at. `reasons` are as `reasons` gives them.
    """

    arguments: list[dict[str, str]]
    reasons: list[str]


def call_doubts(used: ToolUse) -> CallDoubts:
    """What speaks against a reply's calls; raises nothing, whatever stands in them."""
    view = view_of(used)
    sources = sources_of(view)
    marks = [] if view.is_cut else [_unfounded(call, sources) for call in view.calls]
    return CallDoubts(marks, _told(view, sources))


def _unfounded(call: Call, sources: Sources) -> dict[str, str]:
    return {
        name: "a placeholder" if is_placeholder(value) else "not in the conversation"
        for value in call.values
        if value.kind in SOUGHT and not sources.holds(value)
        for name in call.arguments
        if value.path == name or value.path.startswith(f"{name} ")
    }
