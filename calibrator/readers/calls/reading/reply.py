"""A reply that calls tools, with its conversation: read once for its confidence and its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from calibrator.readers.calls.reading.conversation import View, view_of
from calibrator.readers.calls.reading.grounding import Sources, sources_of
from calibrator.scorer import ToolUse


@dataclass(frozen=True, slots=True)
class CallReply:
    """The content of `used`, read: its calls and turns, and the sources of values."""

    used: ToolUse
    view: View
    sources: Sources


def read_reply(used: ToolUse) -> CallReply:
    """Read a reply and its conversation. Raises nothing, whatever they hold."""
    view = view_of(used)
    return CallReply(used, view, sources_of(view))
