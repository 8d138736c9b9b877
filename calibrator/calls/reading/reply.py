"""A reply that calls tools, with its conversation: read once for its number and for its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from calibrator.calls.reading.conversation import View, view_of
from calibrator.calls.reading.grounding import Sources, sources_of
from calibrator.scorer import ToolUse


@dataclass(frozen=True, slots=True)
class ReadReply:
    """What `used` holds, as it is compared: its calls and turns, and where values may come from."""

    used: ToolUse
    view: View
    sources: Sources


def read_reply(used: ToolUse) -> ReadReply:
    """Reads a reply and its conversation; raises nothing, whatever stands in them."""
    view = view_of(used)
    return ReadReply(used, view, sources_of(view))
