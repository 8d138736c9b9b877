"""What a client is told of the calls of a reply: their marks and their risks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrator import CallNotes, Mark


def calls_member(
    message: Mapping[str, Any], notes: Sequence[CallNotes], *, has_text: bool = True
) -> list[dict[str, Any]]:
    """What the `pinocchio` object tells of the calls of a choice: their risks and marks.

    Without `has_text` nothing of the call is quoted: the client does not get it.
    """
    listed = message.get("tool_calls")
    ids = [each.get("id") for each in listed] if isinstance(listed, list) else []
    found = []
    for at, note in enumerate(notes):
        id = ids[at] if len(ids) == len(notes) else None
        told: dict[str, Any] = {"id": id} if isinstance(id, str) else {}
        told |= {"risk": note.risk, "reasons": list(note.reasons)}
        marks = [_mark_member(mark, has_text=has_text) for mark in note.marks]
        found.append({**told, "marks": marks} if marks else told)
    return found


def _mark_member(mark: Mark, *, has_text: bool) -> dict[str, Any]:
    told = {"mark": mark.name, "argument": mark.argument, "words": mark.words}
    return {name: text for name, text in told.items() if text and (has_text or name != "words")}
