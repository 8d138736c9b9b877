"""The evidence against an agent's calls for people: up to three plain reasons, doubted arguments.

The cost of an argument without a source is found by a trial: how sure would the call be if the user
had named the value? `share` is the confidence divided by that one: 1 if naming the value changes
nothing. An argument that appears in the conversation has no doubt, and neither have the fields of a
reply in JSON: marks of the same reading were more frequent in right replies than in those with an
altered value (.22 and .13).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from calibrator.readers.calls.notes.chat_text import ChatText
from calibrator.readers.calls.notes.marks import (
    BY_LIMIT,
    BY_SCHEMA,
    DIFFERS,
    has_unread_calls,
    marks_of_values,
    notes_of,
)
from calibrator.readers.calls.notes.risk import effect_of
from calibrator.readers.calls.reading.conversation import Call, View
from calibrator.readers.calls.reading.requests import date_traits
from calibrator.readers.calls.reading.rules import rule_traits, sentences_of
from calibrator.readers.calls.reading.steps import schema_of, steps_of
from calibrator.readers.calls.reading.traits import CallReply, read_reply
from calibrator.readers.calls.reading.values import name_words
from calibrator.scorer import CallNotes, FieldDoubt, ToolUse

MOST_DOUBTS: Final = 8  # reported fields of one reply
MOST_NAME: Final = 60  # characters
Numbers = Callable[[Sequence[ToolUse]], Sequence[float]]
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


class CallDoubts(NamedTuple):
    """The evidence against the calls of a reply, for a person who checks them.

    `arguments` maps, for each call, the names of arguments without a source to the reason; it is
    empty if there are too many calls to check. `reasons` are those of `reasons` and the ones for
    people alone. `notes` has the marks and the risk of each call.
    """

    arguments: list[dict[str, str]]
    reasons: list[str]
    notes: tuple[CallNotes, ...] = ()


def reasons(reply: CallReply) -> list[str]:
    """Return at most three plain facts that speak against a reply's calls; maybe none.

    They are facts of the conversation and the call, such as `value not in conversation:
    order_id`, not the largest contributions to the confidence.
    """
    return [each for each in _find_reasons(reply) if each not in _FOR_PEOPLE][:MOST]


def call_doubts(used: ToolUse) -> CallDoubts:
    """Return the evidence against a reply's calls. Raises nothing, whatever they hold."""
    reply = read_reply(used)
    return CallDoubts(
        unfounded_arguments(reply), _find_reasons(reply)[:MOST], notes_of(reply) or ()
    )


def argument_doubts(
    reply: CallReply, confidence: float, numbers: Numbers
) -> tuple[FieldDoubt, ...]:
    """Return the arguments of a reply's calls without a source, the most costly first.

    `confidence` is that of the reply; `numbers` returns the confidence of edited replies,
    computed in the same way. At most eight; () if every argument has a source.
    """
    unfounded = [
        (at, name, mark)
        for at, each in enumerate(unfounded_arguments(reply))
        for name, mark in each.items()
    ]
    unfounded = unfounded[:MOST_DOUBTS]
    if not unfounded:
        return ()
    calls = reply.view.calls
    edited = [_name_value(reply.used, name, calls[at].arguments[name]) for at, name, _ in unfounded]
    found = iter(numbers([each for each in edited if each is not None]))
    doubts = [
        FieldDoubt(name[:MOST_NAME], mark, at, _share(confidence, next(found)) if edit else None)
        for (at, name, mark), edit in zip(unfounded, edited, strict=True)
    ]
    return tuple(sorted(doubts, key=lambda each: 1.0 if each.share is None else each.share))


def unfounded_arguments(reply: CallReply) -> list[dict[str, str]]:
    """Return for each call its arguments without a source, by name, with the reasons.

    The list is empty if there are too many calls to check.
    """
    if has_unread_calls(reply):
        return []
    chat = ChatText(reply.view, reply.sources)
    return [_unfounded_in(call, chat) for call in reply.view.calls]


def _share(confidence: float, named: float) -> float:
    """Return confidence / named, at most 1.0; 1.0 if `named` is 0.

    `named` is the confidence if the user had named the value.
    """
    return min(1.0, confidence / named) if named > 0 else 1.0


def _name_value(used: ToolUse, name: str, value: Any) -> ToolUse | None:
    """Return the reply after a conversation in which the user names the value.

    A sentence such as `The order id is 7.` is added to the user's last message. None without a
    user, or if that message has content of unknown form.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    sentence = f"The {' '.join(name_words(name)) or 'value'} is {text}."
    messages = list(used.messages)
    for at in reversed(range(len(messages))):
        message = messages[at]
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            content = f"{content.rstrip()} {sentence}"
        elif isinstance(content, list):
            content = [*content, {"type": "text", "text": sentence}]
        else:
            return None
        messages[at] = {**message, "content": content}
        return ToolUse(messages, used.tools, used.message)
    return None


def _find_reasons(reply: CallReply) -> list[str]:
    """Return all reasons against a reply's calls, each once, in the order of the calls."""
    view = reply.view
    chat = ChatText(view, reply.sources)
    found = [reason for call in view.calls for reason in _reasons(call, view, chat)]
    return list(dict.fromkeys(found))


def _reasons(call: Call, view: View, chat: ChatText) -> list[str]:
    """Return the reasons against one call, by its values, schema, earlier steps, rules and dates.

    [] if there are none. Missing look-ups and confirmations are no reasons against a call that
    reads.
    """
    found = []
    tool = view.tools.get(call.name)
    is_read = effect_of(call, tool, view).is_read
    for mark in marks_of_values(call, tool, chat):
        if mark.name == "placeholder":
            found.append(f"placeholder: {mark.argument}")
        else:
            _, differs, near = mark.words.partition(DIFFERS)
            found.append(f"value not in conversation: {mark.argument}{differs}{near}")
    sentences = sentences_of(view.rules)
    for texts, traits in (
        (BY_SCHEMA, schema_of(call, tool, view)),
        (_BY_STEP, steps_of(call, view)),
        (_BY_RULE, rule_traits(call, tool, view, chat.sources, sentences)),
        (_BY_DATE, date_traits(call, chat.sources)),
    ):
        found += [
            text
            for trait, text in texts.items()
            if traits[trait] > 0 and not (is_read and trait in ("write_unlooked", "yes_missing"))
        ]
    return found


def _unfounded_in(call: Call, chat: ChatText) -> dict[str, str]:
    """Return, for a call, the arguments whose value the conversation lacks: name -> reason.

    Reasons are the words of the marks, joined by semicolons.
    """
    found: dict[str, str] = {}
    for mark in marks_of_values(call, chat.view.tools.get(call.name), chat):
        for name in call.arguments:
            if mark.argument == name or mark.argument.startswith(f"{name}."):
                before = found.get(name)
                found[name] = mark.words if before is None else f"{before}; {mark.words}"
    return found
