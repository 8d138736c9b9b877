"""The editable parts of a stored reply, by the format of its request."""

from __future__ import annotations

from proxy.formats.base.edits import Editable
from proxy.formats.conversation import format_of
from proxy.holds.held import held_format
from proxy.http.wire.json_splice import json_object
from proxy.store.reviews.held_replies import HeldReply


def surface_of(held: HeldReply) -> str | None:
    """Return the path of a reply's request after `/v1`, or None.

    Older rows do not store it, so it is derived from their ids.
    """
    if held.path is not None:
        return held.path
    format = held_format(held.id)
    return format.path if format else None


def editable(held: HeldReply) -> Editable | None:
    """Return the editable parts of a reply, or None where it is no answer of a known format."""
    completion, format = json_object(held.reply), format_of(surface_of(held))
    if completion is None or format is None:
        return None
    try:
        return format.editable(completion)
    except (KeyError, TypeError, AttributeError):  # upstream deviates from the format
        return None
