"""From OpenAI's messages and completions to the question and the answer that a calibrator reads.

The question is the last turn of the user, with what went before it where it matters (a short
history, results of tools) and the tools that were offered: a text, and the images that stand in
these turns (paper B01). The answer is all that the model returned: reasoning it exposed (F09),
text, refusal, tool calls. Tool calls and tools are written as the training data writes them:
`[name(argument="value")]` and `Available functions (JSON): [...]`.

The released code reads the last message of the user alone, the first choice, and refuses an empty
answer (W06); here history, images, every choice, refusals and empty answers are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Any

from calibrator.errors import NotScorableError
from calibrator.scorer import IMAGE_CHARACTERS, ToolUse
from calibrator.text.asides import has_asides, messages_without_asides

HISTORY_CHARACTERS = 1_500  # of earlier turns, the most recent end of them
_BESIDE_CONTENT = ("reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
SAID = ("content", *_BESIDE_CONTENT)  # one of them is in every message of an assistant
_INSTRUCTIONS = ("system", "developer")
_OPENINGS = {role: f"[{role}] " for role in ("user", "assistant")}  # of turns
_OPENING_OF = _OPENINGS.__getitem__
_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")  # no loop in Python, for each request
_RESULTS = ("tool", "function")  # roles of what came of a call
RECENT_TURNS = 16  # are looked at together
RECENT_MESSAGES = 60  # are looked at for calls
AFTER_CHARACTERS = 20_000  # of what followed the question, calls of tools and their results
TOOLS_CHARACTERS = 6_000
TOOLS_OFFERED = "Available functions (JSON):"  # the line above them in a question
_IMAGES = ("image_url", "input_image", "image")  # types of parts
_OTHERS = {  # parts that no calibrator reads, and the reason's word
    **dict.fromkeys(("input_audio", "audio", "audio_url"), "audio"),
    **dict.fromkeys(("input_video", "video", "video_url"), "video"),
    **dict.fromkeys(("input_file", "file"), "file"),
}


@dataclass(slots=True)  # not frozen, which would triple the time of making one
class Question:
    """What was asked: its text, and the content parts of its images, in the order they stand in.

    Where an image is, and whether it can be had, `images.py` says; a calibrator that reads
    text only must not be asked about the text of a question with images as if it were all.

    `messages` and `tools` are what the text was made of, for replies in conversations with tools;
    `conversation` gives the messages where there are more than those that the text was made of.
    """

    text: str
    images: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[Any] = field(default=(), compare=False)  # two ways to one text are equal
    tools: Any = field(default=(), compare=False)
    conversation: Callable[[], Sequence[Any]] | None = field(default=None, compare=False)
    has_calls: bool | None = field(default=None, compare=False)  # before the reply; None: not known
    listed: Sequence[Any] = field(default=(), compare=False)  # tools of MCP servers, never scored

    def all_messages(self) -> Sequence[Any]:
        """Return all messages before the reply, read once; none where only a text is known."""
        if self.conversation is not None:
            self.messages, self.conversation = self.conversation(), None
        return self.messages

    def tool_use(self, message: Mapping[str, Any]) -> ToolUse | None:
        """The reply with all that stands before it; None where no tool was called or offered.

        Whether tools were used before a reply of text is seen in the last `RECENT_MESSAGES`.
        """
        tools = self.tools if isinstance(self.tools, list | tuple) else ()
        if not (tools or message.get("tool_calls") or message.get("function_call")):
            if self.has_calls is None:
                self.has_calls = _has_calls(self.messages)
            if not self.has_calls:
                return None
        has_calls = bool(message.get("tool_calls") or message.get("function_call"))
        offered = [*tools, *self.listed] if self.listed and has_calls else tools
        return ToolUse(
            self.all_messages() or [{"role": "user", "content": self.text}], offered, message
        )


def _has_calls(messages: Sequence[Any]) -> bool:
    """Whether one of the last messages calls a tool or tells what came of a call."""
    return any(
        isinstance(each, Mapping)
        and (each.get("role") in _RESULTS or each.get("tool_calls") or each.get("function_call"))
        for each in messages[-RECENT_MESSAGES:]
    )


Images = list[Mapping[str, Any]]  # content parts, as they are found


def content_text(content: Any, images: Images | None = None) -> str:
    """The text of a message's `content`: a string, parts, or nothing; its images go to `images`.

    Raises NotScorableError(`audio`, `video`, `file`) for parts that no calibrator reads, also
    (`image`) where there is no list for images, and ValueError for what is no content.
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
    """The question of a chat request: its `messages` and `tools` as the client sent them.

    Raises ValueError when `messages` is no list of messages, NotScorableError for audio and the
    like in any message that belongs to the question; what is too long ago is not looked at.
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
    """The question behind its opening, of a conversation in which each said a text, the user the
    last one; None for any other, and where more than `RECENT_TURNS` have to be read."""
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
    except (KeyError, TypeError):  # another role, or parts in place of a text
        return None
    if not (type(question) is str and question and all(texts)):
        return None
    if len(turns) == RECENT_TURNS and sum(map(len, turns)) <= HISTORY_CHARACTERS:
        return None
    history = "\n".join(turns)
    before = f"{history[-HISTORY_CHARACTERS:]}\n\n" if history else ""
    return f"{before}{opening}{question}"


def depiction(prompt: str) -> tuple[str, str]:
    """The visual question that a text-to-image reply answers, and its answer (paper R01)."""
    return f"Does this image accurately depict: *{prompt}*?", "Yes"


def _last_user_turn(messages: Sequence[Any]) -> int:
    """Where the last turn of the user stands; the last message where there is none."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if type(message) is not dict and not isinstance(message, Mapping):
            raise ValueError(f"a message must be an object, not {type(message).__name__}")
        if message.get("role") == "user":
            return position
    return len(messages) - 1


