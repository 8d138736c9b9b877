"""A reply that calls tools, as the traits read it: instructions, turns, steps, results, tools.

The input is bounded: both ends of long instructions, the last turns, and the results that have
values of the call before the latest others. Messages come from models and strangers and may hold
anything; values of an unexpected type are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrator.readers.calls.reading.values import Value, leaves, name_words, value_at, words_in
from calibrator.scorer import ToolUse

MAX_RULES = 10_000  # characters of instructions
MAX_TURN = 4_000  # characters of one turn of the user
MAX_TURNS = 8  # last turns of the user
MAX_RESULT = 4_000  # characters of one result
MAX_RESULTS = 16_000  # characters of all results that are read
MAX_MESSAGES = 400  # last messages that are read, beside the first few
MAX_CALLS = 12  # calls of one reply
MAX_AT_ONCE = 50  # calls of one message before the reply
MAX_EARLIER = 120  # calls before the reply
MAX_TOOLS = 150
MAX_ARGUMENTS = 20_000  # characters of a call's arguments that are decoded
MCP_TOOL = "mcp_tool"  # the type of a tool that an MCP server listed
MAX_NAME = 200  # characters of a tool's name

Json = Mapping[str, Any]


@dataclass(slots=True)
class Tool:
    """An offered tool; `words` are the stems of its name and description."""

    name: str
    description: str
    properties: Json
    required: tuple[str, ...]
    words: set[str]
    verbs: tuple[str, ...]  # verbs of its name, in order
    annotations: dict[str, bool] = field(default_factory=dict)  # for an MCP tool, see `hints_in`


@dataclass(slots=True)
class Call:
    """A call with its arguments and its place in the conversation.

    `arguments` and `key` are empty until `decode` was called.
    """

    name: str
    arguments: Json
    is_readable: bool = True
    values: list[Value] = field(default_factory=list)  # for the reply's own calls only
    key: str = ""  # equal for equal calls
    turn: int = 0  # number of the user's turn that it follows
    result: str = ""
    raw_arguments: Any = None  # until they are decoded

    def decode(self) -> None:
        """Decode `raw_arguments` into `arguments` and `key`, and set it to None.

        `key` becomes `name(arguments)`, or "" without a name; `is_readable` becomes False if the
        arguments are no JSON object.
        """
        self.arguments, self.is_readable = _decode_arguments(self.raw_arguments)
        self.key = f"{self.name}({_key(self.arguments)})" if self.name else ""
        self.raw_arguments = None


@dataclass(slots=True)
class View:
    """The input of all traits: a conversation with tools and the reply to it, bounded.

    `calls` are those of the reply and `thought` is its text. `earlier` are the calls before it,
    the latest last, with their results. `results` are the results chosen to be read.
    """

    rules: str = ""
    turns: list[str] = field(default_factory=list)  # the user's turns, the latest last
    whole_turns: list[str] = field(default_factory=list)  # also with text that may be planted
    is_answer: list[bool] = field(default_factory=list)  # whether each turn answers a question
    thought: str = ""
    previous_reply: str = ""  # text of the assistant just before the user's last turn
    calls: list[Call] = field(default_factory=list)
    earlier: list[Call] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)
    listed: dict[str, dict[str, bool]] = field(default_factory=dict)  # annotations by MCP tool
    steps: int = 0  # messages of the assistant since the user spoke
    user_turns: int = 0
    is_cut: bool = False

    @property
    def request(self) -> str:
        """The user's last turn; empty if there is none."""
        return self.turns[-1] if self.turns else ""


