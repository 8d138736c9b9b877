"""Changes one member of a JSON object and leaves every other byte as it was.

Parsing and dumping would change number lexemes, escapes, white space and duplicate keys; a proxy
that promises transparency may not. Only the top level is looked at.
"""

from __future__ import annotations

import json
import re
from typing import Any

_WHITESPACE = " \t\r\n"
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")  # a byte order mark may come first
_decoder = json.JSONDecoder()


def dumps(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # half a surrogate pair has no UTF-8, but it has an escape that JSON knows
    return text.encode(errors="backslashreplace").decode()


def add_member(body: bytes, name: str, value: Any) -> bytes:
    """Puts a member before the last brace; what is between the braces is not looked at.

    Raises ValueError for what does not begin and end with a brace.
    """
    stripped = body.rstrip(_WHITESPACE.encode())
    opening = _OPENING.match(body)
    if not opening or not stripped.endswith(b"}"):
        raise ValueError("not a JSON object")
    inside = stripped[:-1]
    is_empty = len(inside.rstrip(_WHITESPACE.encode())) == opening.end()
    member = f"{'' if is_empty else ','}{dumps(name)}:{dumps(value)}}}"
    return inside + member.encode() + body[len(stripped) :]


def replace_member(body: bytes, name: str, value: Any) -> bytes:
    """Gives every top-level member `name` the new value, or adds one; raises ValueError."""
    text = body.decode()
    try:
        spans = _value_spans(text, name)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not spans:
        return add_member(body, name, value)
    for start, end in reversed(spans):
        text = text[:start] + dumps(value) + text[end:]
    return text.encode()


def _value_spans(text: str, name: str) -> list[tuple[int, int]]:
    """Where the values of the top-level members `name` stand."""
    spans, at = [], _after("{", text, int(text.startswith("\ufeff")))
    while text.startswith('"', at):
        key, at = _decoder.raw_decode(text, at)
        start = _after(":", text, at)
        _, end = _decoder.raw_decode(text, start)
        if key == name:
            spans.append((start, end))
        at = _skip(text, end)
        if not text.startswith(",", at):
            break
        at = _skip(text, at + 1)
    if _after("}", text, at) != len(text):
        raise ValueError("something follows the JSON object")
    return spans


def _after(sign: str, text: str, at: int) -> int:
    """What follows a sign, white space around it left out; raises ValueError where it is not."""
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"not a JSON object: no {sign!r} at character {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at
