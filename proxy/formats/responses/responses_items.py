"""The items of `/v1/responses`, in conversations and answers, as chat messages.

Items are messages, calls of tools, results of tools, and reasoning. A policy and the calibrator see
them in the form of chat completions: calls in `tool_calls`, results in messages of `tool`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrator import AFTER_CHARACTERS, HISTORY_CHARACTERS, NotScorableError, is_call, tool_call
from proxy.formats.base.format import Json
from proxy.http.wire.json_splice import dumps

_LEFT_OUT = {  # types that say nothing about the question
    *("reasoning", "mcp_list_tools", "additional_tools"),
    *("tool_search_output", "program_output", "compaction_trigger"),
}
MOST_URL = 2_000  # characters of an image's URL that is kept
_TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


_MADE_UPSTREAM = ("mcp_call", "web_search_call", "file_search_call", "code_interpreter_call")


def calls_made(completion: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the calls in a response that upstream has made itself, as web searches.

    Completions of other formats have none.
    """
    items = completion.get("output")
    calls = [i for i in items if item_type(i) in _MADE_UPSTREAM] if isinstance(items, list) else []
    return frozenset(str(item.get("call_id") or item.get("id")) for item in calls)


def has_server_calls(completion: Mapping[str, Any]) -> bool:
    """Return whether a response has a call of a remote MCP server's tool.

    The tool's name alone does not say which server it is.
    """
    items = completion.get("output")
    return isinstance(items, list) and any(
        is_call(item) and item.get("server_label") is not None for item in items
    )


def with_text(item: Any, added: str) -> Json | None:
    """Return a message with `added` after its last text; None for an item without text."""
    parts = item.get("content") if isinstance(item, dict) else None
    if item_type(item) != "message" or not isinstance(parts, list):
        return None
    for at in reversed(range(len(parts))):
        text = parts[at].get("text") if item_type(parts[at]) == "output_text" else None
        if isinstance(text, str) and text:
            part = {**parts[at], "text": text + added}
            return {**item, "content": [*parts[:at], part, *parts[at + 1 :]]}
    return None


def logprobs_of(items: Sequence[Any]) -> Json | None:
    """Return the log-probabilities of an answer's text in the form of chat completions.

    That is an object with `content`, or None if there are none.
    """
    logprobs: list[Any] = []
    for item in items:
        if item_type(item) == "message" and isinstance(parts := item.get("content"), list):
            for part in parts:
                if item_type(part) == "output_text" and isinstance(part.get("logprobs"), list):
                    logprobs += part["logprobs"]
    return {"content": logprobs} if logprobs else None


def item_type(value: Any) -> Any:
    """Return a value's `type`, or None for a value that is no object."""
    return value.get("type") if isinstance(value, dict) else None


def as_items(value: Any) -> list[Any]:
    """Return a request's `input` as a list of items; a text becomes a message of the user.

    Raises ValueError for any other value.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise ValueError(f"'input' must be a string or a list, not {type(value).__name__}")
    return value


def chat_messages(items: Sequence[Any]) -> list[Json]:
    """Return the items of an input as chat messages.

    Raises NotScorableError for items whose text is elsewhere, and ValueError for other values.
    """
    messages: list[Json] = []
    approval_ids = [i.get("approval_request_id") for i in items if item_type(i) == "mcp_call"]
    for item in items:
        if not isinstance(item, Mapping):
            raise ValueError(f"an input item must be an object, not {type(item).__name__}")
        if item.get("type") == "mcp_approval_request" and item.get("id") in approval_ids:
            continue  # the call that was made follows it
        for message in _messages_of(item):
            _append(messages, message)
    return messages


def _append(messages: list[Json], message: Json) -> None:
    """Append a message to the list; calls of the same turn join the message before.

    So it would be in chat. The messages are made here, so their lists of calls may be changed.
    """
    last = messages[-1] if messages else {}
    if "tool_calls" in message and last.get("role") == "assistant":
        last.setdefault("tool_calls", []).extend(message["tool_calls"])
    else:
        messages.append(message)


def _messages_of(item: Mapping[str, Any]) -> list[Json]:
    """Return an item as chat messages: none, one, or a call and its result.

    Raises NotScorableError for an item whose text is not there.
    """
    kind = str(item.get("type") or ("message" if "role" in item else "item_reference"))
    if kind == "message":
        return [{"role": item.get("role", "user"), "content": item.get("content")}]
    if kind in _LEFT_OUT:
        return []
    if kind == "mcp_approval_response":
        return [] if item.get("approve") is not False else [_result(_denial(item))]
    if kind == "computer_call_output":
        return [{"role": "tool", "content": [_screenshot(item.get("output"))]}]
    if is_call(item):
        call: Json = {"role": "assistant", "content": None, "tool_calls": [tool_call(item)]}
        if kind == "image_generation_call":
            return [call, {"role": "tool", "content": [_generated_image(item)]}]
        output = item.get("output")  # of a tool that runs upstream
        return [call, _result(output)] if output else [call]
    if str(kind).endswith("_output"):
        return [_result(item.get("output"))]
    known = ("item_reference", "compaction")
    raise NotScorableError(
        kind if kind in known else "unknown_item", f"the text of an item of type {kind} is not here"
    )


def _result(output: Any) -> Json:
    """Return the message with a tool's result: its text or parts, any other value as JSON."""
    is_parts = isinstance(output, list) and all(isinstance(p, dict) and "type" in p for p in output)
    is_text = isinstance(output, str) or output is None
    content = output if is_text or is_parts else dumps(output).decode()
    return {"role": "tool", "content": content}


