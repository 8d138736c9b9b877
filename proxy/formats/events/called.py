"""The tools that an answer calls, also where no format defines such a call.

A policy that holds calls has to see each of them: one of a new type, with its name in another
place, in an object where a list is expected, or under a member in another case. So whatever looks
like a call counts as one, under every name that a reader could find in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibrator import RISKS, CallNotes
from policies import OfferedTools, ToolCall
from proxy.http.wire.json_splice import dumps

_TEXTS = frozenset({"role", "content", "refusal", "reasoning_content", "reasoning", "name", "id"})
_CALLING = frozenset({"toolcalls", "toolcall", "functioncall", "functioncalls", "tooluse"})
_DESCRIBED = frozenset({"tools", "tool_choice", "logprobs", "annotations", "usage"})
_ARGUMENTS = ("arguments", "input")
_GIVEN = ("arguments", "input", "parameters")  # with a name, each of these makes any object a call
_PLACES = ("item", "response", "content_block", "content", "message", "output", "choices")
_PIECES = (  # members of events in which a text or a call grows
    *("delta", "text", "refusal", "part", "name", "function", "tool"),
    *("arguments", "input", "partial_json", "parameters"),
)
_WRAPPER = "multi_tool_use"
_MOST_WRAPPERS = 3  # in each other
_LABELS = {"id", "index", "type"}  # members of a call without content
_BEYOND_TEXT = {"audio": "audio", "images": "image", "video": "video"}  # members of a message


def plain_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of a chat message that has nothing else, as nearly all have.

    Returns None for a message without text, or with any other member that is not empty.
    """
    text = None
    for key, value in message.items():
        is_text = type(value) is str
        if is_text and key == "content":
            text = value
        elif is_text and key == "role":
            continue
        elif value or (value is not None and key == "function_call"):
            return None
    return text


def tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls in a chat message, also custom tools and the legacy function call.

    What only looks like a call counts as one, under every name found in it.
    """
    return tuple(call for part in _calling_parts(message) for call in _read_call(part))


def read_calls(
    calls: Iterable[ToolCall],
    tools: OfferedTools,
    names: Mapping[str, tuple[str, ...]] | None,
    project: str | None = None,
) -> tuple[ToolCall, ...]:
    """Return calls with the other names under which a client may look their tools up.

    `tools` are the request's tools, `project` is the agent's folder. `names` are the names that
    the deltas of a stream gave besides the one in the message. Calls in the arguments of another,
    as models write parallel ones, follow it.
    """
    found = []
    for call in calls:
        for each in (call, *_calls_inside(call)):
            other_names = names.get(each.name, ()) if names and each is call else ()
            readings = tools.readings(each.name, *other_names)
            found.append(ToolCall(each.name, each.arguments, readings, project))
    return tuple(found)


def add_notes(
    calls: tuple[ToolCall, ...], notes: Sequence[CallNotes] | None
) -> tuple[ToolCall, ...]:
    """Return the calls with their marks and risks; unchanged where `notes` is None.

    If a call has others inside, the notes do not distinguish them, so each call gets all marks and
    the highest risk.
    """
    if notes is None or not calls:
        return calls
    marks = [tuple((mark.name, mark.argument) for mark in each.marks) for each in notes]
    risks = [each.risk for each in notes]
    if len(calls) != len(notes):
        marks = [tuple(dict.fromkeys(pair for each in marks for pair in each))] * len(calls)
        risks = [max(risks, key=RISKS.index, default=RISKS[0])] * len(calls)
    return tuple(
        replace(call, marks=call_marks, risk=risk)
        for call, call_marks, risk in zip(calls, marks, risks, strict=True)
    )


def _calls_inside(call: ToolCall, depth: int = 0) -> Iterator[ToolCall]:
    """Yield the calls in the arguments of a call of `multi_tool_use.parallel`, at any depth.

    What cannot be read there is a call without a name, which may be one of any tool. Other calls
    have none inside.
    """
    is_wrapper = _WRAPPER in call.name.lower()
    if not is_wrapper and "recipient_name" not in call.arguments:
        return
    values = call.values()
    uses = values.get("tool_uses") if isinstance(values, dict) else None
    if not isinstance(uses, list) or depth > _MOST_WRAPPERS:
        if is_wrapper or "tool_uses" in call.arguments:
            yield ToolCall("", call.arguments)
        return
    for use in uses:
        name = use.get("recipient_name") if isinstance(use, dict) else None
        inner_call = ToolCall(name if isinstance(name, str) else "", _parameters(use))
        yield inner_call
        yield from _calls_inside(inner_call, depth + 1)


def _parameters(use: Any) -> str:
    """Return the arguments of one of several calls as text: its `parameters`, or all of it."""
    return _text(use["parameters"] if isinstance(use, dict) and "parameters" in use else use)


def offered_tools(payload: Mapping[str, Any]) -> OfferedTools:
    """Return the names of the tools in a request's `tools` and `functions`, in any format."""
    names: list[str] = []
    for tool in (*_items(payload.get("tools")), *_items(payload.get("functions"))):
        names += _offered_by(tool)
    return OfferedTools(names)


