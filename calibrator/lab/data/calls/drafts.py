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
        """Encode the arguments and return the reply in its present form."""
        self.call["arguments"] = json.dumps(self.arguments, ensure_ascii=False)
        return ToolUse(self.messages, self.tools, self.message)

    def put(self, value: Value, new: Any) -> bool:
        """Replace an argument or members of a list by `new`; False for a dict or a missing one."""
        if value.path not in self.arguments or isinstance(self.arguments[value.path], dict):
            return False
        held = self.arguments[value.path]
        if isinstance(held, list):
            if value.raw not in held:
                return False
            self.arguments[value.path] = [new if each == value.raw else each for each in held]
        else:
            self.arguments[value.path] = new
        return True


def draft_of(used: ToolUse, rng: random.Random) -> Draft | None:
    """Copy a reply so that one of its calls can be changed; None if no call is readable."""
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
    """Return a reply after one change; None if the change is impossible."""
    try:
        draft = draft_of(used, rng)
        return draft.encode() if draft is not None and change(draft) else None
    except RecursionError:  # the message is nested too deeply to be copied
        return None
