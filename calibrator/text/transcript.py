"""Turn OpenAI's messages and completions into the question and the answer that a calibrator reads.

The question is the last turn of the user, with the earlier and later turns that matter (a short
history, results of tools) and the tools that were offered: a text, and the images in these turns
(paper B01). The answer is all that the model returned: reasoning it exposed (F09), text, refusal,
tool calls. Tool calls and tools are written as in the training data:
`[name(argument="value")]` and `Available functions (JSON): [...]`.

The released code reads only the user's last message and the first choice, and refuses an empty
answer (W06). Here history, images, every choice, refusals and empty answers are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Any

from calibrator.errors import NotScorableError
from calibrator.scorer import IMAGE_CHARACTERS, ToolUse
from calibrator.text.asides import has_asides, has_attribution, messages_without_asides

HISTORY_CHARACTERS = 1_500  # of earlier turns, the most recent ones
_BESIDE_CONTENT = ("reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
ANSWER_KEYS = ("content", *_BESIDE_CONTENT)  # every message of an assistant has one of these keys
LISTED = "mcp_list_tools"  # key of a message: tools that MCP servers listed beside its calls
_INSTRUCTIONS = ("system", "developer")
_OPENINGS = {role: f"[{role}] " for role in ("user", "assistant")}  # what a turn begins with
_OPENING_OF = _OPENINGS.__getitem__
_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")  # avoid a Python loop per request
_RESULTS = ("tool", "function")  # roles of the results of calls
RECENT_TURNS = 16  # that the fast path for plain texts reads
RECENT_MESSAGES = 60  # that are searched for calls
AFTER_CHARACTERS = 20_000  # of what follows the question, such as tool calls and their results
TOOLS_CHARACTERS = 6_000
TOOLS_OFFERED = "Available functions (JSON):"  # the line above the tools in a question
_IMAGES = ("image_url", "input_image", "image")  # types of content parts
_OTHERS = {  # types of parts that no calibrator reads, and the reason
    **dict.fromkeys(("input_audio", "audio", "audio_url"), "audio"),
    **dict.fromkeys(("input_video", "video", "video_url"), "video"),
    **dict.fromkeys(("input_file", "file"), "file"),
}


@dataclass(slots=True)  # not frozen, because that would triple the time to create one
class Question:
    """A question: its text, and the content parts of its images, in their order.

    `images.py` says where an image is and whether it is available. A calibrator that reads text
    only must not score a question with images by its text alone.

    `messages` and `tools` are what the text was made of, for replies in conversations with tools.
    `conversation` returns the messages where there are more of them than the text was made of.
    """

    text: str
    images: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[Any] = field(default=(), compare=False)  # the text alone decides equality
    tools: Any = field(default=(), compare=False)
    conversation: Callable[[], Sequence[Any]] | None = field(default=None, compare=False)
    has_calls: bool | None = field(default=None, compare=False)  # before the reply; None if unknown
    listed: Sequence[Any] = field(default=(), compare=False)  # tools of MCP servers, never scored

    def all_messages(self) -> Sequence[Any]:
        """Return all messages before the reply, as in chat; empty where only a text is known.

        `conversation` is called once, and its messages replace `messages`.
        """
        if self.conversation is not None:
            self.messages, self.conversation = self.conversation(), None
        return self.messages

    def tool_use(self, message: Mapping[str, Any]) -> ToolUse | None:
        """Return the reply `message` with its conversation and tools; None without tools.

        None if it calls no tool, none was offered, and the last `RECENT_MESSAGES` hold no call and
        no result of one. Tools that MCP servers listed (the member `LISTED` of the message,
        `listed`) are added to the offered ones for a reply with calls only. May call
        `conversation`, as `all_messages`.
        """
        tools = self.tools if isinstance(self.tools, list | tuple) else ()
        if not (tools or message.get("tool_calls") or message.get("function_call")):
            if self.has_calls is None:
                self.has_calls = _has_calls(self.messages)
            if not self.has_calls:
                return None
        has_calls = bool(message.get("tool_calls") or message.get("function_call"))
        if has_calls and isinstance(listed := message.get(LISTED), list):
            tools = [*tools, *(each for each in listed if _is_listed(each))]
            message = {key: value for key, value in message.items() if key != LISTED}
        offered = [*tools, *self.listed] if self.listed and has_calls else tools
        return ToolUse(
            self.all_messages() or [{"role": "user", "content": self.text}], offered, message
        )


def _is_listed(tool: Any) -> bool:
    """Return whether an MCP server listed this tool: such tools do not change the score."""
    return isinstance(tool, Mapping) and tool.get("type") == "mcp_tool"


def _has_calls(messages: Sequence[Any]) -> bool:
    """Return whether one of the last `RECENT_MESSAGES` calls a tool or holds a call's result."""
    return any(
        isinstance(each, Mapping)
        and (each.get("role") in _RESULTS or each.get("tool_calls") or each.get("function_call"))
        for each in messages[-RECENT_MESSAGES:]
    )