def _denial(answer: Mapping[str, Any]) -> str:
    """Return the result of a call that the client did not approve."""
    reason = answer.get("reason")
    return f"not approved: {reason}" if isinstance(reason, str) and reason else "not approved"


def _screenshot(output: Any) -> Json:
    """Return a computer call's output as an `input_image` part, with all of its own keys.

    An output that is no object gives a part without an image.
    """
    return {**(output if isinstance(output, Mapping) else {}), "type": "input_image"}


def _generated_image(call: Mapping[str, Any]) -> Json:
    """Return the image that a call has made, as PNG data, whatever its type is."""
    image = call.get("result")
    return {"type": "input_image"} | (
        {"source": {"type": "base64", "media_type": "image/png", "data": image}} if image else {}
    )


def chat_tools(tools: Any) -> list[Json]:
    """Return the tools that the client describes itself, in the form of chat completions.

    Tools in a namespace are included, and tools that run upstream left out.
    """
    own_tools: list[Json] = []
    for tool in tools if isinstance(tools, list) else []:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in ("function", "custom"):
            own_tools.append({"type": kind, kind: tool})
        elif kind == "namespace":
            own_tools += chat_tools(tool.get("tools"))
    return own_tools


def tools_in_items(items: Sequence[Any]) -> list[Json]:
    """Return the tools that items of the input offer, in the form of chat, as Codex sends them."""
    tools: list[Json] = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            tools += chat_tools(item.get("tools"))
    return tools


def recent(items: Sequence[Any]) -> list[Any]:
    """Return the items that a later question needs: the last turn and some text around it.

    Files are left out. Parts that are not text keep only their type, and an image its URL if it has
    one, so that a question with them keeps its form.
    """
    last = max((i for i, item in enumerate(items) if _is_users(item)), default=len(items) - 1)
    before, after = items[:last], items[last + 1 :]
    question = [_light(item) for item in items[last : last + 1]]
    return [*latest(before, HISTORY_CHARACTERS), *question, *latest(after)]


def _is_users(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def latest(items: Sequence[Any], characters: int = AFTER_CHARACTERS) -> list[Any]:
    """Return the last items that the calibrator reads to see this many characters.

    They are without files, as in `recent`, and stay in order.
    """
    kept: list[Any] = []
    size = 0
    for item in reversed(items):
        if size > characters:
            break
        kept.append(_light(item))
        size += _length(kept[-1])
    return kept[::-1]


def _length(item: Any) -> int:
    """Return the characters of an item's texts, the least that it has in a question's history."""
    if not isinstance(item, dict):
        return 0
    values = [item.get(key) for key in ("content", "output", "arguments", "input")]
    parts = [p for value in values if isinstance(value, list) for p in value if isinstance(p, dict)]
    texts = [*values, *(part.get("text") for part in parts)]
    return sum(len(text) for text in texts if isinstance(text, str))


def _light(item: Any) -> Any:
    """Return a copy of an item without `encrypted_content` and `result`, its parts made light."""
    if not isinstance(item, dict):
        return item
    kept = {k: v for k, v in item.items() if k not in ("encrypted_content", "result")}
    for key in ("content", "output"):
        if isinstance(kept.get(key), list):
            kept[key] = [_light_part(part) for part in kept[key]]
        elif isinstance(kept.get(key), dict):
            kept[key] = _light_part(kept[key])
    return kept


def _light_part(part: Any) -> Any:
    """Return a part without what a question does not need; unchanged if it is no part.

    A text keeps its text, an image its URL if it has a short one, and any other part its type.
    """
    if not isinstance(part, dict) or "type" not in part:
        return part
    keys = ("type", "text", "refusal") if part["type"] in _TEXTS else ("type",)
    url = part.get("image_url")
    if isinstance(url, str) and len(url) <= MOST_URL and not url.startswith("data:"):
        keys = (*keys, "image_url")
    return {key: part[key] for key in keys if key in part}
