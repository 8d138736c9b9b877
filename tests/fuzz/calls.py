"""A fuzzer of calls of one tool, in random spellings, against rules that hold this tool.

Names are wrapped, written in another case or with invisible characters, and cut into deltas;
arguments are encoded several times or wrapped. Some client undoes each of these steps before it
runs the tool. A finding is a call that reaches the client, or an internal error.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.fuzz.fuzzing import Case
from tests.fuzz.proxied import OURS, Rig, rig
from tests.proxy.actions.test_tool_spellings import BY_ARGUMENT, BY_NAME, ONLY_OTHER, offered
from tests.proxy.actions.tool_spellings import (
    AMOUNT,
    OTHER,
    TOOL,
    chat_deltas,
    streamed_calls,
    whole_calls,
)
from tests.servers.undecided import SECRET, asking, passed

RULES = {"name": BY_NAME, "argument": BY_ARGUMENT, "only": ONLY_OTHER}
PREFIXES = (
    "functions.",
    "tools.",
    "function.",
    "tool:",
    "functions::",
    "default_api.",
    "Functions.",
)
SUFFIXES = (":0", "#3", "()", "<|channel|>commentary", "<|constrain|>json")
INVISIBLE = ("\u200b", "\u00ad", "\ufeff", "\u2060", "\ufe0f", "\u034f")
BLANKS = (" ", "\t", "\n", "\u00a0", "\u3000")
NAME_STEPS: tuple[Callable[[random.Random, str], str], ...] = (
    lambda chance, name: chance.choice(PREFIXES) + name,
    lambda chance, name: name + chance.choice(SUFFIXES),
    lambda chance, name: chance.choice(BLANKS) + name + chance.choice(("", *BLANKS)),
    lambda chance, name: "".join(chance.choice((c.upper(), c)) for c in name),
    lambda chance, name: _with(chance, name, chance.choice(INVISIBLE)),
    lambda chance, name: "".join(
        chr(ord(c) + 0xFEE0) if c.isascii() and c.isalpha() else c for c in name
    ),
    lambda chance, name: _quoted(chance, name),
    lambda chance, name: name.replace("_", chance.choice(("-", " ", ".", "__", "\\_"))),
)
ARGUMENT_STEPS: tuple[Callable[[random.Random, str], str], ...] = (
    lambda chance, text: json.dumps(text),
    lambda chance, text: f"[{text}]",
    lambda chance, text: f"```json\n{text}\n```",
    lambda chance, text: chance.choice(BLANKS[:3]) + text + chance.choice(BLANKS[:3]),
    lambda chance, text: text + chance.choice((",", ";", text, "}")),
    lambda chance, text: text.replace('"', "'"),
)


@contextmanager
def cases() -> Iterator[Case]:
    with rig(RULES) as found:
        yield lambda chance: _case(chance, found)


def _case(chance: random.Random, rig: Rig) -> str:
    rule = chance.choice([*RULES])
    surface = chance.choice(("chat", "responses", "messages"))
    name, arguments = _name(chance), _arguments(chance)
    forms = [*whole_calls(surface, name, arguments), *streamed_calls(surface, name, arguments)]
    if surface == "chat":
        forms.append(("deltas", chat_deltas(_deltas(chance, name, arguments), _kind(chance))))
    form, rig.upstream.answer = chance.choice(forms)
    tools = offered(surface, TOOL, OTHER) if chance.random() < 0.5 else {}
    is_stream = rig.upstream.answer.framing == "chunked"
    body = asking(surface, stream=is_stream, **tools)
    key = f"Bearer sk-{chance.randrange(2**64)}"  # the same key would get its held reply again
    _, got = rig.ask(rule, surface, body, authorization=key)
    details = f"{rule}, {surface}, {form}, offered: {bool(tools)}\n{name!r} {arguments!r}\n{got!r}"
    assert not passed(got), f"a held tool came through: {details}"
    assert not any(f'"{word}"'.encode() in got for word in OURS), f"an internal error: {details}"
    return f"{surface} held"


def _name(chance: random.Random) -> str:
    name = TOOL
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3))):
        name = chance.choice(NAME_STEPS)(chance, name)
    return name


def _arguments(chance: random.Random) -> str:
    members: dict[str, Any] = {"amount": AMOUNT, "order": SECRET}
    if chance.random() < 0.3:
        members["amount"] = chance.choice((str(AMOUNT), f"EUR {AMOUNT}", [1, AMOUNT]))
    text = json.dumps(members, ensure_ascii=chance.random() < 0.5)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        text = chance.choice(ARGUMENT_STEPS)(chance, text)
    return text


def _deltas(chance: random.Random, name: str, arguments: str) -> list[dict[str, Any]]:
    """Return the pieces of one call: names that come late, twice or in parts, cut arguments."""
    names = chance.choice(([name], [OTHER, name], [name, OTHER], [name[:4], name[4:]], ["", name]))
    cut = chance.randrange(len(arguments) + 1)
    of_names: list[dict[str, Any]] = [{"name": each} for each in names]
    of_arguments = [{"arguments": part} for part in (arguments[:cut], arguments[cut:])]
    at = chance.choice((0, len(of_names), len(of_names)))  # the name may come late
    pieces = [*of_names[:at], *of_arguments, *of_names[at:]]
    return pieces


def _kind(chance: random.Random) -> str:
    return chance.choice(("function", "legacy"))


def _with(chance: random.Random, text: str, character: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + character + text[at:]


def _quoted(chance: random.Random, name: str) -> str:
    mark = chance.choice("\"'`")
    return f"{mark}{name}{mark}"


def _wide(character: str) -> str:
    is_letter = character.isascii() and character.isalpha()
    return chr(ord(character) + 0xFEE0) if is_letter else character