def _offered_by(tool: Any) -> list[str]:
    """Return the names of a tool, or of the tools in a namespace; [] for a value that is no object.

    For a server's own tool without a name, it is the type.
    """
    if not isinstance(tool, dict):
        return []
    owners = (tool, tool.get("function"), tool.get("custom"), *_items(tool.get("tools")))
    own_names = [each.get("name") for each in owners if isinstance(each, dict)]
    names = [
        each for each in (*own_names, *_items(tool.get("allowed_tools"))) if isinstance(each, str)
    ]
    kind = tool.get("type")
    return names or ([kind] if isinstance(kind, str) and kind != "function" else [])


def _items(value: Any) -> list[Any]:
    """Return a list unchanged; an empty one for any other value."""
    return value if isinstance(value, list) else []


def without_calls(message: Mapping[str, Any], ids: Collection[str]) -> Mapping[str, Any]:
    """Return a chat message whose `tool_calls` lack those with these ids.

    The same message is returned for no ids, and without such a list.
    """
    calls = message.get("tool_calls")
    if not ids or not isinstance(calls, list):
        return message
    kept = [each for each in calls if not isinstance(each, dict) or each.get("id") not in ids]
    return {**message, "tool_calls": kept}


def has_call(message: Mapping[str, Any]) -> bool:
    """Return whether a chat message has what looks like a call, or a delta a piece of one."""
    return not _is_text(message) and any(True for _ in _calling_parts(message))


def _calling_parts(message: Mapping[str, Any]) -> Iterator[Any]:
    """Yield, call by call, the values in a message that call something, whatever they are."""
    for key, value in message.items():
        if value is None or (type(value) is str and key in _TEXTS):
            continue
        if _normalize_key(key) in _CALLING:
            yield from _list_calls(value, is_legacy=key == "function_call")
        elif key not in _DESCRIBED and seems_call(value):
            yield from value if isinstance(value, list) else [value]


def _is_text(message: Mapping[str, Any]) -> bool:
    """Return whether a message has nothing but texts in known members, and empty members."""
    for key, value in message.items():
        if value is None or (type(value) is str and key in _TEXTS):
            continue
        if value or key == "function_call":
            return False
    return True


def _list_calls(value: Any, *, is_legacy: bool) -> Iterator[Any]:
    """Yield the calls in a member of a message, which should be a list, one by one.

    Anything else that is not empty is one call; the legacy member's value is its function.
    """
    if isinstance(value, list):
        yield from value
    elif is_legacy and isinstance(value, dict):
        yield {"function": value}
    elif value:
        yield value


def _normalize_key(key: str) -> str:
    """Return a member's name in lower case, without dashes and underscores."""
    return key.lower().replace("_", "").replace("-", "")


def seems_call(value: Any) -> bool:
    """Return whether a JSON value contains what looks like a part of a call, at any depth.

    Such as a `type` of calls, a member like `tool_calls`, or a `name` beside `arguments`.
    """
    if not isinstance(value, dict | list):
        return False
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and is_call_type(kind):
                return True
            if isinstance(value.get("name"), str) and any(key in value for key in _GIVEN):
                return True
            for key, each in value.items():
                if each and _normalize_key(key) in _CALLING:
                    return True
                if isinstance(each, dict | list) and key not in _DESCRIBED:
                    waiting.append(each)
        else:
            waiting += (each for each in value if isinstance(each, dict | list))
    return False


def is_stray(event: Mapping[str, Any], *expected: str) -> bool:
    """Return whether an event of a stream has parts of an answer where they are not read.

    `expected` are the members in which an event of its type has them.
    """
    values = {place: event.get(place) for place in _PLACES if place not in expected}
    if isinstance(values.get("message"), str):
        del values["message"]  # what a gateway says; a message with parts is an object
    return any(values.values()) or seems_call(
        {key: each for key, each in event.items() if key not in expected and key != "type"}
    )


