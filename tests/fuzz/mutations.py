"""Random changes of JSON values and of bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 10**30, 1.5, 1e308, "", "x", "\x00", "\u2028", "é" * 9),
    *([], {}, [[]], [None], {"": None}, {"type": "x"}, [{"type": ["x"]}], {"index": "0"}),
)
AGAIN = "\x01again"  # put before a name that its object already has
WORDS = (
    *("type", "index", "id", "role", "content", "delta", "message", "choices", "tool_calls"),
    *("function", "custom", "name", "arguments", "input", "function_call", "error", "usage"),
    *("finish_reason", "stop_reason", "output", "item", "output_index", "response", "status"),
    *("content_block", "text", "refusal", "tool_use", "output_text", "model", "logprobs"),
    *("audio", "annotations", "sequence_number", "incomplete_details", "summary", "object"),
)
BYTES = (
    *(b"\n", b"\n\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"data: ", b"data", b":"),
    *(b"event: error\n", b"event: x\n", b"[DONE]", b"{", b"}", b"[", b'"', b"\\", b"\\u0000"),
    *(b"\\ud800", b"9" * 5_000, b"[" * 2_000, b"null", b"NaN", b"\xe2\x80\xa8", b"error"),
)


def changed(chance: random.Random, value: Any, times: int | None = None) -> Any:
    """Return a copy of a JSON value with a few parts removed, replaced, moved or added."""
    value = copy.deepcopy(value)
    for _ in range(times or chance.choice((1, 1, 2, 3, 5))):
        places = list(_places(value))
        if places:
            _change(chance, *chance.choice(places), places)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value with each of its keys or positions."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from ((value, key) for key in value)
            waiting += value.values()
        elif isinstance(value, list):
            yield from ((value, at) for at in range(len(value)))
            waiting += value


def _change(chance: random.Random, owner: Any, key: Any, places: Sequence[tuple[Any, Any]]) -> None:
    """Change one place in one way."""
    match chance.randrange(7):
        case 0:
            del owner[key]
        case 1 | 2:
            owner[key] = copy.deepcopy(chance.choice(ODD))
        case 3 if isinstance(owner, dict):
            owner[chance.choice(WORDS)] = owner.pop(key)
        case 4 if isinstance(owner, dict):
            owner[chance.choice(WORDS)] = copy.deepcopy(chance.choice(ODD))
        case 5:
            other, place = chance.choice(places)
            with_other = copy.deepcopy(other[place]) if _has(other, place) else None
            owner[key] = with_other
        case _ if isinstance(owner, list):
            owner.insert(chance.randrange(len(owner) + 1), copy.deepcopy(owner[key]))
        case _:
            owner[key] = [owner[key]]


def _has(owner: Any, key: Any) -> bool:
    return key in owner if isinstance(owner, dict) else key < len(owner)


def dumped(chance: random.Random, value: Any) -> bytes:
    """Return the value as JSON in one of several notations, sometimes with a member twice."""
    is_ascii, indent = chance.random() < 0.5, chance.choice((None, None, 1))
    is_twice = chance.random() < 0.15
    text = json.dumps(
        _with_repeated(chance, value) if is_twice else value, ensure_ascii=is_ascii, indent=indent
    )
    return text.replace(json.dumps(AGAIN)[:-1], '"').encode("utf-8", "surrogatepass")


def _with_repeated(chance: random.Random, value: Any) -> Any:
    """Return a copy in which a member occurs twice, in either order, perhaps in another case."""
    value = copy.deepcopy(value)
    places = [(owner, key) for owner, key in _places(value) if isinstance(owner, dict)]
    if not places:
        return value
    owner, key = chance.choice(places)
    other = chance.choice((key, key, key.title(), key.upper()))
    members = [*owner.items()]
    odd = copy.deepcopy(chance.choice((chance.choice(ODD), owner[key])))
    members.insert(chance.choice((0, len(members))), (AGAIN + other, odd))
    owner.clear()
    owner.update(members)
    return value


def spoilt(chance: random.Random, data: bytes, times: int | None = None) -> bytes:
    """Return the bytes with a few of them removed, changed, doubled or added."""
    for _ in range(times or chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 8, 64)))
        match chance.randrange(4):
            case 0:
                data = data[:at] + data[end:]
            case 1:
                data = data[:at] + chance.choice(BYTES) + data[at:]
            case 2:
                data = data[:at] + data[at:end] * 2 + data[end:]
            case _:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    return data
