"""What the clients' upstream answers, before it is put into the format of an API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]

SENTENCE = "It is sunny in Paris. p=0.92"
THOUGHT = "Where is the Eiffel tower?"
VALUES: Json = {"city": "Paris", "name": "Rome", "inhabitants": 2755309}
CREATED = 1_767_225_600
MESSAGES = {
    400: "the request is malformed",
    401: "the key is not valid",
    403: "the key may not do this",
    404: "there is no such model",
    409: "somebody else was first",
    422: "the request cannot be processed",
    429: "too many requests",
    500: "upstream is broken",
    503: "upstream is overloaded",
}


@dataclass(frozen=True)
class Call:
    """A call of a tool, its arguments still a dict."""

    id: str
    name: str
    arguments: Json

    @property
    def text(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer: a text or calls, perhaps after a thought."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str | None = None


@dataclass(frozen=True)
class Event:
    """One server-sent event; a delta is what an application shows while it waits."""

    data: Json | Literal["[DONE]"]
    name: str | None = None
    is_delta: bool = False

    @property
    def bytes(self) -> bytes:
        data = self.data if isinstance(self.data, str) else json.dumps(self.data)
        named = f"event: {self.name}\n" if self.name else ""
        return f"{named}data: {data}\n\n".encode()


def reply_to(behaviour: str, body: Json) -> Reply:
    """Return the reply to a request in any of the formats."""
    schema, tools = _schema_of(body), body.get("tools") or []
    if behaviour in ("tools", "parallel") and tools and not _has_results(body):
        cities = ("Paris", "Rome") if behaviour == "parallel" else ("Paris",)
        return Reply(calls=tuple(_call(tools[0], n, city) for n, city in enumerate(cities)))
    is_forced = isinstance(body.get("tool_choice"), dict)
    if behaviour in ("structured", "stuck") and tools and (is_forced or schema is None):
        return Reply(calls=(_call(tools[0], 0, "Paris"),))
    if schema is not None:
        return Reply(json.dumps(_filled(schema)))
    return Reply(SENTENCE, thought=THOUGHT if behaviour == "thinking" else None)


def halves(text: str) -> list[str]:
    """Return the text in two parts, as deltas carry it, without empty parts."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def _schema_of(body: Json) -> Json | None:
    """Return the JSON schema that the answer must have, for chat, Responses or Messages."""
    chat = (body.get("response_format") or {}).get("json_schema") or {}
    responses = (body.get("text") or {}).get("format") or {}
    messages = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return chat.get("schema") or responses.get("schema") or messages.get("schema")


def _has_results(body: Json) -> bool:
    """Whether the last message contains a tool's result."""
    items = body.get("messages") or body.get("input")
    last = items[-1] if isinstance(items, list) else {}
    content = last.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    is_result = any(block.get("type") == "tool_result" for block in blocks)
    return is_result or last.get("type") == "function_call_output" or last.get("role") == "tool"


def _call(tool: Json, number: int, city: str) -> Call:
    function = tool.get("function") or tool
    schema = function.get("parameters") or function.get("input_schema") or {}
    arguments = _filled(schema)
    if "city" in arguments:
        arguments["city"] = city
    return Call(f"call_{number}", function["name"], arguments)


def _filled(schema: Json) -> Json:
    return {name: VALUES[name] for name in schema.get("properties", {}) if name in VALUES}
