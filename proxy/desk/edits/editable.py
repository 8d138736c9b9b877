"""Where the texts and calls of a stored reply stand, in each of the formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Json
from proxy.formats.chat import plain_text
from proxy.holds.held import held_format
from proxy.store.reviews.held_replies import HeldReply
from proxy.wire.json_rewrite import REMOVED, Place
from proxy.wire.json_splice import dumps, json_object

Changes = dict[Place, Any]


@dataclass(frozen=True, slots=True)
class EditableText:
    """The text of a choice; `changes` gives what another one changes in the reply."""

    text: str
    changes: Callable[[str], Changes]


@dataclass(frozen=True, slots=True)
class EditableCall:
    """A call of one of the client's tools.

    Its `arguments` are a JSON object, which stands there as an `object` or as a `string`, or with
    `text` whatever a custom tool takes. `arguments_at` and `name_at` are their places.
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


def surface_of(held: HeldReply) -> str | None:
    """The path after `/v1` that was asked; older rows only tell it by their ids."""
    if held.path is not None:
        return held.path
    format = held_format(held.id)
    return format.path if format else None


def editable(held: HeldReply) -> Editable | None:
    """None for what is no answer of a format that is known."""
    completion, find = json_object(held.reply), _FINDERS.get(surface_of(held) or "")
    if completion is None or find is None:
        return None
    try:
        return find(completion)
    except (KeyError, TypeError, AttributeError):  # upstream's own idea of the format
        return None


def _in_chat(completion: Json) -> Editable:
    found = Editable()
    choices = completion["choices"]
    for index, choice in enumerate(choices):
        place: Place = ("choices", index)
        message = choice["message"]
        calls = list(_chat_calls(message, (*place, "message"))) if len(choices) == 1 else []
        found.calls.extend(calls)
        content = plain_text(message.get("content")) or message.get("refusal")
        if content or not (message.get("tool_calls") or message.get("function_call")):
            found.texts.append(EditableText(content or "", _chat_text(choice, place)))
    return found


def _chat_text(choice: Json, place: Place) -> Callable[[str], Changes]:
    def changes(text: str) -> Changes:
        message = choice["message"]
        changed: Changes = {(*place, "message", "content"): text, **_uncut(choice, place)}
        for name, empty in (("refusal", None), ("annotations", [])):
            if message.get(name):
                changed[(*place, "message", name)] = empty
        return changed

    return changes


def _uncut(choice: Json, place: Place) -> Changes:
    """Of a choice: what was about the old text."""
    changed: Changes = {}
    if choice.get("logprobs"):
        changed[(*place, "logprobs")] = None
    if choice.get("finish_reason") in ("length", "content_filter"):
        changed[(*place, "finish_reason")] = "stop"
    return changed


def _chat_calls(message: Json, place: Place) -> list[EditableCall]:
    found = []
    for index, call in enumerate(message.get("tool_calls") or ()):
        at: Place = (*place, "tool_calls", index)
        if call.get("custom") and call.get("function"):
            raise KeyError("a call that could be two")
        if isinstance(custom := call.get("custom"), dict):
            found.append(_call(custom, "text", (*at, "custom"), "input"))
        else:
            found.append(_call(call["function"], "string", (*at, "function"), "arguments"))
    if isinstance(legacy := message.get("function_call"), dict):
        found.append(_call(legacy, "string", (*place, "function_call"), "arguments"))
    return found


def _call(
    call: Json, kind: Literal["string", "object", "text"], place: Place, name: str
) -> EditableCall:
    given = call[name]
    arguments = given if isinstance(given, str) else dumps(given).decode()
    return EditableCall(call["name"], arguments, kind, (*place, name), (*place, "name"))


def _in_completions(completion: Json) -> Editable:
    def text_of(index: int, choice: Json) -> EditableText:
        place: Place = ("choices", index)
        return EditableText(
            choice["text"], lambda text: {(*place, "text"): text, **_uncut(choice, place)}
        )

    return Editable([text_of(index, each) for index, each in enumerate(completion["choices"])])


def _in_responses(completion: Json) -> Editable:
    items = completion["output"]
    calls = [
        _call(item, "string", ("output", index), "arguments")
        if item["type"] == "function_call"
        else _call(item, "text", ("output", index), "input")
        for index, item in enumerate(items)
        if item.get("type") in ("function_call", "custom_tool_call")
    ]
    parts = [
        (("output", index, "content", number), part)
        for index, item in enumerate(items)
        if item.get("type") == "message"
        for number, part in enumerate(item.get("content") or ())
        if part.get("type") in ("output_text", "refusal")
    ]
    if not parts:
        return Editable([], calls)
    told = [part.get("text") or part.get("refusal") or "" for _, part in parts]

    def changes(text: str) -> Changes:
        first, *others = (place for place, _ in parts)
        new = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        changed: Changes = {first: new, **{place: REMOVED for place in others}}
        if "output_text" in completion:
            changed["output_text",] = text
        if completion.get("status") == "incomplete":
            changed |= {("status",): "completed", ("incomplete_details",): None}
            changed["output", first[1], "status"] = "completed"
        return changed

    return Editable([EditableText("\n".join(told), changes)], calls)


def _in_messages(completion: Json) -> Editable:
    blocks = completion["content"]
    calls = [
        _call(block, "object", ("content", index), "input")
        for index, block in enumerate(blocks)
        if block.get("type") == "tool_use"
    ]
    texts = [(index, block) for index, block in enumerate(blocks) if block.get("type") == "text"]
    if calls and not texts:
        return Editable([], calls)

    def changes(text: str) -> Changes:
        new = {"type": "text", "text": text}
        changed: Changes = {("content",): [new]}
        if texts:
            changed = {("content", index): REMOVED for index, _ in texts[1:]}
            changed["content", texts[0][0]] = new
        if completion.get("stop_reason") in ("max_tokens", "refusal"):
            changed["stop_reason",] = "end_turn"
        return changed

    whole = "".join(block["text"] for _, block in texts)
    return Editable([EditableText(whole, changes)], calls)


_FINDERS: Final[dict[str, Callable[[Json], Editable]]] = {
    CHAT.path: _in_chat,
    COMPLETIONS.path: _in_completions,
    RESPONSES.path: _in_responses,
    MESSAGES.path: _in_messages,
}