def view_of(used: ToolUse) -> View:
    """Return the view of a reply. Raises nothing, whatever the reply holds.

    Turns and results are without text that has only values of the calls, which may be planted.
    """
    view = View(tools=_tools(used.tools), listed=_listed_annotations(used.tools))
    _read_messages(view, used.messages)
    message = used.message if isinstance(used.message, Mapping) else {}
    view.thought = _text(message.get("content"), 4_000) or _text(
        message.get("reasoning_content") or message.get("reasoning"), 4_000
    )
    calls = calls_in(message)
    if len(calls) > MAX_CALLS:
        calls, view.is_cut = [*calls[: MAX_CALLS // 2], *calls[-MAX_CALLS // 2 :]], True
    for call in [*calls, *view.earlier]:  # not those that are skipped
        call.decode()
    for call in calls:
        tool = view.tools.get(call.name)
        properties = tool.properties if tool else {}
        call.values = [value_at(p, v, _choices(properties, p)) for p, v in leaves(call.arguments)]
        call.turn = view.user_turns
    view.calls = calls
    view.results = _chosen_results(view)
    view.whole_turns = view.turns
    _drop_plants(view)
    return view


# --- plants -------------------------------------------------------------------------------------

SEGMENT = re.compile(r"[^\n()]*?(?:\n|[.!?](?=\s)|[()]|$)")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
MAX_VALUES = 20  # values of a call that are searched for in bare segments
PLANTED_VALUES = 2  # least number of the call's values in a planted segment
PLANTED_WORDS = 2  # most other words in a planted segment


def _drop_plants(view: View) -> None:
    """Remove segments of turns and lines of results that have only values of the call.

    The view is changed in place. An answer to a question may be bare, and a text is never
    emptied. Nothing is removed if the calls have fewer than two values.
    """
    values = list(dict.fromkeys(v.text[:60] for c in view.calls for v in c.values if v.text[1:]))
    if len(values) < PLANTED_VALUES:
        return
    own = {w for c in view.calls for v in c.values for w in _LETTERS.findall(v.text[:300])}
    if "?" not in view.previous_reply:
        view.turns = [
            _drop_planted(turn, SEGMENT.findall(turn), values[:MAX_VALUES], own)
            for turn in view.turns
        ]
    view.results = [
        _drop_planted(result, result.splitlines(keepends=True), values[:MAX_VALUES], own)
        for result in view.results
    ]


def _drop_planted(text: str, segments: Sequence[str], values: Sequence[str], own: set[str]) -> str:
    """Return a text without its planted segments; unchanged if at most three words are left.

    `segments` are the parts of the text, `values` the calls' values, `own` the words in them.
    """
    left = [each for each in segments if not _is_planted(each.lower(), values, own)]
    rest = "".join(left)
    return rest if len(left) < len(segments) and len(_LETTERS.findall(rest)) > 3 else text


def _is_planted(segment: str, values: Sequence[str], own: set[str]) -> bool:
    """Return whether a segment has two of the values and at most two words beside them."""
    if sum(value in segment for value in values) < PLANTED_VALUES:
        return False
    return sum(word not in own for word in _LETTERS.findall(segment)) <= PLANTED_WORDS


def _choices(properties: Json, path: str) -> Sequence[Any]:
    """Return the values that the schema allows for the argument with this path; () if any is."""
    schema = properties.get(path.partition(" ")[0])
    listed = schema.get("enum") if isinstance(schema, Mapping) else None
    return listed[:200] if isinstance(listed, list) else ()


def calls_in(message: Json, most: int = 500) -> list[Call]:
    """Return the calls of an assistant's message, at most `most`, not decoded yet.

    The legacy form `function_call` is read if there are no `tool_calls`. [] without calls.
    """
    listed = message.get("tool_calls")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        legacy = message.get("function_call")
        listed = [{"function": legacy}] if isinstance(legacy, Mapping) else []
    found = []
    for each in listed[:most]:
        fields = each.get("function") or each.get("custom") if isinstance(each, Mapping) else None
        if isinstance(fields, Mapping):
            found.append(_call(fields))
    return found


def _call(fields: Json) -> Call:
    """Return the call of one `{"name": .., "arguments": ..}`; the name is "" if it is no text."""
    name = fields.get("name")
    arguments = fields.get("arguments", fields.get("input"))
    return Call(name[:MAX_NAME] if isinstance(name, str) else "", {}, raw_arguments=arguments)


def _decode_arguments(arguments: Any) -> tuple[Json, bool]:
    """Return (arguments, whether they are a readable JSON object).

    Unreadable arguments become one argument with the name "". None and "" are readable and
    empty.
    """
    if isinstance(arguments, Mapping):
        return arguments, True
    if not isinstance(arguments, str) or not arguments.strip():
        return {}, arguments in (None, "")
    if len(arguments) > MAX_ARGUMENTS:
        return {"": arguments[:MAX_ARGUMENTS]}, False
    try:
        decoded = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"": arguments}, False
    return (decoded, True) if isinstance(decoded, Mapping) else ({"": decoded}, False)


def _key(arguments: Json) -> str:
    """Return a text that is equal for equal arguments, whatever their order."""
    pairs = sorted(
        f"{path}={str(value)[:300].strip().lower()}" for path, value in leaves(arguments)
    )
    return ";".join(pairs)


def _tools(offered: Sequence[Any]) -> dict[str, Tool]:
    """Return the offered tools by name, without those that MCP servers listed.

    Entries of unknown form are skipped.
    """
    found: dict[str, Tool] = {}
    for each in list(offered)[:MAX_TOOLS] if isinstance(offered, list | tuple) else []:
        function = (
            each.get("function") or each.get("custom") or each if isinstance(each, Mapping) else 0
        )
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        if each.get("type") == MCP_TOOL:
            continue
        schema = function.get("parameters")
        schema = schema if isinstance(schema, Mapping) else {}
        properties, required = schema.get("properties"), schema.get("required")
        name, described = function["name"][:MAX_NAME], _text(function.get("description"), 1_000)
        listed = required if isinstance(required, list) else []
        found[name] = Tool(
            name,
            described,
            properties if isinstance(properties, Mapping) else {},
            tuple(one for one in listed[:100] if isinstance(one, str)),
            words_in(" ".join(name_words(name)) + " " + described),
            tuple(name_words(name)),
            hints_in(function) or hints_in(each),
        )
    return found


def _listed_annotations(offered: Sequence[Any]) -> dict[str, dict[str, bool]]:
    """Return the annotations (`hints_in`) of tools that MCP servers listed, by name.

    No trait reads these tools.
    """
    tools = offered[:400] if isinstance(offered, list | tuple) else []
    return {
        each["name"][:MAX_NAME]: hints_in(each)
        for each in tools
        if isinstance(each, Mapping) and each.get("type") == MCP_TOOL
        if isinstance(each.get("name"), str)
    }


def hints_in(tool: Json) -> dict[str, bool]:
    """Return the annotations of an MCP tool, such as {"read_only": True}; {} without any.

    Names are read_only, destructive, idempotent and open_world. Both spellings are read,
    `readOnlyHint` and `read_only`; values that are no booleans are left out.
    """
    annotations = tool.get("annotations")
    found: dict[str, bool] = {}
    for key, value in list(annotations.items())[:20] if isinstance(annotations, Mapping) else ():
        if isinstance(value, bool):
            found["_".join(name_words(str(key))).removesuffix("_hint")] = value
    return found


def _text(content: Any, most: int) -> str:
    """Return the text of a message's content, a string or a list of parts; "" for other content.

    Of a text longer than `most` characters both ends are returned, joined by a line break.
    """
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content[:50]]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    return content if len(content) <= most else f"{content[: most // 2]}\n{content[-most // 2 :]}"


