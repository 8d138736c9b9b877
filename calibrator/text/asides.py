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
_INSTRUCTING = ("system", "developer")
ATTRIBUTION_WITHIN = 2_000  # characters
FIRST_LOOKED_AT = 4  # first messages, among them the instructions
MESSAGES_LOOKED_AT = 400  # the last ones, so that the work does not grow with the conversation


def has_asides(text: str) -> bool:
    """Return whether a text contains the opening tag of a coding agent's block.

    The tags are `<system-reminder>`, `<environment_context>` and `<user_instructions>`.
    """
    return "<" in text and any(opening in text for opening, _ in _TAGS)


def split_asides(text: str) -> tuple[str, list[str]]:
    """Return the user's own words, and a list of the contents of the coding agent's blocks.

    A block is `<system-reminder>..</system-reminder>`, or such a pair of `environment_context` or
    `user_instructions`; its content comes without the tags, stripped. A block without a closing tag
    counts as the user's text. The text is stripped if a block was removed, and unchanged otherwise.
    The work is linear in the text's length.
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
    """Return a text without a coding agent's blocks: `<system-reminder>..</system-reminder>`.

    The other tags are `environment_context` and `user_instructions`. The very same object is
    returned if it has no opening tag; "" if it holds nothing but blocks.
    """
    return split_asides(text)[0] if has_asides(text) else text


def without_attribution(text: str) -> str:
    """Return instructions without the lines that begin with `x-anthropic-billing-header:`.

    Claude Code writes such a line, which names the client and changes with each request. A text
    without it is returned unchanged.
    """
    if _ATTRIBUTION not in text:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith(_ATTRIBUTION))


def own_instructions(instructions: Any) -> Any:
    """Return instructions without the attribution line of a coding agent's client.

    These are lines that begin with `x-anthropic-billing-header:`. `instructions` are a text or a
    list of content blocks with a `text`. Of a list, a new list is returned; changed blocks are
    copied, and a block that becomes empty is left out. Anything else is returned unchanged.
    """
    if isinstance(instructions, str):
        return without_attribution(instructions)
    if not isinstance(instructions, list):
        return instructions
    kept = []
    for block in instructions:
        text = block.get("text") if isinstance(block, Mapping) else None
        own_text = without_attribution(text) if isinstance(text, str) else None
        if own_text is None or own_text == text:
            kept.append(block)
        elif own_text:
            kept.append({**block, "text": own_text})
    return kept


def has_attribution(message: Any) -> bool:
    """Return whether a message holds instructions that begin with a coding agent's attribution.

    It must have the role `system` or `developer` and the text `x-anthropic-billing-header:` within
    its first `ATTRIBUTION_WITHIN` characters; of a list of blocks only the first one is searched.
    """
    if not _is_instruction(message):
        return False
    content = message.get("content")
    if isinstance(content, list):
        content = content[0].get("text") if content and isinstance(content[0], Mapping) else None
    return isinstance(content, str) and content.find(_ATTRIBUTION, 0, ATTRIBUTION_WITHIN) >= 0


def messages_without_asides(messages: Sequence[Any], *, is_agents: bool = False) -> Sequence[Any]:
    """Return chat messages without a coding agent's blocks and without its attribution line.

    Blocks such as `<system-reminder>..</system-reminder>` are cut out of user messages, the line
    `x-anthropic-billing-header: ..` out of instructions (roles `system`, `developer`). Only the
    first `FIRST_LOOKED_AT` and the last `MESSAGES_LOOKED_AT` messages are examined. A user message
    that holds nothing but blocks is left out, unless no user message would remain: then all user
    messages stay as they are.

    Where instructions had that line, or with `is_agents`, instructions after the user's first
    message are left out too, since the agent wrote them. (The user's words alone do not have this
    effect, because anybody can write a block into them.) Changed messages are copies; the same
    sequence is returned if nothing changes.
    """
    early = max(0, len(messages) - MESSAGES_LOOKED_AT)
    first = min(early, FIRST_LOOKED_AT)
    looked_at = [*messages[:first], *messages[early:]]
    changed = [_own_words(message) for message in looked_at]
    if not any(isinstance(m, Mapping) and m.get("role") == "user" for m in changed):
        changed = [_own_instructions(message) for message in looked_at]
    if not is_agents and all(new is old for new, old in zip(changed, looked_at, strict=True)):
        return messages
    is_named = any(
        new is not old and _is_instruction(old) for new, old in zip(changed, looked_at, strict=True)
    )
    all_of = [*changed[:first], *messages[first:early], *changed[first:]]
    kept = [message for message in all_of if message is not None]
    return _without_later_instructions(kept) if is_agents or is_named else kept


def _is_instruction(message: Any) -> bool:
    """Return whether a message has the role `system` or `developer`."""
    return isinstance(message, Mapping) and message.get("role") in _INSTRUCTING


def _without_later_instructions(messages: Sequence[Any]) -> list[Any]:
    """Return the messages without those of role `system` or `developer` after the first `user`."""
    kept, has_begun = [], False
    for message in messages:
        has_begun = has_begun or (isinstance(message, Mapping) and message.get("role") == "user")
        if not (has_begun and _is_instruction(message)):
            kept.append(message)
    return kept


def _own_words(message: Any) -> Any:
    """Return a user's message without a coding agent's blocks, or None if nothing else is in it.

    Instructions lose the attribution line (None if empty then); other messages and messages without
    blocks are returned unchanged, as the same object.
    """
    if not isinstance(message, Mapping) or message.get("role") != "user":
        return _own_instructions(message)
    content = message.get("content")
    if isinstance(content, str):
        own_text = without_asides(content)
        return (
            message
            if own_text is content
            else {**message, "content": own_text}
            if own_text
            else None
        )
    if not isinstance(content, list):
        return message
    parts = [_own_part(part) for part in content]
    if all(new is old for new, old in zip(parts, content, strict=True)):
        return message
    left_parts = [part for part in parts if part is not None]
    return {**message, "content": left_parts} if left_parts else None


def _own_instructions(message: Any) -> Any:
    """Return instructions without the coding agent's attribution line, or None if empty then.

    A message of another role than `system` and `developer`, or without the line, is returned
    unchanged.
    """
    if not _is_instruction(message):
        return message
    content = message.get("content")
    own_text = own_instructions(content)
    return (
        message if own_text == content else {**message, "content": own_text} if own_text else None
    )


def _own_part(part: Any) -> Any:
    """Return a content part, text or object with `text`, without a coding agent's blocks.

    None if nothing else is in it; the same object if it has no text or no block.
    """
    text = part.get("text") if isinstance(part, Mapping) else part
    if not isinstance(text, str) or (own_text := without_asides(text)) is text:
        return part
    return (
        None
        if not own_text
        else {**part, "text": own_text}
        if isinstance(part, Mapping)
        else own_text
    )
