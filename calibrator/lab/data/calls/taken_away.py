"""Edits of a call or its conversation that remove one reason against it, and nothing else.

What is missing is added (a value to the request, a tool to the offer, a look-up before the call),
and what is too much is removed (an earlier call, a sentence of the instructions). The edits read
the texts alone and do not use the scores of calls.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from calibrator.readers.calls.notes.marks import DIFFERS
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.readers.calls.reading.steps import is_read
from calibrator.readers.calls.reading.traits import read_reply
from calibrator.readers.calls.reading.values import calendar_day, name_words
from calibrator.readers.calls.reasons import reasons
from calibrator.scorer import ToolUse

Json = dict[str, Any]
MOST_TRIED = 60  # edits tried for one reason
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_STANDIN = {"mail": "r.hollis@northwind.test", "other": "K4417-20"}


def taken_away(used: ToolUse, reason: str) -> ToolUse | None:
    """Return the reply after the first edit for which `reasons` no longer names `reason`.

    A reason is a text such as `placeholder: email`. Returns None if no edit is known for its
    kind, or none of the first `MOST_TRIED` removes it.
    """
    kind, name = _split_reason(reason)
    edits = _EDITS.get(kind)
    if edits is None:
        return None
    for edited in itertools.islice(edits(used, name), MOST_TRIED):
        if (kind, name) not in map(_split_reason, reasons(read_reply(edited))):
            return edited
    return None


def _split_reason(reason: str) -> tuple[str, str]:
    """Return the kind of a reason and the argument that it names or "", without similar texts."""
    kind, _, rest = reason.partition(": ")
    return kind, rest.partition(DIFFERS)[0]


def _copy_parts(used: ToolUse) -> tuple[list[Any], list[Any], Json]:
    """Return deep copies of the messages, the tools and the reply's message."""
    parts = copy.deepcopy((list(used.messages), list(used.tools), dict(used.message)))
    return parts[0], parts[1], parts[2]


def _functions(message: Json) -> list[Json]:
    """Return the `function` objects of a message's calls, each with `name` and `arguments`."""
    listed = message.get("tool_calls")
    functions = [each.get("function") for each in listed] if isinstance(listed, list) else []
    return [each for each in functions if isinstance(each, dict)]


def _arguments(function: Json) -> Json:
    """Decode a call's arguments; empty if they are no JSON object."""
    try:
        found = json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _append_sentence(messages: list[Any], sentence: str) -> bool:
    """Append a sentence to the user's last message in place.

    Returns False if no message is a user's, or if the content of the last one is not a string.
    """
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            if not isinstance(message.get("content"), str):
                return False
            message["content"] = f"{message['content'].rstrip()} {sentence}"
            return True
    return False


def _add_value(used: ToolUse, path: str) -> Iterator[ToolUse]:
    """Yield the reply once, after the user has said the value of the argument at `path`.

    `The order id is K17.` is appended to the user's last message. Yields nothing without such a
    value or message.
    """
    messages, tools, message = _copy_parts(used)
    view = view_of(used)
    values = [v for c in view.calls for v in c.values if v.path.replace(" ", ".")[:60] == path]
    spoken = " ".join(name_words(path.rpartition(".")[2])) or "value"
    raw_values = ", ".join(dict.fromkeys(str(value.raw) for value in values))
    if values and _append_sentence(messages, f"The {spoken} is {raw_values}."):
        yield ToolUse(messages, tools, message)


def _placeholder_filled(used: ToolUse, path: str) -> Iterator[ToolUse]:
    """Yield the reply with a plausible value for a placeholder, which the user then has said.

    `path` begins with the argument's name. Yields one reply for each call whose argument of
    that name is a text.
    """
    messages, tools, message = _copy_parts(used)
    name = path.partition(".")[0]
    for function in _functions(message):
        arguments = _arguments(function)
        if isinstance(arguments.get(name), str):
            new = _STANDIN["mail" if "@" in arguments[name] else "other"]
            function["arguments"] = json.dumps(arguments | {name: new}, ensure_ascii=False)
            if _append_sentence(messages, f"The {' '.join(name_words(name))} is {new}."):
                yield ToolUse(messages, tools, message)


def _without_earlier(used: ToolUse, _: str) -> Iterator[ToolUse]:
    """Yield the reply once, without earlier calls equal to its own, and without their results.

    Messages that have no other call are removed.
    """
    messages, tools, message = _copy_parts(used)
    own = {(f.get("name"), json.dumps(_arguments(f), sort_keys=True)) for f in _functions(message)}
    gone: set[Any] = set()
    kept: list[Any] = []
    for each in messages:
        calls = each.get("tool_calls") if isinstance(each, dict) else None
        if isinstance(calls, list):
            same = [c for c in calls if _key(c) in own]
            gone |= {c.get("id") for c in same}
            each["tool_calls"] = [c for c in calls if _key(c) not in own]
            if not each["tool_calls"]:
                continue
        if not (isinstance(each, dict) and gone and each.get("tool_call_id") in gone):
            kept.append(each)
    yield ToolUse(kept, tools, message)


def _key(call: Any) -> tuple[Any, str]:
    """Return the name and the arguments, as sorted JSON, of one entry of `tool_calls`."""
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    return function.get("name"), json.dumps(_arguments(function), sort_keys=True)


