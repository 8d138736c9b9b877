"""What a person may change in a stored reply, and what its request requires of it.

Each format finds its own texts, calls and requirements (`Format.editable`, `Format.wanted_json`).
This module has what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.http.wire.json_rewrite import Place
from proxy.http.wire.json_splice import dumps

Json = dict[str, Any]
Changes = dict[Place, Any]


@dataclass(frozen=True, slots=True)
class EditableText:
    """The text of a choice; `changes` maps a new text to what it changes in the reply, by place."""

    text: str
    changes: Callable[[str], Changes]


@dataclass(frozen=True, slots=True)
class EditableCall:
    """A call of one of the client's tools.

    Its `arguments` are a JSON object, stored as an `object` or as a `string`, or, for a custom
    tool, any `text`. `arguments_at` and `name_at` are their places.
    """

    name: str
    arguments: str
    kind: Literal["string", "object", "text"]
    arguments_at: Place
    name_at: Place


@dataclass(frozen=True, slots=True)
class Editable:
    """What a reviewer may change: one text for each choice, or none, and the calls in order."""

    texts: list[EditableText] = field(default_factory=list)
    calls: list[EditableCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WantedJson:
    """The requirement that a text is JSON: of this schema, or any object if the schema is None."""

    schema: Any


def editable_call(
    call: Json, kind: Literal["string", "object", "text"], place: Place, name: str
) -> EditableCall:
    """Return a call as it may be edited; its arguments are its member `name`, as JSON or text.

    `place` is the call's place in the reply. Raises KeyError if the call lacks a name or the
    member.
    """
    value = call[name]
    arguments = value if isinstance(value, str) else dumps(value).decode()
    return EditableCall(call["name"], arguments, kind, (*place, name), (*place, "name"))


def uncut(choice: Json, place: Place) -> Changes:
    """Return the changes, by place, that remove what was about a choice's old text.

    These are its log-probabilities, and a finish reason that says it was cut.
    """
    changed: Changes = {}
    if choice.get("logprobs"):
        changed[(*place, "logprobs")] = None
    if choice.get("finish_reason") in ("length", "content_filter"):
        changed[(*place, "finish_reason")] = "stop"
    return changed


def wanted_of(response_format: Any) -> WantedJson | None:
    """Return what a request's `response_format` (or the like) requires of the text.

    None if any text will do.
    """
    response_format = _object(response_format)
    if response_format.get("type") == "json_object":
        return WantedJson(None)
    if response_format.get("type") != "json_schema":
        return None
    json_schema = response_format.get("json_schema")
    return WantedJson(
        _object(json_schema).get("schema")
        if json_schema is not None
        else response_format.get("schema")
    )


def tool_schemas(payload: Json) -> dict[str, Any]:
    """Return the schemas of the arguments of a request's tools, by the tool's name.

    The schema is None for a tool without one. Tools in a namespace are included.
    """
    schemas: dict[str, Any] = {}
    tools = [*_list_objects(payload.get("tools")), *_list_objects(payload.get("functions"))]
    for tool in tools:
        if tool.get("type") == "namespace":
            schemas |= tool_schemas(tool)
            continue
        inner = tool.get("function") or tool.get("custom") or tool
        if isinstance(inner, dict) and isinstance(name := inner.get("name"), str):
            schemas[name] = inner.get("parameters", inner.get("input_schema"))
    return schemas


def _list_objects(value: Any) -> list[Json]:
    """Return the objects in a list; empty for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
