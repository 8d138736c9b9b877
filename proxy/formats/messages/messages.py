"""`/v1/messages`: Anthropic's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from calibrator import (
    NotScorableError,
    Question,
    blocks_message,
    is_tool_use,
    messages_without_asides,
    own_instructions,
    read_question,
)
from proxy.errors import ProxyError
from proxy.formats.base.edits import (
    Changes,
    Editable,
    EditableText,
    WantedJson,
    editable_call,
    wanted_of,
)
from proxy.formats.base.format import (
    MEMBER,
    MOST_TOKENS,
    NOTICE_GAP,
    Assembler,
    Choice,
    Ending,
    Json,
    Marks,
    last_users_text,
    turns_in,
)
from proxy.formats.base.openai import add_member
from proxy.formats.messages.messages_stream import (
    REFUSAL,
    MessagesAssembler,
    finish_reason,
    named_event,
    opening_events,
    remaining_events,
    with_unknown,
)
from proxy.http.wire.json_rewrite import REMOVED
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.sse import Event

STOP_REASONS: dict[Ending, str] = {"stop": "end_turn", "content_filter": REFUSAL}
HISTORY_LOOKED_AT = 1_600  # characters before the question; the calibrator reads fewer
AFTER_LOOKED_AT = 20_100  # characters after the question, likewise
CONVERSATION_LOOKED_AT = 100_000  # characters, if the answer calls a tool
_FORCING = ("any", "tool")  # kinds of tool_choice
_ERROR_TYPES = {  # Anthropic's words, or ours where it has none
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesFormat:
    """Anthropic's Messages API, as its own clients and coding agents speak it."""

    name = "messages"
    path = "/messages"
    held_prefix = "msg_held_"
    asks_logprobs: Mapping[str, Any] = MappingProxyType({})  # the API has none
    fetch_path = path  # our own convention: the API has no such path
    marks = Marks(
        (
            b'"type"',
            rb'\s*:\s*"(?:message_delta|message_stop|error|[a-z_]*tool_use|[^"\\]*\\)',
        ),
        b'"error"',
    )

    def question(self, payload: Json) -> Question:
        """Return the question in the messages, as chat messages; raises NotScorableError."""
        try:
            messages = _chat_messages(_own_words(payload))
            question = read_question(messages, _chat_tools(payload.get("tools")))
            question.conversation = partial(_conversation, payload)
            return question
        except ValueError as error:  # upstream accepted what we cannot read
            raise NotScorableError("messages", str(error)) from error

    def last_question(self, payload: Json) -> str:
        return last_users_text(payload.get("messages"))

    def user_turns(self, payload: Json) -> list[Any]:
        return turns_in(payload.get("messages"))

    def count(self, payload: Json) -> int:
        return 1

    def without_effects(self, payload: Json) -> Json | None:
        """Return no changes; None where Anthropic calls other servers' tools or has a container."""
        return None if payload.get("mcp_servers") or payload.get("container") else {}

    def wants_schema(self, payload: Json) -> bool:
        """Return whether a request wants JSON, or forces a call of a tool."""
        config, choice = payload.get("output_config"), payload.get("tool_choice")
        output_format = config.get("format") if isinstance(config, dict) else None
        is_forced = isinstance(choice, dict) and choice.get("type") in _FORCING
        return is_forced or bool(output_format or payload.get("output_format"))

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        return payload.get("system"), payload.get("messages")

    def wanted_json(self, payload: Json) -> WantedJson | None:
        """Return the JSON that the answer must be, by either name of the parameter, or None."""
        config = payload.get("output_config")
        output_format = config.get("format") if isinstance(config, dict) else None
        return wanted_of(output_format or payload.get("output_format"))

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        """Return a request with the instructions as `system` and the text as the user's message."""
        return {
            "model": model,
            "max_tokens": MOST_TOKENS,
            "system": instructions,
            "messages": [{"role": "user", "content": text}],
        }

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return `messages` with the reply and its problems at the end, to be revised.

        The problems are the results of its calls, or a message of the user. None for an empty
        reply.
        """
        messages, blocks = payload.get("messages"), completion.get("content")
        if not isinstance(messages, list) or not isinstance(blocks, list) or not blocks:
            return None
        calls = [
            each for each in blocks if isinstance(each, dict) and each.get("type") == "tool_use"
        ]
        failed = {"type": "tool_result", "is_error": True, "content": problems}
        results = [{**failed, "tool_use_id": call.get("id")} for call in calls]
        answer = {"role": "user", "content": results or problems}
        return {"messages": [*messages, {"role": "assistant", "content": blocks}, answer]}

    def choices(self, completion: Json) -> list[Choice]:
        """Return the one choice of a message, as a chat message; [] for any other value."""
        blocks, reason = completion.get("content"), completion.get("stop_reason")
        if completion.get("type") != "message" or not isinstance(blocks, list):
            return []
        ending, message = finish_reason(reason), with_unknown(blocks_message(blocks), blocks)
        return [Choice(0, message, ending, is_refusal=reason == REFUSAL)]

    def editable(self, completion: Json) -> Editable:
        """Return the blocks of text as one text, and the calls of the client's tools.

        There is no text to edit in a reply of calls alone. Raises KeyError, TypeError or
        AttributeError for another form.
        """
        blocks = completion["content"]
        calls = [
            editable_call(block, "object", ("content", index), "input")
            for index, block in enumerate(blocks)
            if block.get("type") == "tool_use"
        ]
        texts = [
            (index, block) for index, block in enumerate(blocks) if block.get("type") == "text"
        ]
        if calls and not texts:
            return Editable([], calls)

        def changes(text: str) -> Changes:
            """Return what a new text changes, by place: one block for all, and a cut ending."""
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

    def assembler(self) -> Assembler:
        return MessagesAssembler()

    def annotate_event(self, event: Event, member: Mapping[str, Any]) -> bytes:
        return add_member(event, member)

    def replace_text(self, completion: Json, text: str, ending: Ending) -> Json:
        """Return the message with one block of text, and without details of its old end."""
        left_out = ("stop_details", "container", MEMBER)
        return {key: value for key, value in completion.items() if key not in left_out} | {
            "content": [{"type": "text", "text": text}],
            "stop_reason": STOP_REASONS[ending],
            "stop_sequence": None,
        }

    def add_notice(self, completion: Json, notice: str) -> Json | None:
        """Return the message with the notice as a block of its own, or None without text.

        In that way citations of the text stay right.
        """
        if not _text_of(completion["content"]):
            return None
        block = {"type": "text", "text": NOTICE_GAP + notice}
        return {**completion, "content": [*completion["content"], block]}

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """Return a message that says `text` and ends by a refusal."""
        empty = {"id": id, "type": "message", "role": "assistant", "model": model}
        usage = {"input_tokens": 0, "output_tokens": 0}
        return self.replace_text(empty, text, "content_filter") | {"usage": usage}

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        """Return message_start, the blocks, the message_delta that finishes, and message_stop."""
        return [*opening_events(completion), *remaining_events(completion, 0)]

    def error_body(self, error: ProxyError) -> bytes:
        """Return an error in Anthropic's envelope; its clients look for a code in `error_code`."""
        fields = {
            "type": error_type(error.status, error.type),
            "message": error.message,
            "code": error.machine_code,
            "param": error.param,
            "details": {"error_code": error.machine_code},
            **error.details,
        }
        return dumps({"type": "error", "error": fields})

    def error_event(self, error: ProxyError) -> bytes:
        return named_event("error", self.error_body(error))


