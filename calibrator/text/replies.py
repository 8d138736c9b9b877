"""Turn what an API returned into assistant messages, one for each choice.

It reads chat completions, text completions and responses (`/v1/responses`), each as a dict, as an
object of the `openai` package or as a dict that holds such objects; also a single message,
including Anthropic's. The items of a response are messages, tool calls and reasoning, and the
blocks of Anthropic's message are similar: calls become `tool_calls`, as in chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calibrator.scorer import OtherReply
from calibrator.text.transcript import ANSWER_KEYS, LISTED, Question, message_text

Json = dict[str, Any]

_NO_ARGUMENTS = {  # keys of a call that are not its arguments
    *("id", "call_id", "type", "name", "status", "caller", "created_by", "execution"),
    *("server_label", "output", "outputs", "result", "results", "error"),
}
_MOST_TOOLS = 200  # of one list of an MCP server
_MOST_LISTED = 400  # of all lists
_UNFINISHED = ("queued", "in_progress", "failed", "cancelled")  # responses without an answer


def response_message(response: Any) -> Mapping[str, Any]:
    """Return the assistant message of the first choice of a row's `response`, an API's reply.

    Raises ValueError if it is no mapping or `openai` object, or has no message.
    """
    reply = to_mapping(response)
    if reply is None:
        raise ValueError(f"'response' must be a string or an object, not {type(response).__name__}")
    return reply_messages(reply)[0]


def other_reply(question: Question, reply: Any) -> OtherReply:
    """Read another model's reply to the same question.

    `reply` is a text, an API's response, or an object with `response` and perhaps `model`. The
    result has the reply's text, the model's name (None if unknown), and its tool use if tools were
    called or offered. Raises ValueError for anything else, and NotScorableError for content that is
    not read.
    """
    if isinstance(reply, str):
        return OtherReply(reply)
    value = to_mapping(reply)
    if value is None:
        raise ValueError(f"another reply must be text or an object, not {type(reply).__name__}")
    model = value.get("model")
    response = value.get("response", value)
    if isinstance(response, str):
        message: Mapping[str, Any] = {"role": "assistant", "content": response}
    else:
        message = response_message(response)
    name = model if isinstance(model, str) and model else None
    return OtherReply(message_text(message), name, question.tool_use(message))


def to_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping unchanged, an object with `model_dump()` as a dict, and None for others.

    Objects of the `openai` package have `model_dump`; None also if it gives no mapping.
    """
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, Mapping) else None


