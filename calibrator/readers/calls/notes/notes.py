"""The notes of a reply: the marks and the risk of each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from calibrator.readers.calls.notes.marks import marks_of
from calibrator.readers.calls.notes.risk import risk_of_call
from calibrator.readers.calls.notes.said import SaidText
from calibrator.readers.calls.reading.conversation import calls_in
from calibrator.readers.calls.reading.grounding import sources_of
from calibrator.readers.calls.reading.reply import CallReply, read_reply
from calibrator.readers.calls.reading.rules import sentences_of
from calibrator.scorer import CallNotes, ToolUse


def call_notes(used: ToolUse) -> tuple[CallNotes, ...] | None:
    """Return the notes of each call of a reply, in order; None if it makes too many calls to read.

    Raises nothing, whatever the reply holds.
    """
    return notes_of(read_reply(used))


def has_unread_calls(reply: CallReply) -> bool:
    """Return whether a reply makes more calls than are read."""
    message = reply.used.message
    made = calls_in(message) if isinstance(message, Mapping) else []
    return len(made) > len(reply.view.calls)


def notes_of(reply: CallReply) -> tuple[CallNotes, ...] | None:
    """Return the notes of each call of a reply that has been read.

    None if it makes too many calls.
    """
    view = reply.view
    if has_unread_calls(reply):
        return None
    sources = reply.sources
    if view.turns != view.whole_turns:  # what the user wrote was said, however short
        view = replace(view, turns=view.whole_turns)
        sources = sources_of(view)
    said, sentences = SaidText(view, sources), sentences_of(view.rules)
    found = []
    for call in view.calls:
        tool = view.tools.get(call.name)
        risk, reasons = risk_of_call(call, tool, said)
        found.append(CallNotes(marks_of(call, tool, said, sentences), risk, reasons))
    return tuple(found)