def error_type(status: int, otherwise: str) -> str:
    """Return Anthropic's word for an error with this status, such as `rate_limit_error`.

    For an unknown status it is `api_error` from 500 on, else `otherwise`.
    """
    return _ERROR_TYPES.get(status, "api_error" if status >= 500 else otherwise)


# The question, in the form of chat messages


def _chat_messages(messages: Any) -> list[Any]:
    """Return the turns that belong to the question as chat messages.

    Raises ValueError if `messages` is no list. Older turns are not converted, so that a question
    does not cost more with every turn before it.
    """
    if not isinstance(messages, list):
        raise ValueError("'messages' must be a list with at least one message")
    question_at = next((i for i in reversed(range(len(messages))) if _asks(messages[i])), 0)
    return [
        *_latest(messages[:question_at], HISTORY_LOOKED_AT),
        *(turn for message in messages[question_at : question_at + 1] for turn in _turns(message)),
        *_latest(messages[question_at + 1 :], AFTER_LOOKED_AT),
    ]


def _own_words(payload: Json) -> Any:
    """Return the messages without what a coding agent adds to the user's own words.

    What is no list is returned unchanged.
    """
    messages, instructions = payload.get("messages"), payload.get("system")
    if not isinstance(messages, list):
        return messages
    is_agents = bool(instructions) and own_instructions(instructions) != instructions
    return messages_without_asides(messages, is_agents=is_agents)


