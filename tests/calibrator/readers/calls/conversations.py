"""Short conversations that end with a call, for tests of traits."""

from __future__ import annotations

import json
from typing import Any

from calibrator import ToolUse
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.readers.calls.reading.sources import sources_of
from calibrator.readers.calls.reading.traits import named_traits

Json = dict[str, Any]

LOOK = ("find_boats", {"query": "string"})
WRITE = ("rent_boat", {"boat_id": "string", "day": "string", "hours": "integer"})
BOATS = (
    '[{"boat_id": "B-17", "name": "Heron", "seats": 4, "price": 30},'
    ' {"boat_id": "B-29", "name": "Pike", "seats": 2, "price": 18},'
    ' {"boat_id": "B-41", "name": "Otter", "seats": 6, "price": 45}]'
)
RIGHT: Json = {"boat_id": "B-29", "day": "2031-07-10", "hours": 3}


def tool(name: str, takes: dict[str, Any]) -> Json:
    """Return the definition of a tool; `takes` has a type or a schema for each parameter."""
    properties = {n: t if isinstance(t, dict) else {"type": t} for n, t in takes.items()}
    parameters = {"type": "object", "properties": properties, "required": [*takes]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def call_message(name: str, arguments: Any, call_id: str = "c1") -> Json:
    """Return an assistant's message that makes one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def earlier_call(name: str, arguments: Any, result: str, number: int = 1) -> list[Json]:
    """Return the messages of an earlier call and its result."""
    answer = {"role": "tool", "tool_call_id": f"c{number}", "content": result}
    return [call_message(name, arguments, f"c{number}"), answer]


def renting(
    values: Json | None = None,
    *,
    request: str = "Rent the Pike on 10 July 2031 for 3 hours.",
    rules: str = "You rent boats. Today is 2031-07-07, a Monday.",
    before: list[Json] | None = None,
    name: str = "rent_boat",
    result: str = BOATS,
) -> ToolUse:
    """Return a conversation about renting a boat; each argument differs from the plain case."""
    looked = earlier_call("find_boats", {"query": "Pike"}, result) if before is None else before
    messages = [
        {"role": "system", "content": rules},
        {"role": "user", "content": request},
        *looked,
    ]
    return ToolUse(
        messages,
        [tool(*LOOK), tool(*WRITE)],
        call_message(name, RIGHT if values is None else values),
    )


def traits(used: ToolUse) -> dict[str, float]:
    """Return the traits of a reply by name."""
    view = view_of(used)
    return named_traits(view, sources_of(view))