def reply_messages(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the assistant's messages in an API's reply, one for each choice, empty ones too.

    `reply` is a chat completion, a text completion, a response (`output`), Anthropic's message or a
    plain message; the last three give a list of one. Raises ValueError for no choices, for a
    response that is not finished, and for a message with neither content nor calls.
    """
    if "choices" in reply:
        choices = reply["choices"]
        if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
            raise ValueError("the response has no choices")
        return [_message_of(choice) for choice in choices]
    if isinstance(reply.get("output"), list) and reply.get("object", "response") == "response":
        if reply.get("status") in _UNFINISHED:
            raise ValueError(f"the response is {reply['status']}: there is no answer in it")
        return [answer_message(to_mapping(item) for item in reply["output"])]
    blocks = reply.get("content")
    if reply.get("type") == "message" and isinstance(blocks, list):  # Anthropic's
        return [blocks_message([to_mapping(block) for block in blocks])]
    return [_check_content(reply)]


def _message_of(choice: Any) -> Mapping[str, Any]:
    """Return the message of a choice, or a text completion's `text` as `{"content": text}`.

    Raises ValueError if the choice is no object, or has no message with content or calls.
    """
    fields = to_mapping(choice)
    if fields is None:
        raise ValueError(f"a choice must be an object, not {type(choice).__name__}")
    if fields.get("message") is None:  # a choice of a text completion, or none at all
        return (
            {"content": fields["text"]}
            if isinstance(fields.get("text"), str)
            else _check_content(fields)
        )
    message = to_mapping(fields["message"])
    if message is None:
        kind = type(fields["message"]).__name__
        raise ValueError(f"a choice's message must be an object, not {kind}")
    return _check_content(message)


def _check_content(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message unchanged if it has a key for content or calls, even an empty one.

    Raises ValueError for a message without any of `ANSWER_KEYS`, such as `content` and
    `tool_calls`.
    """
    if any(key in message for key in ANSWER_KEYS):
        return message
    found = ", ".join(repr(key) for key in list(message)[:6])
    only = f", only {found}" if found else ""
    raise ValueError(f"the response has neither content nor tool calls{only}")


def is_call(item: Any) -> bool:
    """Return whether an output item of `/v1/responses` calls a tool.

    It may be the client's or upstream's own. Its `type` ends in `_call`, as `function_call` does,
    or is `mcp_approval_request` or `program`.
    """
    kind = item.get("type") if isinstance(item, Mapping) else None
    return isinstance(kind, str) and (
        kind.endswith("_call") or kind in ("mcp_approval_request", "program")
    )


def tool_call(item: Mapping[str, Any]) -> Json:
    """Convert a call item of `/v1/responses` to a member of `tool_calls` as in chat.

    A call without a name, such as a web search, is named by its `type`. Where `arguments` are no
    text, they are encoded as JSON; where they are missing, the item's other fields are used
    instead.
    """
    kind = str(item["type"])
    name = item.get("name") if isinstance(item.get("name"), str) else None
    id = item.get("call_id") or item.get("id")
    if kind == "custom_tool_call":
        custom = {"name": name or kind, "input": str(item.get("input") or "")}
        return {"id": id, "type": "custom", "custom": custom}
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        fields = {key: value for key, value in item.items() if key not in _NO_ARGUMENTS}
        arguments = _json(fields if arguments is None else arguments)
    function = {"name": name or kind, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def answer_message(items: Iterable[Any]) -> Json:
    """Combine the output items of a `/v1/responses` reply into one assistant message as in chat.

    `content` joins the texts by line ends (None if there are none); `reasoning_content`, `refusal`
    and `tool_calls` are there if anything of the kind is. Text that is marked as commentary
    (`phase`) is the content only where there is no other text. Beside calls, the tools that MCP
    servers list in the same response are the member `LISTED`. Items that are no mappings are
    skipped.
    """
    items = list(items)
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    commentary: list[str] = []
    for item in items:
        if not isinstance(item, Mapping):
            continue
        if is_call(item):
            calls.append(tool_call(item))
        elif item.get("type") == "reasoning":
            thoughts += _texts(item.get("summary"), "text") + _texts(item.get("content"), "text")
        elif item.get("type") == "message":
            destination = commentary if item.get("phase") == "commentary" else texts
            destination += _texts(item.get("content"), "text")
            refusals += _texts(item.get("content"), "refusal")
    texts = texts or commentary
    message: Json = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if refusals:
        message["refusal"] = "\n".join(refusals)
    if not calls:
        return message
    listed = listed_tools(items)
    return {**message, "tool_calls": calls} | ({LISTED: listed} if listed else {})


def listed_tools(items: Iterable[Any]) -> list[Json]:
    """Return the tools that MCP servers listed in output items of type `mcp_list_tools`.

    Each is `{"type": "mcp_tool", "name": .., "annotations": ..}`, from which the risk of its calls
    is read; at most 200 of one list and 400 in total.
    """
    found: list[Json] = []
    for item in items:
        is_list = isinstance(item, Mapping) and item.get("type") == "mcp_list_tools"
        tools = item.get("tools") if is_list else None
        for tool in tools[:_MOST_TOOLS] if isinstance(tools, list) else []:
            if isinstance(tool, Mapping):
                read = {key: tool.get(key) for key in ("name", "annotations")}
                found.append({"type": "mcp_tool", **read})
    return found[:_MOST_LISTED]


def is_tool_use(block: Any) -> bool:
    """Return whether a block of Anthropic's message calls a tool: its `type` ends in `tool_use`."""
    return isinstance(block, Mapping) and str(block.get("type")).endswith("tool_use")


def blocks_message(blocks: Sequence[Any], arguments: Sequence[str | None] = ()) -> Json:
    """Convert the content blocks of Anthropic's message to an assistant message as in chat.

    `content` joins the texts (None if there are none), `reasoning_content` the thinking, and calls
    become `tool_calls`. `arguments` holds, in the order of the blocks, the JSON of calls' arguments
    as streamed; None or a missing one means the block's `input`.
    """
    listed = [block for block in blocks if isinstance(block, Mapping)]
    texts = [b["text"] for b in listed if isinstance(b.get("text"), str)]
    thoughts = [b["thinking"] for b in listed if isinstance(b.get("thinking"), str)]
    message: Json = {"role": "assistant", "content": "".join(texts) if texts else None}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    arguments_of_blocks = [*arguments, *(None for _ in blocks[len(arguments) :])]
    calls = [
        _tool_use(block, streamed)
        for block, streamed in zip(blocks, arguments_of_blocks, strict=True)
        if is_tool_use(block)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _tool_use(block: Mapping[str, Any], streamed: str | None) -> Json:
    """Convert a block of Anthropic's that calls a tool to a member of `tool_calls` as in chat.

    `streamed` is the JSON of its arguments; None or "" means the block's `input`.
    """
    arguments = streamed or _json(block.get("input", {}))
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _texts(parts: Any, key: str) -> list[str]:
    """Return the non-empty strings under `key` in a list of content parts; empty for no list."""
    listed = parts if isinstance(parts, list) else []
    found = (part.get(key) for part in listed if isinstance(part, dict))
    return [text for text in found if isinstance(text, str) and text]


def _json(value: Any) -> str:
    """Encode a value as JSON without spaces; half surrogate pairs are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()
