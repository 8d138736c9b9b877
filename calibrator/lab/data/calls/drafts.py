"""A reply that calls tools, decoded so that one detail of it can be changed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calibrator.readers.calls.reading.conversation import Call, View, view_of
from calibrator.readers.calls.reading.sources import Sources, sources_of
from calibrator.readers.calls.reading.values import Value
from calibrator.scorer import ToolUse

Json = dict[str, Any]


@dataclass(slots=True)
class Draft:
    """A reply that may be changed: its own copy of everything but the texts."""

    messages: list[Json]
    tools: list[Any]
    message: Json
    call: Json  # `function` of the changed call in `message`
    arguments: Json  # the decoded arguments of `call`
    values: list[Value]
    view: View
    sources: Sources
    rng: random.Random

    def encode(self) -> ToolUse:
        """Write the changed arguments into the call, as JSON, and return the reply as a ToolUse."""
        self.call["arguments"] = json.dumps(self.arguments, ensure_ascii=False)
        return ToolUse(self.messages, self.tools, self.message)

    def put(self, value: Value, new: Any) -> bool:
        """Replace the outermost argument at the value's path by `new`, and return whether it could.

        In a list all members equal to the old value are replaced. False for a nested path,
        a dict, or a list without the value.
        """
        if value.path not in self.arguments or isinstance(self.arguments[value.path], dict):
            return False
        current = self.arguments[value.path]
        if isinstance(current, list):
            if value.raw not in current:
                return False
            self.arguments[value.path] = [new if each == value.raw else each for each in current]
        else:
            self.arguments[value.path] = new
        return True


def draft_of(used: ToolUse, rng: random.Random) -> Draft | None:
    """Return a copy of a reply whose call is decoded, so that it can be changed.

    The call is drawn from those with arguments, else it is the first. Returns None if the reply
    has no call or the drawn one's arguments are no JSON object.
    """
    message = copy.deepcopy(dict(used.message)) if isinstance(used.message, Mapping) else {}
    listed = message.get("tool_calls")
    functions = [
        each["function"]
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict) and isinstance(each.get("function"), dict)
    ]
    if not functions:
        return None
    view = view_of(ToolUse(used.messages, used.tools, message))
    chosen = [n for n, c in enumerate(view.calls) if n < len(functions) and c.arguments]
    number = rng.choice(chosen) if chosen else 0
    call = view.calls[number] if number < len(view.calls) else Call("", {})
    if not call.is_readable or call.name != functions[number].get("name"):
        return None
    past, tools = (
        each if isinstance(each, list | tuple) else [] for each in (used.messages, used.tools)
    )
    messages = [dict(m) for m in past if isinstance(m, Mapping)]
    return Draft(messages, list(tools), message, functions[number],
                 copy.deepcopy(dict(call.arguments)), call.values, view, sources_of(view),
                 rng)  # fmt: skip


def apply_change(
    used: ToolUse, change: Callable[[Draft], bool], rng: random.Random
) -> ToolUse | None:
    """Return a copy of the reply after `change`, which edits a draft and returns whether it could.

    Returns None if it could not, or the reply has no readable call or is nested too deeply.
    """
    try:
        draft = draft_of(used, rng)
        return draft.encode() if draft is not None and change(draft) else None
    except RecursionError:  # the message is nested too deeply to be copied
        return None
