"""The messages of an exchange, read from the stored bytes, in whatever format they are.

Nothing here raises. What cannot be read becomes a note, so that a reviewer sees that there is
something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from calibrator import has_asides, is_call, split_asides, tool_call
from proxy.formats import FORMATS, Format, Json, NoAnswerError
from proxy.formats.events.called import seems_call
from proxy.http.wire.json_splice import dumps, json_object

PartKind = Literal["text", "thought", "image", "call", "note"]

_TEXTS = ("text", "input_text", "output_text", "summary_text")
_THOUGHTS = ("thinking", "reasoning", "reasoning_text", "redacted_thinking")
_IMAGES = ("image_url", "input_image", "image")
_KINDS = ("function", "custom")  # members of calls; a call with both could be read as either
MOST_SHOWN = 2_000  # characters of a value shown as JSON


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message: `text` is its text, an image's address or the arguments of a call.

    `name` is the tool of a call.
    """

    kind: PartKind
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message; `role` is `system`, `user`, `assistant`, `tool` or what the client wrote."""

    role: str
    parts: tuple[Part, ...]

    @property
    def calls(self) -> tuple[Part, ...]:
        """The parts that are calls of tools."""
        return tuple(part for part in self.parts if part.kind == "call")


def format_of(path: str | None) -> Format | None:
    """Return the format of a surface's path; None for an unknown path."""
    return next((format for format in FORMATS if format.path == path), None)


def read_request(request: bytes | None, path: str | None, question: str) -> list[Turn]:
    """Return the conversation in a request's body as messages, instructions first.

    `path` is the surface's; with an unknown one every format is tried. Without a conversation,
    `question` is returned as a message of the user.
    """
    payload = json_object(request) if request is not None else None
    if payload is None:
        return [Turn("user", (Part("text", question),))]
    known = format_of(path)
    conversations = [each.conversation(payload) for each in ([known] if known else FORMATS)]
    instructions, messages = next(
        (each for each in conversations if each[1] is not None), conversations[0]
    )
    turns = [Turn("system", tuple(_parts(instructions)))] if instructions else []
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    for item in messages if isinstance(messages, list) else []:
        turns += _turns(item)
    return turns or [Turn("user", (Part("text", question),))]


def read_reply(reply: bytes, path: str | None) -> list[Turn]:
    """Return the choices of a completion, each as a message; other bytes as one text.

    With an unknown `path` every format is tried.
    """
    completion = json_object(reply)
    format = format_of(path)
    formats = [format] if format is not None else list(FORMATS)
    for each in formats if completion is not None else ():
        try:
            choices = each.choices(completion or {})
        except NoAnswerError:
            continue
        if choices:
            return [turn for choice in choices for turn in _turns(choice.message)]
    return [Turn("assistant", (Part("text", reply.decode("utf-8", "replace")),))]


def tools_of(request: bytes | None) -> list[str]:
    """Return the names of the tools that a request offers, or their types if they have no name."""
    payload = (json_object(request) if request is not None else None) or {}
    tools = payload.get("tools")
    names = []
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            inner = tool.get("function") or tool.get("custom")
            name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
            names.append(_text(name or tool.get("type")))
    return names


def _turns(item: Any) -> Iterator[Turn]:
    """Yield the messages in an item of a conversation: one, or several with results of tools.

    Each result is a message of `tool`, and what a coding agent adds one of `system`.
    """
    if isinstance(item, str):
        yield Turn("user", (Part("text", item),))
        return
    if not isinstance(item, dict):
        yield Turn("user", (Part("note", f"not a message: {_text(item)[:200]}"),))
        return
    kind = item.get("type")
    if "role" not in item and isinstance(kind, str) and kind != "message":
        yield _item(item, kind)
        return
    results: list[Any] = []
    rest: list[Any] = []
    content = item.get("content")
    for block in content if isinstance(content, list) else [content]:
        is_result = isinstance(block, dict) and block.get("type") == "tool_result"
        (results if is_result else rest).append(block)
    for result in results:
        yield Turn("tool", tuple(_parts(result.get("content"))))
    parts = [*_part_of_member(item, ("reasoning_content", "reasoning"), "thought"), *_parts(rest)]
    parts += [*_part_of_member(item, ("refusal",), "text"), *_calls(item)]
    role = _text(item.get("role") or "assistant")
    if role == "user":
        parts, asides = _own_words(parts)
        if asides:
            yield Turn("system", tuple(Part("text", each) for each in asides))
            if not parts:
                return
    if parts or not results:
        yield Turn(role, tuple(parts))


