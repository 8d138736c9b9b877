"""A few plain reasons for a low number of an agent's call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from calibrator.calls.reading.conversation import Call, Tool, View
from calibrator.calls.reading.grounding import SOUGHT, Sources, is_placeholder
from calibrator.calls.reading.reply import ReadReply, read_reply
from calibrator.calls.reading.requests import dating
from calibrator.calls.reading.rules import ruling, sentences_of
from calibrator.calls.reading.steps import schema_of, steps_of
from calibrator.calls.reading.values import Value
from calibrator.scorer import ToolUse

MOST = 3
MOST_READ = 2_000  # characters of an argument's description
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


_FOR_PEOPLE = (_BY_DATE["weekday_wrong"],)
"""Facts to look at, beside which the number hardly moves: they are told to people alone."""


def reasons(reply: ReadReply) -> list[str]:
    """At most three plain facts that speak against a reply's calls; they may be none.

    Facts of the conversation and the call, not what moved the number most.
    """
    return [each for each in _found(reply) if each not in _FOR_PEOPLE][:MOST]


def _found(reply: ReadReply) -> list[str]:
    view = reply.view
    found = [reason for call in view.calls for reason in _reasons(call, view, reply.sources)]
    return list(dict.fromkeys(found))


def _reasons(call: Call, view: View, sources: Sources) -> list[str]:
    found = []
    tool = view.tools.get(call.name)
    for value in call.values:
        name = value.path.replace(" ", ".")[:60] or "?"
        if _is_unfounded(value, tool, sources):
            what = "placeholder" if is_placeholder(value) else "value not in conversation"
            found.append(f"{what}: {name}")
    sentences = sentences_of(view.rules)
    for texts, traits in (
        (_BY_SCHEMA, schema_of(call, tool, view)),
        (_BY_STEP, steps_of(call, view)),
        (_BY_RULE, ruling(call, tool, view, sources, sentences)),
        (_BY_DATE, dating(call, sources)),
    ):
        found += [text for trait, text in texts.items() if traits[trait] > 0]
    return found


def _is_unfounded(value: Value, tool: Tool | None, sources: Sources) -> bool:
    """Whether a value stands neither in the conversation nor in what describes its argument."""
    if value.kind not in SOUGHT or sources.holds(value):
        return False
    if tool is None or is_placeholder(value):
        return True
    schema = tool.properties.get(value.path.partition(" ")[0])
    described = schema.get("description") if isinstance(schema, Mapping) else None
    texts = (tool.description, described[:MOST_READ] if isinstance(described, str) else "")
    return not any(value.text in text.lower() for text in texts)


class CallDoubts(NamedTuple):
    """What speaks against the calls of a reply, for a person who looks at them.

    `arguments` has for each call the names of those that come from nowhere, and why; it is empty
    where there are more calls than are looked at. `reasons` are as `reasons` gives them, and those
    for people alone.
    """

    arguments: list[dict[str, str]]
    reasons: list[str]


def call_doubts(used: ToolUse) -> CallDoubts:
    """What speaks against a reply's calls; raises nothing, whatever stands in them."""
    reply = read_reply(used)
    return CallDoubts(unfounded(reply), _found(reply)[:MOST])


def unfounded(reply: ReadReply) -> list[dict[str, str]]:
    """For each call the names of its arguments that come from nowhere, and why; empty where there
    are more calls than are looked at."""
    view = reply.view
    return [] if view.is_cut else [_unfounded(call, view, reply.sources) for call in view.calls]


def _unfounded(call: Call, view: View, sources: Sources) -> dict[str, str]:
    tool = view.tools.get(call.name)
    return {
        name: "a placeholder" if is_placeholder(value) else "not in the conversation"
        for value in call.values
        if _is_unfounded(value, tool, sources)
        for name in call.arguments
        if value.path == name or value.path.startswith(f"{name} ")
    }