Images = list[Mapping[str, Any]]  # content parts, as they are found


def content_text(content: Any, images: Images | None = None) -> str:
    """Return the text of a message's `content` (a string, a list of parts or None), or "".

    The texts of parts are joined by line ends. Image parts are appended to `images`. Raises
    NotScorableError(`audio`, `video`, `file`) for parts that no calibrator reads, also (`image`)
    for an image if `images` is None, and ValueError for anything that is no content.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise ValueError(
            f"message content must be a string or a list, not {type(content).__name__}"
        )
    return "\n".join(text for part in content if (text := _part_text(part, images)))


def _part_text(part: Any, images: Images | None) -> str:
    """Return the text of a content part; an image part is appended to `images` and gives "".

    Raises NotScorableError and ValueError as `content_text`.
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise ValueError(f"a content part must be an object, not {type(part).__name__}")
    kind = str(part.get("type", "text"))
    if kind in _IMAGES:
        if images is None:
            raise NotScorableError("image", "there is an image in the answer")
        images.append(part)
        return ""
    if reason := _OTHERS.get(kind):
        raise NotScorableError(reason, f"there is a part of type {kind}, which no calibrator reads")
    text = part.get("text", part.get("refusal", ""))
    return text if isinstance(text, str) else ""


def read_question(messages: Any, tools: Any = None) -> Question:
    """Read the question of a chat request: its `messages` and `tools` as the client sent them.

    Its text has the end of the earlier turns (lines such as `[user] ..`), the user's last message,
    later turns, and the offered tools. Blocks of coding agents such as `<system-reminder>` are
    removed. Raises ValueError where `messages` is no list of messages, and NotScorableError for
    audio and the like in any message that belongs to the question; older messages are not examined.
    """
    is_list = type(messages) is list or (
        isinstance(messages, Sequence) and not isinstance(messages, str)
    )
    if not is_list or not messages:
        raise ValueError("'messages' must be a list with at least one message")
    offered = tools_text(tools) if tools else ""
    opening = "User request: " if offered else ""
    plain = _plain_text(messages, opening)
    if plain is not None and not has_asides(plain):  # nearly every request
        text = f"{plain}\n\n{offered}" if offered else plain
        if has_attribution(messages[0]):
            messages = messages_without_asides(messages)
        return Question(text, [], messages, tools or (), None, False)
    images: Images = []
    messages = messages_without_asides(messages)
    last = _last_user_turn(messages)
    history = "\n".join(_turns(messages[:last], HISTORY_CHARACTERS, images))
    question = content_text(messages[last].get("content"), images)
    after = "\n".join(_turns(messages[last + 1 :], AFTER_CHARACTERS, images))
    parts = (history[-HISTORY_CHARACTERS:], opening + question, after, offered)
    return Question("\n\n".join(part for part in parts if part), images, messages, tools or ())


def _plain_text(messages: Sequence[Any], opening: str) -> str | None:
    """Return the question's text for plain texts that end with the user, or None.

    This is a fast path of `read_question`. `opening` is put before the user's last message. None
    for any other conversation, and where more than `RECENT_TURNS` turns have to be read.
    """
    recent = messages[-RECENT_MESSAGES:]
    try:
        roles, texts = [*map(_ROLE, recent)], [*map(_CONTENT, recent)]
        if roles.pop() != "user" or {*map(len, recent)} != {2}:
            return None
        question: str = texts.pop()
        if roles and roles[0] in _INSTRUCTIONS:
            del roles[0], texts[0]
        if len(roles) > RECENT_TURNS and not _OPENINGS.keys() >= {*roles}:
            return None
        texts = texts[-RECENT_TURNS:]
        turns = [*map(add, map(_OPENING_OF, roles[-RECENT_TURNS:]), texts)]
    except (KeyError, TypeError):  # another role, or parts instead of a text
        return None
    if not (type(question) is str and question and all(texts)):
        return None
    if len(turns) == RECENT_TURNS and sum(map(len, turns)) <= HISTORY_CHARACTERS:
        return None
    history = "\n".join(turns)
    before = f"{history[-HISTORY_CHARACTERS:]}\n\n" if history else ""
    return f"{before}{opening}{question}"