def _looked_up(used: ToolUse, _: str) -> Iterator[ToolUse]:
    """Yield the reply after a look-up that returns its own arguments, once for each reading tool.

    The look-up is appended to the messages. Yields nothing if no such tool is offered.
    """
    for tool in view_of(used).tools:
        if is_read(tool):
            messages, tools, message = _copy_parts(used)
            arguments = [_arguments(function) for function in _functions(message)]
            lookup = {"name": tool, "arguments": "{}"}
            call = {"id": "call_looked_up", "type": "function", "function": lookup}
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(arguments)},
            ]
            yield ToolUse(messages, tools, message)


def _offer_tools(used: ToolUse, _: str) -> Iterator[ToolUse]:
    """Yield the reply once, with the tools that it calls added to the offer if they were unknown.

    Their schemas have the call's arguments, of any type.
    """
    messages, tools, message = _copy_parts(used)
    known = view_of(used).tools
    for function in _functions(message):
        name = function.get("name")
        if isinstance(name, str) and name not in known:
            properties: Json = {key: {} for key in _arguments(function)}
            schema = {"type": "object", "properties": properties}
            described = {"name": name, "description": " ".join(name_words(name))}
            tools.append({"type": "function", "function": described | {"parameters": schema}})
    yield ToolUse(messages, tools, message)


def _schema(change: Callable[[Json, Json], None]) -> Callable[[ToolUse, str], Iterator[ToolUse]]:
    """Return an edit that yields the reply once, with `change(schema, arguments)` made in place.

    It is made for each call, with the schema of the called tool and the decoded arguments.
    """

    def edit_schema(used: ToolUse, _: str) -> Iterator[ToolUse]:
        """Yield a copy of the reply in which `change` has edited the schema of each called tool."""
        messages, tools, message = _copy_parts(used)
        for function in _functions(message):
            for tool in tools:
                tool_function = tool.get("function", tool) if isinstance(tool, dict) else {}
                schema = (
                    tool_function.get("parameters") if isinstance(tool_function, dict) else None
                )
                if isinstance(schema, dict) and tool_function.get("name") == function.get("name"):
                    change(schema, _arguments(function))
        yield ToolUse(messages, tools, message)

    return edit_schema


def _nothing_required(schema: Json, arguments: Json) -> None:
    """Remove from the schema's `required`, in place, the arguments that the call does not have."""
    schema["required"] = [name for name in schema.get("required") or [] if name in arguments]


def _any_type(schema: Json, arguments: Json) -> None:
    """Remove in place the `type` of each argument that the call has."""
    for name in arguments:
        if isinstance(member := (schema.get("properties") or {}).get(name), dict):
            member.pop("type", None)


def _as_choice(schema: Json, arguments: Json) -> None:
    """Add the call's values in place to the schema's `enum` lists, also those of list items."""
    for name, value in arguments.items():
        member = (schema.get("properties") or {}).get(name)
        for place in (member, member.get("items")) if isinstance(member, dict) else ():
            if isinstance(place, dict) and isinstance(place.get("enum"), list):
                place["enum"] += value if isinstance(value, list) else [value]


def _without_sentence(used: ToolUse, _: str) -> Iterator[ToolUse]:
    """Yield the reply once for each sentence of the system messages, without that sentence."""
    for at, each in enumerate(used.messages):
        text = each.get("content") if isinstance(each, dict) else None
        if not isinstance(text, str) or each.get("role") not in ("system", "developer"):
            continue
        parts = re.split(r"(?<=[.!?;\n])", text)
        for place in range(len(parts)):
            messages, tools, message = _copy_parts(used)
            messages[at]["content"] = "".join([*parts[:place], *parts[place + 1 :]])
            yield ToolUse(messages, tools, message)


def _dates_moved(used: ToolUse, _: str) -> Iterator[ToolUse]:
    """Yield copies of the reply with one ISO date of its arguments moved, nearest days first.

    The moves are from one day to a year, in both directions. Dates that the calendar lacks,
    such as `2024-02-30`, are moved from the 28th, by one day only.
    """
    places = [
        (number, found)
        for number, function in enumerate(_functions(dict(used.message)))
        for found in _ISO.finditer(str(function.get("arguments")))
    ]
    for days in (1, -1, 2, -2, 3, -3, 4, 5, 6, 7, -4, -5, -6, -7, 14, 30, 365):
        for number, found in places:
            year, month, day = map(int, found.groups())
            when = calendar_day((year, month, min(day, 28) if days == 1 else day))
            if when is None:
                continue
            messages, tools, message = _copy_parts(used)
            function = _functions(message)[number]
            text = str(function["arguments"])
            moved = (when + timedelta(days)).isoformat()
            function["arguments"] = text[: found.start()] + moved + text[found.end() :]
            yield ToolUse(messages, tools, message)


_EDITS: dict[str, Callable[[ToolUse, str], Iterator[ToolUse]]] = {
    "value not in conversation": _add_value,
    "placeholder": _placeholder_filled,
    "the same call has been made already": _without_earlier,
    "the same call has failed already": _without_earlier,
    "no read-only call came before this one": _looked_up,
    "the tool was not offered": _offer_tools,
    "a required argument is missing": _schema(_nothing_required),
    "an argument has another type than the schema says": _schema(_any_type),
    "an argument is not among the values that the schema allows": _schema(_as_choice),
    "a number is beyond a limit in the instructions": _without_sentence,
    "a time is outside the hours in the instructions": _without_sentence,
    "a date in the record is further back than the instructions allow": _without_sentence,
    "the instructions ask for a confirmation first": _without_sentence,
    "a date is not on the weekday that was asked for": _dates_moved,
    "a range ends before it starts": _dates_moved,
    "a date is not in the calendar": _dates_moved,
}
