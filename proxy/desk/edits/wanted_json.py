"""What a request asks of its answer: the schemas of its tools, and JSON in place of prose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.formats import Json


@dataclass(frozen=True, slots=True)
class WantedJson:
    """The text must be JSON: of this schema, or where it is None any object."""

    schema: Any


def tool_schemas(payload: Json) -> dict[str, Any]:
    """The schema of the arguments of each tool that is offered, by its name; None for no schema."""
    found: dict[str, Any] = {}
    listed = [*_listed(payload.get("tools")), *_listed(payload.get("functions"))]
    for tool in listed:
        if tool.get("type") == "namespace":
            found |= tool_schemas(tool)
            continue
        inner = tool.get("function") or tool.get("custom") or tool
        if isinstance(inner, dict) and isinstance(name := inner.get("name"), str):
            found[name] = inner.get("parameters", inner.get("input_schema"))
    return found


def wanted_json(path: str | None, payload: Json) -> WantedJson | None:
    """None where the client takes any text."""
    if path == "/responses":
        wanted = _object(payload.get("text")).get("format")
    elif path == "/messages":
        config = _object(payload.get("output_config"))
        wanted = config.get("format") or payload.get("output_format")
    else:
        wanted = payload.get("response_format")
    wanted = _object(wanted)
    if wanted.get("type") == "json_object":
        return WantedJson(None)
    if wanted.get("type") != "json_schema":
        return None
    named = wanted.get("json_schema")
    return WantedJson(_object(named).get("schema") if named is not None else wanted.get("schema"))


def _listed(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
