"""The notes of a call: its risk, and its marks, facts against it that a person can check.

`calibrator.scorer.MARKS` lists all marks; policies use marks to stop calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from calibrator.readers.calls.notes import flags, narrowing, numbers, requested, risk, superlatives
from calibrator.readers.calls.notes.chat_text import ChatText, is_worded
from calibrator.readers.calls.notes.chat_values import (
    is_date_supported,
    is_day_shifted,
    is_number_supported,
)
from calibrator.readers.calls.notes.risk import risk_of_call
from calibrator.readers.calls.reading.conversation import Call, Tool, calls_in
from calibrator.readers.calls.reading.grounding import grounding_traits, is_placeholder
from calibrator.readers.calls.reading.requests import contrary_traits, date_traits
from calibrator.readers.calls.reading.rules import Sentence, rule_traits, sentences_of
from calibrator.readers.calls.reading.sources import sources_of
from calibrator.readers.calls.reading.steps import is_failure, is_read, schema_of, steps_of
from calibrator.readers.calls.reading.traits import CallReply, read_reply
from calibrator.readers.calls.reading.values import Value, calendar_day, name_words
from calibrator.scorer import MARKS, CallNotes, Mark, ToolUse

ORDER: Final = {name: at for at, name in enumerate(MARKS)}
MOST_COMPARED: Final = 6  # values of a call that are compared with similar texts
MAX_TOKENS: Final = 2_000  # tokens of a conversation
LONGEST_VALUE: Final = 60  # characters of a compared value
LONGEST_NAME: Final = 60  # characters of an argument's name
LONGEST_QUOTED: Final = 80  # characters of a quoted value
DIFFERS: Final = ", differs from "  # precedes the similar text from the conversation
BY_SCHEMA = {
    "unknown_tool": "the tool was not offered",
    "required_missing": "a required argument is missing",
    "type_wrong": "an argument has another type than the schema says",
    "choice_wrong": "an argument is not among the values that the schema allows",
    "unreadable": "the arguments are no JSON object",
}
BY_LIMIT = {
    "limit_passed": "a number is beyond a limit in the instructions",
    "time_outside": "a time is outside the hours in the instructions",
    "too_late": "a date in the record is further back than the instructions allow",
}
_BY_DATE = {
    "weekday_wrong": ("other_date", "a date is not on the weekday that was asked for"),
    "relative_wrong": ("other_date", "a date is not the day that was asked for"),
    "time_wrong": ("other_date", "a time is not the one that was asked for"),
    "order_wrong": ("impossible_date", "a range ends before it starts"),
    "date_unreal": ("impossible_date", "a date is not in the calendar"),
}
_BY_CONTRARY = {
    "contrary_value": ("contrary", "an argument is the contrary of what was said"),
    "order_turned": ("contrary", "the query sorts the other way round"),
    "aggregate_other": ("contrary", "the query computes something else than was asked for"),
    "measure_wrong": ("other_number", "the request gives another number in this unit"),
    "crossed": ("swapped", "a value is under another argument's name"),
    "rows_unbounded": ("wider", "the statement has no condition, so it changes every row"),
    "table_dropped": ("wider", "the statement removes a whole table"),
    "whole_wiped": ("wider", "the command removes a whole folder"),
}
_PART = re.compile(
    r"\b(?:half|third|quarter)\s+(?:of|the|my|our|that|it|what|price|fee|rate)\b"
    r"|\bpays? (?:only )?half\b|\d\s?(?:%|percent) (?:of|off)\b"
)
_COMPUTED = re.compile(
    r"\b(?:double|twice|half|triple|more|less|fewer|another|add|extra|increase|reduce|raise"
    r"|lower|by|each"
    r"|per|both|total|extend|shorten|split|(?:kilomet\w+|met\w+|km|miles|minutes|hours) long)\b"
)
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")


def notes_of(reply: CallReply) -> tuple[CallNotes, ...] | None:
    """Return the notes (marks, risk, reasons) of each call of a reply, in order.

    None if it makes more calls than are read. Text that may be planted counts as said by the
    user.
    """
    view = reply.view
    if has_unread_calls(reply):
        return None
    sources = reply.sources
    if view.turns != view.whole_turns:  # what the user wrote was said, however short
        view = replace(view, turns=view.whole_turns)
        sources = sources_of(view)
    chat, sentences = ChatText(view, sources), sentences_of(view.rules)
    found = []
    for call in view.calls:
        tool = view.tools.get(call.name)
        risk, reasons = risk_of_call(call, tool, chat)
        found.append(CallNotes(marks_of(call, tool, chat, sentences), risk, reasons))
    return tuple(found)


def call_notes(used: ToolUse) -> tuple[CallNotes, ...] | None:
    """Return the notes of each call of a reply, in order, with its marks, risk and reasons.

    None if it makes too many calls to read. Raises nothing, whatever the reply holds.
    """
    return notes_of(read_reply(used))


def has_unread_calls(reply: CallReply) -> bool:
    """Return whether a reply makes more calls than are read."""
    message = reply.used.message
    calls = calls_in(message) if isinstance(message, Mapping) else []
    return len(calls) > len(reply.view.calls)


def marks_of(
    call: Call, tool: Tool | None, chat: ChatText, sentences: list[Sentence]
) -> tuple[Mark, ...]:
    """Return the marks of a call, the strongest first, each only once for an argument.

    `sentences` are those of the instructions. () if nothing speaks against the call.
    """
    found = [
        *marks_of_values(call, tool, chat),
        *_of_request(call, tool, chat),
        *_of_step(call, tool, chat, sentences),
    ]
    each_once = {(mark.name, mark.argument): mark for mark in reversed(found)}
    return tuple(sorted(each_once.values(), key=lambda mark: ORDER[mark.name]))


def marks_of_values(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[Mark]:
    """Yield the marks of values that the conversation lacks, with a similar text that it has.

    For example "not in the conversation, differs from anne". A placeholder gets a second mark.
    """
    left = MOST_COMPARED
    for value in call.values:
        if is_supported(value, call, tool, chat):
            continue
        name = argument_name(value.path)
        near = nearest_text(value, chat) if left > 0 else None
        left -= 1
        differs = "" if near is None else f"{DIFFERS}{near[:LONGEST_QUOTED]}"
        yield Mark("not_in_conversation", name, f"not in the conversation{differs}")
        if is_placeholder(value):
            yield Mark("placeholder", name, "a placeholder")


def is_supported(value: Value, call: Call, tool: Tool | None, chat: ChatText) -> bool:
    """Return whether a value of a call is in the conversation, or follows from it.

    Dates and numbers may be computed from those in the conversation, as their own checks say.
    """
    if value.kind == "date" and not is_worded(value):
        return is_date_supported(chat, value, call)
    if value.kind == "number":
        return chat.is_settled(value, tool) or is_number_supported(chat, value, tool)
    return chat.supports(value, call, tool)


def argument_name(path: str) -> str:
    """Return the name of an argument for people: `address.city`; "?" for an empty path."""
    return path.replace(" ", ".")[:LONGEST_NAME] or "?"


def _of_request(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[Mark]:
    """Yield the marks of differences from the request: choices, ends, numbers, records, acts."""
    view, sources = chat.view, chat.sources
    for path, named in requested.other_choice(call, tool, chat):
        yield Mark("other_choice", argument_name(path), f"the user named {named}")
    for path, wanted in flags.other_flag(call, tool, chat):
        yield Mark("other_choice", argument_name(path), f"the user's words say {wanted}")
    for path in requested.wrong_way(call, chat):
        yield Mark("swapped", argument_name(path), "the request names it as the other end")
    for path in requested.crossed_names(call, chat):
        yield Mark("swapped", argument_name(path), "the request puts it beside another name")
    for path, words in numbers.other_number(call, tool, chat):
        yield Mark("other_number", argument_name(path), words)
    for path in numbers.other_length(call, chat):
        yield Mark("other_number", argument_name(path), "the request names another span of time")
    for path in numbers.only_a_factor(call, chat):
        yield Mark("other_number", argument_name(path), "it is only one factor of the amount")
    for path in superlatives.better_named(call, chat):
        words = "another of those listed has more of the user's words"
        yield Mark("other_record", argument_name(path), words)
    for path, which in superlatives.not_that_one(call, chat):
        yield Mark("other_record", argument_name(path), f"not the {which} of those listed")
    yield from _of_narrowing(call, tool, chat)
    effect = risk.effect_of(call, tool, view)
    for path in requested.wider_arguments(call, chat, destroys=effect.kind == risk.DESTROY):
        yield Mark("wider", argument_name(path), "the user named only a part of it")
    for path in requested.left_out(call, chat):
        yield Mark("ruled_out", argument_name(path), "the user left it out")
    if not effect.is_read:
        for path in requested.moved_from(call, chat):
            yield Mark("swapped", argument_name(path), "the request names it as what it was before")
        for path, name, words in narrowing.superseded_values(call, chat):
            yield Mark(name, argument_name(path), words)
    if requested.contrary_verb(call, view):
        yield Mark("contrary", "", "the tool does the contrary of what was asked")
    if requested.ruled_out(call, view, is_changing=not effect.is_read):
        yield Mark("ruled_out", "", "the user said not to do it")
    if effect.is_final and requested.is_pure_look(view) and not requested.is_ordered(call, view):
        yield Mark("unasked_change", "", "the user only asked to look")
    elif effect.kind == risk.DESTROY and not risk.find_authorisation(call, effect, chat)[0]:
        yield Mark("unasked_change", "", "the user's own words do not ask for it")
    if (other := requested.other_tool(call, view)) is not None:
        yield Mark("other_tool", "", f"the user's words are those of {other[:LONGEST_NAME]}")
    if requested.is_reversed(call):
        yield Mark("impossible_date", "", "a range ends before it starts")
    traits, request = contrary_traits(call, view, sources), view.request.lower()[-2_000:]
    is_timed = numbers.has_spoken_length(call, request)
    is_rate = any("per" in name_words(value.path) for value in call.values[:40])
    is_unclear = is_rate or _COMPUTED.search(request) is not None
    for trait, (name, words) in _BY_CONTRARY.items():
        if traits[trait] > 0 and not (trait == "measure_wrong" and (is_unclear or is_timed)):
            yield Mark(name, "", words)
    if (
        not is_timed
        and _PART.search(request)
        and grounding_traits(call, sources, tool, view)["part_wrong"] > 0
    ):
        yield Mark("other_number", "", "the user asked for a part, and no number is one")


def _of_narrowing(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[Mark]:
    """Yield the marks of values that the request's own words exclude.

    These are the other one of two choices, a later week, a bound, names or ids that the user
    did not mean, and what the user left out.
    """
    for path, named in narrowing.the_other(call, tool, chat):
        yield Mark("other_choice", argument_name(path), f"the user wants the other one, {named}")
    for path in narrowing.other_week(call, chat):
        yield Mark("other_date", argument_name(path), "it is that weekday, but of a later week")
    for path, words in narrowing.out_of_bounds(call, chat):
        yield Mark("other_record", argument_name(path), words)
    for path in (*narrowing.beyond_named(call, chat), *narrowing.beyond_described(call, chat)):
        yield Mark("wider", argument_name(path), "the list has more than the user named")
    for path, named in narrowing.other_id(call, chat):
        yield Mark("other_record", argument_name(path), f"the user named {named}")
    for path in (*narrowing.find_excluded(call, chat), *narrowing.excluded_kind(call, chat)):
        yield Mark("ruled_out", argument_name(path), "the user left it out")


def _of_step(
    call: Call, tool: Tool | None, chat: ChatText, sentences: list[Sentence]
) -> Iterator[Mark]:
    """Yield the marks by the schema, the instructions, the calendar and the earlier calls.

    `sentences` are those of the instructions.
    """
    view, sources = chat.view, chat.sources
    schema, dates = schema_of(call, tool, view), date_traits(call, sources)
    rules, steps = rule_traits(call, tool, view, sources, sentences), steps_of(call, view)
    is_listed = call.name in view.listed
    for trait, words in BY_SCHEMA.items():
        if schema[trait] > 0 and not (is_listed and trait == "unknown_tool"):
            yield Mark("schema", "", words)
    are_known = all(is_supported(v, call, tool, chat) for v in call.values if v.days or v.times)
    for trait, (name, words) in _BY_DATE.items():
        is_open = trait in ("relative_wrong", "time_wrong") or (
            trait == "weekday_wrong" and is_day_shifted(view.request.lower())
        )
        if dates[trait] > 0 and not (are_known and is_open):
            yield Mark(name, "", words)
    yield from (Mark("limit_passed", "", w) for trait, w in BY_LIMIT.items() if rules[trait] > 0)
    is_read = risk.effect_of(call, tool, view).is_read
    if steps["same_again_after_success"] > 0:
        yield Mark("repeated", "", MARKS["repeated"])
    if steps["same_again_after_error"] > 0 and _is_last_failure(call, chat):
        yield Mark("failed_before", "", MARKS["failed_before"])
    if rules["yes_missing"] > 0 and not is_read:
        yield Mark("unconfirmed", "", MARKS["unconfirmed"])
    if steps["write_unlooked"] > 0 and not is_read:
        yield Mark("not_looked_up", "", MARKS["not_looked_up"])


def _is_last_failure(call: Call, chat: ChatText) -> bool:
    """Return whether the same call has failed and nothing was changed since.

    The last equal call decides; False if there is none, or if a call that changes something has
    succeeded after it.
    """
    for before in reversed(chat.view.earlier):
        if before.key == call.key:
            return is_failure(before.result)
        if not is_read(before.name) and before.result and not is_failure(before.result):
            return False
    return False


def nearest_text(value: Value, chat: ChatText) -> str | None:
    """Return the text in the conversation that is a slip away from the value, or None.

    A slip is one character more, less or different, two characters swapped, or for longer
    values two of these; for numbers also a decimal point in another place; for dates up to 31
    days.
    """
    if value.kind == "number":
        return _nearest_number(value, chat)
    if value.kind == "date":
        return _nearest_day(value, chat)
    if value.kind == "mail":
        return _nearest_mail(value, chat)
    if value.kind == "name" and " " in value.text:
        return _nearest_words(value, chat)
    if value.kind in ("id", "path", "name"):
        return _nearest_token(value.text, [t for t in chat.tokens if "@" not in t])
    return None


def _nearest_mail(value: Value, chat: ChatText) -> str | None:
    """Return a mail address of the conversation that differs a little from the value, or None.

    The name or the host may be the same and the other one differ.
    """
    mails = list(dict.fromkeys(_MAIL.findall(chat.text)))[:200]
    if (found := _nearest_token(value.text, mails)) is not None:
        return found
    name, _, host = value.text.partition("@")
    for each in mails:
        mail = str(each)
        own, _, at = mail.partition("@")
        if (own == name and at != host) or (at == host and distance(own, name, 3) <= 3):
            return mail
    return None


def _nearest_number(value: Value, chat: ChatText) -> str | None:
    """Return, as text, a number of the conversation with the same digits or one changed digit.

    None if there is none.
    """
    if value.number is None:
        return None
    text = f"{value.number:.10g}"
    digits = text.replace(".", "").strip("0")
    for number in sorted(chat.numbers):
        other = f"{number:.10g}"
        if len(digits) >= 2 and other.replace(".", "").strip("0") == digits and number:
            return other
        if len(text) >= 3 and len(other) >= 3 and distance(text, other, 1) <= 1:
            return other
    return None


def _nearest_day(value: Value, chat: ChatText) -> str | None:
    """Return the earliest day, as ISO text, that the user named at most 31 days from the value's.

    It is neither the nearest nor the first mentioned. Days named by their distance (`tomorrow`)
    count only if there are no more than four of them. None if no other day is that near.
    """
    days = {d for day in chat.sources.users.days if (d := calendar_day(day)) is not None}
    days |= chat.sources.relative if len(chat.sources.relative) <= 4 else set()
    own = [d for day in value.days if (d := calendar_day(day)) is not None]
    for day in sorted(days):
        if any(each != day and abs((each - day).days) <= 31 for each in own):
            return day.isoformat()
    return None


def _nearest_words(value: Value, chat: ChatText) -> str | None:
    """Return the text nearest to the one word of a name that the conversation lacks, or None.

    None if it lacks several words, or has all.
    """
    words = value.text.split()[:8]
    pieces = chat.pieces
    strange = [word for word in words if word.strip(".,") not in pieces]
    if len(strange) != 1:
        return None
    return _nearest_token(strange[0], sorted(p for p in pieces if len(p) >= 3))


def _nearest_token(text: str, tokens: list[str]) -> str | None:
    """Return the token that differs least from a text, by one slip at least, or None.

    At most one slip is allowed, two from seven characters on. None for texts below three or
    above 60 characters.
    """
    if len(text) > LONGEST_VALUE or len(text) < 3:
        return None
    most = 2 if len(text) >= 7 else 1
    found = None
    for token in tokens[:MAX_TOKENS]:
        if token == text or token[0] == "-" or abs(len(token) - len(text)) > most:
            continue
        if (between := distance(text, token, most)) <= most:
            found, most = token, between - 1
            if most < 1:
                break
    return found


def distance(one: str, other: str, most: int) -> int:
    """Return the number of slips between two texts, or `most` + 1 if there are more than `most`.

    Optimal string alignment: insertion, deletion, substitution, two characters swapped. Only a
    band of the table is filled, so the time grows with the length times `most`.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    far = most + 1
    before: dict[int, int] = {}
    last = {j: j for j in range(min(len(other), most) + 1)}
    for i, a in enumerate(one, 1):
        row: dict[int, int] = {}
        for j in range(max(0, i - most), min(len(other), i + most) + 1):
            if j == 0:
                row[0] = i
                continue
            b = other[j - 1]
            found = min(last.get(j, far) + 1, row.get(j - 1, far) + 1)
            found = min(found, last.get(j - 1, far) + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                found = min(found, before.get(j - 2, far) + 1)
            row[j] = found
        if min(row.values()) > most:
            return far
        before, last = last, row
    return last.get(len(other), far)