def depiction(prompt: str) -> tuple[str, str]:
    """Return question and answer by which a generated image is judged (paper R01).

    `prompt` is what the image was asked to show; the answer is "Yes".
    """
    return f"Does this image accurately depict: *{prompt}*?", "Yes"


def _last_user_turn(messages: Sequence[Any]) -> int:
    """Return the position of the user's last message; of the last message if there is none.

    Raises ValueError for a later message that is no mapping.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if type(message) is not dict and not isinstance(message, Mapping):
            raise ValueError(f"a message must be an object, not {type(message).__name__}")
        if message.get("role") == "user":
            return position
    return len(messages) - 1


def _turns(messages: Sequence[Any], characters: int, images: Images) -> list[str]:
    """Return the last turns as texts such as `[user] Hello`, the oldest first, up to about a size.

    Turns are read from the end until they have more than `characters`; instructions are left out.
    Their images are appended to `images` in order, and each counts as `IMAGE_CHARACTERS`. Raises
    NotScorableError and ValueError as `content_text`.
    """
    turns: list[str] = []
    images_of_turns: list[Images] = []  # of each turn that has images
    for message in reversed(messages):
        if characters < 0:
            break
        found: Images = []
        text = _turn_text(message, found)
        if text is not None:
            turns.append(text)
            characters -= len(text)
        if found:
            images_of_turns.append(found)
            characters -= IMAGE_CHARACTERS * len(found)
    for found in reversed(images_of_turns):
        images += found
    return turns[::-1]


def _turn_text(message: Any, images: Images) -> str | None:
    """Return one turn as `[role] text`, its tool calls included; "" where nothing was said.

    None for instructions and for a turn of images alone. Its images are appended to `images`.
    Raises ValueError for a message that is no mapping.
    """
    if not isinstance(message, Mapping):
        raise ValueError(f"a message must be an object, not {type(message).__name__}")
    role = message.get("role", "user")
    if role in _INSTRUCTIONS:
        return None
    content = content_text(message.get("content"), images)
    text = " ".join(filter(None, (content, calls_text(message.get("tool_calls")))))
    if not text and images:
        return None
    return f"[{role}] {text}" if text else ""


def tools_text(tools: Any) -> str:
    """Return the offered tools as a line `Available functions (JSON):` and one JSON list.

    Each has its name, description and parameters; the list is cut to `TOOLS_CHARACTERS`. Returns ""
    if there are none.
    """
    if not tools or not isinstance(tools, Sequence) or isinstance(tools, str):
        return ""
    functions = _functions(tools)
    if not functions:
        return ""
    keys = ("name", "description", "parameters")
    listed = [{key: f[key] for key in keys if key in f} for f in functions]
    return f"{TOOLS_OFFERED}\n{json.dumps(listed, ensure_ascii=False)[:TOOLS_CHARACTERS]}"


def calls_text(calls: Any) -> str:
    """Return tool calls as `[name(argument="value"), ...]`; an empty string if there are none."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return ""
    written = [_call_text(function) for function in _functions(calls)]
    return f"[{', '.join(written)}]" if written else ""


def _functions(listed: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the description of each tool or call, its member `function` or (free text) `custom`.

    Those without one are skipped.
    """
    functions = [t.get("function") or t.get("custom") for t in listed if isinstance(t, Mapping)]
    return [function for function in functions if isinstance(function, Mapping)]


def _call_text(function: Mapping[str, Any]) -> str:
    """Return one call as `name(argument="value")`; arguments that are no JSON object stay as text.

    Values are written as JSON.
    """
    name = function.get("name") or ""
    arguments = function.get("arguments", function.get("input"))
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, Mapping):
        return f"{name}({arguments or ''})"
    written = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in decoded.items())
    return f"{name}({', '.join(written)})"


def message_text(message: Mapping[str, Any]) -> str:
    """Return the whole answer of one assistant message, its parts joined by line ends; "" if empty.

    The parts are exposed reasoning, content, refusal, and tool calls as `[name(argument="value")]`.
    Raises NotScorableError and ValueError for content, as `content_text`.
    """
    content = message.get("content")
    if type(content) is str and not any(map(message.get, _BESIDE_CONTENT)):
        return content  # nearly every answer
    parts = (
        message.get("reasoning_content") or message.get("reasoning"),
        content_text(message.get("content")),
        message.get("refusal"),
        calls_text(message.get("tool_calls") or _legacy_call(message)),
    )
    return "\n".join(part for part in parts if part and isinstance(part, str))


def _legacy_call(message: Mapping[str, Any]) -> Any:
    """Return a message's `function_call` as a list of one tool call; None if it has none."""
    call = message.get("function_call")
    return [{"function": call}] if isinstance(call, Mapping) else None