def _conversation(payload: Json) -> list[Any]:
    """Return the instructions and the last turns as chat messages, for an answer that calls a tool.

    They have `CONVERSATION_LOOKED_AT` characters or a little more.
    """
    turns = _latest(_own_words(payload), CONVERSATION_LOOKED_AT)
    instructions = _text_of(own_instructions(payload.get("system")))
    return [{"role": "system", "content": instructions}, *turns] if instructions else turns


def _asks(message: Any) -> bool:
    """Return whether this is a turn of the user's with more than results of tools.

    What is no object counts as one.
    """
    if not isinstance(message, dict):
        return True
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message.get("role") == "user"
    return any(_kind(block) != "tool_result" for block in content)


def _latest(messages: list[Any], characters: int) -> list[Any]:
    """Return as many of the last messages as are needed for this many characters.

    They are converted to chat messages, and stay in order.
    """
    turns: list[Any] = []
    size = 0
    for message in reversed(messages):
        if size > characters:
            break
        turns += reversed(latest := list(_turns(message)))
        size += sum(_size(turn) for turn in latest)
    return turns[::-1]


def _size(turn: Any) -> int:
    """Return the characters of a turn's text."""
    content = turn.get("content") if isinstance(turn, dict) else None
    return len(_text_of(content))


def _turns(message: Any) -> Iterator[Any]:
    """Yield a message as chat messages: one of `tool` for each result, then one with the rest.

    A message whose content is no list of blocks is yielded unchanged.
    """
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        yield message
        return
    rest = []
    for block in content:
        if _kind(block) == "tool_result":
            yield {"role": "tool", "content": _parts(block.get("content"))}
        else:
            rest.append(block)
    if rest or not content:
        turn = {"role": message.get("role"), "content": _parts(rest)}
        is_calling = any(is_tool_use(block) for block in rest)
        yield turn | ({"tool_calls": blocks_message(rest)["tool_calls"]} if is_calling else {})


def _kind(block: Any) -> Any:
    """Return the `type` of a block, or None for any other value."""
    return block.get("type") if isinstance(block, dict) else None


def _parts(content: Any) -> Any:
    """Return a list of blocks as parts of a chat message; anything else unchanged.

    Files become parts that cannot be scored; thoughts and calls are left out.
    """
    if not isinstance(content, list):
        return content
    parts = []
    for block in content:
        parts += [block] if _kind(block) == "text" else _parts_of(block)
    return parts


def _parts_of(block: Any) -> list[Any]:
    """Return a block that is no text as parts of a chat message; none for thoughts and calls."""
    kind = _kind(block)
    if kind == "document":
        return _document(block.get("source"))
    if kind == "container_upload":
        return [{"type": "file"}]
    if kind == "search_result":
        return _parts(block.get("content") or [])  # type: ignore[no-any-return]
    if kind == "image" or not isinstance(block, dict):
        return [block]
    return []  # thinking, tool calls, results of Anthropic's own tools


def _document(source: Any) -> list[Any]:
    """Return the parts of a document by its `source`: text, blocks, or `{"type": "file"}`.

    A file cannot be scored.
    """
    kind = _kind(source)
    if kind == "text":
        return [{"type": "text", "text": source.get("data")}]
    if kind == "content":
        content = source.get("content")
        return _parts(content) if isinstance(content, list) else [content or ""]
    return [{"type": "file"}]


def _chat_tools(tools: Any) -> list[Json]:
    """Return the tools of a request in the form of chat completions."""
    if not isinstance(tools, list):
        return []
    names = {"name": "name", "description": "description", "input_schema": "parameters"}
    return [
        {"function": {name: tool[key] for key, name in names.items() if key in tool}}
        | ({"annotations": tool["annotations"]} if "annotations" in tool else {})
        for tool in tools
        if isinstance(tool, dict)
    ]


def _text_of(content: Any) -> str:
    """Return the text of a message's content, with the results of tools, joined by blanks."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    blocks = [block for block in content if isinstance(block, dict)]
    texts = (
        _text_of(block.get("content")) if _kind(block) == "tool_result" else block.get("text")
        for block in blocks
    )
    return " ".join(text for text in texts if isinstance(text, str))
