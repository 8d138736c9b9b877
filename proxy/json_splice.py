"""Changes one member of a JSON object and leaves every other byte as it was.

Parsing and dumping would change number lexemes, escapes, white space and duplicate keys; a proxy
that promises transparency may not. Only the top level is looked at.
"""

from __future__ import annotations

import json
from typing import Any

_WHITESPACE = " \t\r\n"
_decoder = json.JSONDecoder()


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def add_member(body: bytes, name: str, value: Any) -> bytes:
    """Puts a member before the last brace; raises ValueError for what does not end in one."""
    stripped = body.rstrip()
    if not stripped.endswith(b"}"):
        raise ValueError("not a JSON object")
    inside = stripped[:-1]
    is_empty = inside.rstrip().endswith(b"{") and inside.lstrip(b"\xef\xbb\xbf \t\r\n") == b"{"
    member = f"{'' if is_empty else ','}{dumps(name)}:{dumps(value)}}}"
    return inside + member.encode() + body[len(stripped) :]


def replace_member(body: bytes, name: str, value: Any) -> bytes:
    """Gives every top-level member `name` the new value, or adds one; raises ValueError."""
    text = body.decode()
    spans = list(_value_spans(text, name))
    if not spans:
        return add_member(body, name, value)
    for start, end in reversed(spans):
        text = text[:start] + dumps(value) + text[end:]
    return text.encode()


def _value_spans(text: str, name: str) -> list[tuple[int, int]]:
    """Where the values of the top-level members `name` stand."""
    spans, at = [], _skip(text, text.index("{") + 1)
    while at < len(text) and text[at] == '"':
        key, at = _decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # over the colon
        _, end = _decoder.raw_decode(text, start)
        if key == name:
            spans.append((start, end))
        at = _skip(text, end)
        if at >= len(text) or text[at] != ",":
            break
        at = _skip(text, at + 1)
    return spans


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at
