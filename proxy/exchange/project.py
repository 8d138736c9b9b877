"""The folder that a coding agent works in, as its request names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

_LOOKED_AT = 200_000  # characters of instructions
_TURNS = 20  # the first messages: agents describe their surroundings at the beginning
_FOLDER = re.compile(
    r"(?:working directory|workspace(?: root)?|cwd)[ \t]{0,4}(?:is|:)[ \t]{0,4}"
    r"([/~][^\n<>\"']{0,500})",
    re.IGNORECASE,
)
_CODEX = re.compile(r"<cwd>\s{0,20}([^<\n]{1,500}?)\s{0,20}</cwd>")
_SURROUNDINGS = "<environment_context>"


def project_of(instructions: Any, messages: Any) -> str | None:
    """Return the project's folder, or None where no instructions name it.

    Only instructions count, and the block in which Codex describes its surroundings: a tool's
    result or a model's text cannot move the project elsewhere.
    """
    listed = messages[:_TURNS] if isinstance(messages, list) else []
    for text in _instructions(instructions, listed):
        if found := _FOLDER.search(text[:_LOOKED_AT]):
            return found[1].rstrip(" .`\r")
    for text in _texts_of(listed, ("user",)):
        if text.lstrip().startswith(_SURROUNDINGS) and (found := _CODEX.search(text[:_LOOKED_AT])):
            return found[1]
    return None


def _instructions(instructions: Any, messages: Sequence[Any]) -> Iterator[str]:
    yield from _texts(instructions)
    yield from _texts_of(messages, ("system", "developer"))


def _texts_of(messages: Sequence[Any], roles: Sequence[str]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, dict) and message.get("role") in roles:
            yield from _texts(message.get("content"))


def _texts(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