def may_hold_part(kind: str, event: Mapping[str, Any]) -> bool:
    """Return whether an event of an unknown type could hold a part of an answer.

    Clients ignore types that they do not know, and gateways send such events on every turn
    (`vertex_event`, `codex.rate_limits`). An event counts only if it is named or built like a call,
    or has a member in which an answer or a piece of one could be.
    """
    has_part = any(event.get(name) for name in _PIECES)
    return has_part or is_call_type(kind) or is_stray(event)


def is_call_type(kind: str) -> bool:
    """Return whether a `type` names a call, such as `web_search_call`.

    The types of results, such as `tool_result`, do not.
    """
    kind = _normalize_key(kind)
    is_result = kind.endswith(("output", "result", "response"))
    return not is_result and ("call" in kind or "tooluse" in kind or kind == "function")


def _read_call(call: Any) -> list[ToolCall]:
    """Return a call for each name that a reader may find in it, and for each of its arguments.

    Without any name, it is one under its type.
    """
    if not isinstance(call, dict):
        return [ToolCall("", _text(call))]
    functions = [call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), dict)]
    with_name = [each for each in call.values() if isinstance(each, dict) and "name" in each]
    owners = [
        *functions,
        *(each for each in with_name if not any(each is function for function in functions)),
    ]
    if "name" in call:
        owners.append(call)
    calls = [tool_call for owner in owners for tool_call in _each_arguments(owner, call)]
    return calls or [ToolCall(name, _text(call)) for name in _names_in(call) or [_type_of(call)]]


def _each_arguments(owner: Mapping[str, Any], call: Mapping[str, Any]) -> list[ToolCall]:
    """Return a call for each member of arguments that the owner of a name has.

    One if it has none.
    """
    name = owner["name"] if isinstance(owner.get("name"), str) else ""
    values = [owner[key] for key in _ARGUMENTS if owner.get(key)]
    if not values and owner is call:
        values = [call]
    return [ToolCall(name, _text(each)) for each in values] or [ToolCall(name, "")]


def _names_in(value: Any) -> list[str]:
    """Return every text called `name` in a JSON value, at any depth."""
    names, waiting = [], [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(name := value.get("name"), str):
                names.append(name)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return names


def _type_of(call: Mapping[str, Any]) -> str:
    """Return a call's type, or an empty text."""
    return call["type"] if isinstance(call.get("type"), str) else ""


def _text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode(errors="replace")


def unread_part(message: Mapping[str, Any]) -> str | None:
    """Return a word for what no calibrator reads in a chat message; None if all is read.

    The words are `audio`, `image`, `video` and `unknown_call`.
    """
    if _is_text(message):
        return None
    for member, reason in _BEYOND_TEXT.items():
        if message.get(member):
            return reason
    content = message.get("content")
    if isinstance(content, list) and (beyond := beyond_text(content)):
        return _BEYOND_TEXT[next(iter(beyond))]
    return None if all(map(_is_readable, _calling_parts(message))) else "unknown_call"


def beyond_text(parts: Iterable[Any]) -> dict[str, Any]:
    """Return the members `audio`, `images` and `video` of a chat message for parts of a content.

    Each has the last such part in a list; members without a part are left out.
    """
    found: dict[str, Any] = {}
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str):
            found |= {key: [part] for key, word in _BEYOND_TEXT.items() if word in kind}
    return found


def _is_readable(call: Any) -> bool:
    """Return whether a call is exactly one function or custom tool, or is empty so far."""
    kinds = [kind for kind in ("function", "custom") if isinstance(call, dict) and call.get(kind)]
    if not kinds:
        return isinstance(call, dict) and not any(call[key] for key in call.keys() - _LABELS)
    return len(kinds) == 1 and isinstance(call[kinds[0]], dict)


def unknown_call(kind: Any, value: Any) -> dict[str, Any]:
    """Return a chat message's call that holds a value of an unknown type as its arguments.

    The call's name is the value's, or else its type `kind`.
    """
    own_name = value.get("name") if isinstance(value, dict) else None
    name = own_name if isinstance(own_name, str) else str(kind)
    return {"type": "unknown", "unknown": {"name": name, "arguments": _text(value)}}
