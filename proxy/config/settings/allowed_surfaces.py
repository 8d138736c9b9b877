"""The surfaces of the API that a caller may use: all, or those that its key or team names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from proxy.errors import NotAllowedError
from proxy.http.wire.spelling import mints_credentials

SCORED: Final = ("chat", "completions", "responses", "messages")
OTHERS: Final = (
    *("models", "embeddings", "moderations", "images", "audio", "realtime", "rerank"),
    *("files", "uploads", "batches", "fine_tuning", "vector_stores", "conversations"),
    *("assistants", "threads", "containers", "evals", "videos", "skills", "other"),
)
SURFACES: Final = SCORED + OTHERS
"""All surfaces. Each is the first name under `/v1/`; `other` is any other path."""


def surface_of(names: Sequence[str]) -> str | None:
    """Return the surface of a path, given as its names: `["v1", "chat", "completions"]` is `chat`.

    An unknown one is `other`. Return None for a path that does not begin with `/v1`.
    """
    if not names or names[0].casefold() != "v1":
        return None
    first = "".join(names[1:2]).casefold().partition(".")[0]
    return first if first in SURFACES else "other"


def check_minting(names: Sequence[str]) -> None:
    """Refuse a path, given as its names, that gives clients credentials of the upstream's.

    With such a credential a client talks to the upstream past its key here, its limits and the
    record. Operators who want that name the surface in `surfaces`. Raises NotAllowedError.
    """
    if mints_credentials(names):
        surface = surface_of(names)
        raise NotAllowedError(
            "this gives clients a credential of upstream's, past their keys here; name "
            f"{surface!r} in `surfaces` to allow it",
            code="surface_off",
        )


def check_surface(names: Sequence[str], allowed: Collection[str]) -> None:
    """Refuse a path, given as its names, whose surface is not in `allowed`, such as `["chat"]`.

    Paths that do not begin with `/v1` pass. Raises NotAllowedError.
    """
    surface = surface_of(names)
    if surface is not None and surface not in allowed:
        raise NotAllowedError(
            f"the surface {surface!r} is switched off here; allowed: {', '.join(allowed)}",
            code="surface_off",
        )