def _turns(messages: Sequence[Any], characters: int, images: Images) -> list[str]:
    """The last turns, as many as are needed for so many characters: a long past costs nothing."""
    turns: list[str] = []
    shown: list[Images] = []  # of each turn that has some
    for message in reversed(messages):
        if characters < 0:
            break
        found: Images = []
        text = _turn_text(message, found)
        if text is not None:
            turns.append(text)
            characters -= len(text)
        if found:
            shown.append(found)
            characters -= IMAGE_CHARACTERS * len(found)
    for found in reversed(shown):
        images += found
    return turns[::-1]


def _turn_text(message: Any, images: Images) -> str | None:
    """One turn, also an unusual one; empty where nothing was said, None for what is no text at all:
    instructions, images alone."""
    if not isinstance(message, Mapping):
        raise ValueError(f"a message must be an object, not {type(message).__name__}")
    role = message.get("role", "user")
    if role in _INSTRUCTIONS:
        return None
    said = content_text(message.get("content"), images)
    text = " ".join(filter(None, (said, calls_text(message.get("tool_calls")))))
    if not text and images:
        return None
    return f"[{role}] {text}" if text else ""


def tools_text(tools: Any) -> str:
    """The offered functions as one JSON list of name, description and parameters."""
    if not tools or not isinstance(tools, Sequence) or isinstance(tools, str):
        return ""
    functions = _functions(tools)
    if not functions:
        return ""
    keys = ("name", "description", "parameters")
    listed = [{key: f[key] for key in keys if key in f} for f in functions]
    return f"{TOOLS_OFFERED}\n{json.dumps(listed, ensure_ascii=False)[:TOOLS_CHARACTERS]}"


def calls_text(calls: Any) -> str:
    """Tool calls as `[name(argument="value"), ...]`; an empty string when there are none."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return ""
    written = [_call_text(function) for function in _functions(calls)]
    return f"[{', '.join(written)}]" if written else ""


def _functions(listed: Sequence[Any]) -> list[Mapping[str, Any]]:
    """What tools and tool calls hold: a `function`, or a `custom` tool with free text as input."""
    held = [t.get("function") or t.get("custom") for t in listed if isinstance(t, Mapping)]
    return [function for function in held if isinstance(function, Mapping)]


def _call_text(function: Mapping[str, Any]) -> str:
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
    """The whole answer of one assistant message; an empty string for an empty reply."""
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
    call = message.get("function_call")
    return [{"function": call}] if isinstance(call, Mapping) else None