def _read_messages(view: View, messages: Sequence[Any]) -> None:
    """Add the messages to the view, in place; of more than 400 the first and last are read."""
    listed = messages if isinstance(messages, list | tuple) else []
    if len(listed) > MAX_MESSAGES:
        listed, view.is_cut = [*listed[:4], *listed[4 - MAX_MESSAGES :]], True
    rules: list[str] = []
    waiting: dict[Any, Call] = {}
    last_reply = ""
    for message in listed:
        if not isinstance(message, Mapping):
            continue
        role = message.get("role")
        if role in ("system", "developer"):
            rules.append(_text(message.get("content"), MAX_RULES))
        elif role == "user":
            view.turns.append(_text(message.get("content"), MAX_TURN))
            view.is_answer.append("?" in last_reply)
            view.user_turns += 1
            view.steps, view.previous_reply = 0, last_reply
        elif role in ("tool", "function"):
            _take_result(view, message, waiting)
        else:
            view.steps += 1
            last_reply = _text(message.get("content"), 1_000)
            waiting = _take_calls(view, message)
    view.rules = _text("\n".join(rules), MAX_RULES)
    view.turns, view.is_answer = view.turns[-MAX_TURNS:], view.is_answer[-MAX_TURNS:]


def _take_calls(view: View, message: Json) -> dict[Any, Call]:
    """Add a message's calls to the view, and return them by id, or by position without one.

    Of all earlier calls the view keeps the last 120.
    """
    waiting: dict[Any, Call] = {}
    ids = message.get("tool_calls")
    for number, call in enumerate(calls_in(message, MAX_AT_ONCE)):
        call.turn = view.user_turns
        view.earlier.append(call)
        raw_call = ids[number] if isinstance(ids, list) and number < len(ids) else None
        key = raw_call.get("id") if isinstance(raw_call, Mapping) else None
        waiting[key if isinstance(key, str) else number] = call
    del view.earlier[:-MAX_EARLIER]
    return waiting


def _take_result(view: View, message: Json, waiting: dict[Any, Call]) -> None:
    """Give a result to the call that waits for it, or add it without a call.

    `waiting` has the last message's calls by id; the call is removed from it. Without a fitting
    id the first one gets the result.
    """
    text = _text(message.get("content"), MAX_RESULT)
    key = message.get("tool_call_id")
    call = waiting.pop(key, None) if isinstance(key, str) else None
    if call is None and waiting:
        call = waiting.pop(next(iter(waiting)))
    if call is not None:
        call.result = text
    else:  # the result of a call that has been cut off
        view.earlier.append(Call("", {}, turn=view.user_turns, result=text))


def _chosen_results(view: View) -> list[str]:
    """Return the results to read, in order, about `MAX_RESULTS` characters at most.

    Results with a value of the call are chosen first, then the latest.
    """
    results = [call.result for call in view.earlier]
    values = [v.text for c in view.calls for v in c.values if len(v.text) > 2][:40]
    lower = [text.lower() for text in results]
    order = sorted(
        range(len(results)), key=lambda at: (not any(s in lower[at] for s in values), -at)
    )
    chosen, size = [], 0
    for at in order:
        if results[at] and size + len(results[at]) <= MAX_RESULTS + MAX_RESULT:
            chosen.append(at)
            size += len(results[at])
        if size > MAX_RESULTS:
            break
    return [results[at] for at in sorted(chosen)]
