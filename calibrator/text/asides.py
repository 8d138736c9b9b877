"""Separate the user's words from the blocks that coding agents add to a conversation.

Claude Code puts `<system-reminder>` blocks into the user's messages, and before its instructions
a line with an attribution that changes with every request. Codex sends its surroundings as a user
message. None of this belongs to the user's question.

    without_asides("<system-reminder>Today is Friday.</system-reminder>List the files.")
    # "List the files."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NAMES = ("system-reminder", "environment_context", "user_instructions")
_TAGS = tuple((f"<{name}>", f"</{name}>") for name in _NAMES)
_ATTRIBUTION = "x-anthropic-billing-header:"
MESSAGES_LOOKED_AT = 400  # the last ones, so that the work does not grow with the conversation


def has_asides(text: str) -> bool:
    """Return whether a text contains the opening tag of an agent's block."""
    return "<" in text and any(opening in text for opening, _ in _TAGS)


def split_asides(text: str) -> tuple[str, list[str]]:
    """Return the user's own words, and the agent's blocks without their tags.

    A block without a closing tag counts as text. The work is linear in the text's length.
    """
    blocks: list[str] = []
    for opening, closing in _TAGS:
        parts, start = [], 0
        while (begin := text.find(opening, start)) >= 0:
            end = text.find(closing, begin + len(opening))
            if end < 0:
                break
            parts.append(text[start:begin])
            blocks.append(text[begin + len(opening) : end].strip())
            start = end + len(closing)
        if start:
            text = "".join((*parts, text[start:])).strip()
    return text, blocks


def without_asides(text: str) -> str:
    """Return the user's own words; the same text if it contains nothing else."""
    return split_asides(text)[0] if has_asides(text) else text


def without_attribution(text: str) -> str:
    """Return instructions without the line that names the client and changes with each request."""
    if _ATTRIBUTION not in text:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith(_ATTRIBUTION))


def messages_without_asides(messages: Sequence[Any]) -> Sequence[Any]:
    """Return the messages with the agent's blocks removed from the user's messages.

    The same sequence is returned if nothing changes. A user message that holds nothing but blocks
    is left out, unless no user message would remain.
    """
    early = max(0, len(messages) - MESSAGES_LOOKED_AT)
    late = messages[early:]
    changed = [_own_words(message) for message in late]
    if all(new is old for new, old in zip(changed, late, strict=True)):
        return messages
    kept = [message for message in changed if message is not None]
    if not any(isinstance(m, Mapping) and m.get("role") == "user" for m in kept):
        return messages
    return [*messages[:early], *kept]


def _own_words(message: Any) -> Any:
    """Return a message with the user's own words only, or None if it has none.

    Messages of other roles are returned unchanged.
    """
    if not isinstance(message, Mapping) or message.get("role") != "user":
        return message
    content = message.get("content")
    if isinstance(content, str):
        left = without_asides(content)
        return message if left is content else {**message, "content": left} if left else None
    if not isinstance(content, list):
        return message
    parts = [_own_part(part) for part in content]
    if all(new is old for new, old in zip(parts, content, strict=True)):
        return message
    left_parts = [part for part in parts if part is not None]
    return {**message, "content": left_parts} if left_parts else None


def _own_part(part: Any) -> Any:
    """Return a content part with the user's own words only, or None if it has none."""
    text = part.get("text") if isinstance(part, Mapping) else part
    if not isinstance(text, str) or (left := without_asides(text)) is text:
        return part
    return None if not left else {**part, "text": left} if isinstance(part, Mapping) else left
