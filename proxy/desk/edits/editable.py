"""What of a stored reply may be changed, by the format that it was asked in."""

from __future__ import annotations

from proxy.formats.conversation import format_of
from proxy.formats.edits import Editable
from proxy.holds.held import held_format
from proxy.store.reviews.held_replies import HeldReply
from proxy.wire.json_splice import json_object


def surface_of(held: HeldReply) -> str | None:
    """The path after `/v1` that was asked; older rows only tell it by their ids."""
    if held.path is not None:
        return held.path
    format = held_format(held.id)
    return format.path if format else None


def editable(held: HeldReply) -> Editable | None:
    """What of the reply may be changed; None for what is no answer of a format that is known."""
    completion, format = json_object(held.reply), format_of(surface_of(held))
    if completion is None or format is None:
        return None
    try:
        return format.editable(completion)
    except (KeyError, TypeError, AttributeError):  # upstream's own idea of the format
        return None
