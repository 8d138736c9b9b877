"""Who asks: what the proxy knows of the client key that a request came with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CALLER: Final = "pinocchio.caller"
"""Where an ASGI scope has its Caller, once the request was let in."""
TAKE: Final = "pinocchio.take"
"""Where it has what takes one more request of the caller's, if these have limits: a callable that
raises RateLimitedError."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of one request; while no keys are required, all of them look alike.

    `generation` numbers the configuration that holds for the request, to its end. `id` is the
    key's: what was asked with it may be fetched by it alone. `key` is the name that policies see.
    """

    generation: int = 1
    id: str | None = None
    key: str | None = None
    team: str | None = None
    max_held: int | None = None  # replies that may wait for review, for the key and for the team
    team_max_held: int | None = None


ANYONE: Final = Caller()