def _own_words(parts: list[Part]) -> tuple[list[Part], list[str]]:
    """Return (the parts that the user says, the texts that a coding agent adds to them)."""
    own: list[Part] = []
    asides: list[str] = []
    for part in parts:
        if part.kind != "text" or not has_asides(part.text):
            own.append(part)
            continue
        own_text, blocks = split_asides(part.text)
        asides += blocks
        if own_text:
            own.append(Part("text", own_text))
    return own, asides


def _item(item: Json, kind: str) -> Turn:
    """Return the message for an item of the responses API that is no message itself."""
    if is_call(item):
        return Turn("assistant", (_call(tool_call(item)),))
    if kind == "reasoning":
        summary = [*_parts(item.get("summary")), *_parts(item.get("content"))]
        return Turn("assistant", tuple(Part("thought", part.text) for part in summary))
    if kind.endswith("_output"):
        return Turn("tool", tuple(_parts(item.get("output"))))
    more = f": {_text(item)[:MOST_SHOWN]}" if item.keys() - {"type", "id"} else ""
    return Turn("user", (Part("note", f"an item of type {kind}{more}"),))


def _part_of_member(item: Json, keys: tuple[str, ...], kind: PartKind) -> list[Part]:
    """Return the first text among these members as a part of this kind; none without one."""
    value = next((item[key] for key in keys if item.get(key)), None)
    return [Part(kind, value)] if isinstance(value, str) else []


def _calls(item: Json) -> list[Part]:
    """Return the calls of a message as parts, also one that is no list, and `function_call`."""
    tool_calls = item.get("tool_calls")
    calls = [_call(call) for call in tool_calls] if isinstance(tool_calls, list) else []
    if tool_calls and not calls:
        calls = [_call(tool_calls)]
    legacy = item.get("function_call")
    return [*calls, _call({"function": legacy})] if isinstance(legacy, dict) else calls


def _call(call: Any) -> Part:
    """Return a call as a part: its name and arguments, or a note if it cannot be read."""
    functions = [call[kind] for kind in _KINDS if call.get(kind)] if isinstance(call, dict) else []
    function = functions[0] if len(functions) == 1 else None
    if not isinstance(function, dict):
        return Part("note", f"a call that cannot be read: {_text(call)[:MOST_SHOWN]}")
    arguments = function.get("arguments", function.get("input", ""))
    return Part("call", _text(arguments), _text(function.get("name")))


def _parts(content: Any) -> list[Part]:
    """Return the parts of a message's content: a text, blocks of any format, or anything else."""
    if content is None:
        return []
    items = content if isinstance(content, list) else [content]
    return [part for block in items if (part := _part(block)) is not None]


def _part(block: Any) -> Part | None:
    """Return a block of content as a part; None for an empty one.

    What is not shown, or cannot be read, becomes a note.
    """
    if isinstance(block, str):
        return Part("text", block) if block else None
    if not isinstance(block, dict):
        return None if block is None else Part("text", _text(block))
    kind = _text(block.get("type", "text"))
    if kind in _TEXTS:
        return Part("text", _text(block.get("text")))
    if kind == "refusal":
        return Part("text", _text(block.get("refusal")))
    if kind in _THOUGHTS:
        thought = block.get("thinking") or block.get("text")
        return Part("thought", _text(thought or "(not shown by the model)"))
    if kind in _IMAGES:
        return Part("image", _address(block))
    if kind.endswith("tool_use"):
        return Part("call", _text(block.get("input")), _text(block.get("name")))
    if seems_call(block):
        return Part("note", f"a call that cannot be read: {_text(block)[:MOST_SHOWN]}")
    return Part("note", f"a part of type {kind}, which is not shown")


def _address(block: Json) -> str:
    """Return an image's URL, a data URL of its bytes, or the id of its file."""
    source = block.get("source")
    if isinstance(source, dict):
        if source.get("type") == "base64":
            return f"data:{_text(source.get('media_type'))};base64,{_text(source.get('data'))}"
        return _text(source.get("url") or source.get("file_id"))
    url = block.get("image_url")
    return _text(url.get("url") if isinstance(url, dict) else url or block.get("file_id"))


def _text(value: Any) -> str:
    """Return a string unchanged, None as an empty string, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode("utf-8", "replace")
