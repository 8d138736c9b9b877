"""The client key that a request came with, as the rest of the proxy sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CALLER: Final = "pinocchio.caller"
"""The key of an ASGI scope that holds the Caller, once the request was admitted."""
TAKE: Final = "pinocchio.take"
"""The key of an ASGI scope that holds the caller's rate limiter, if the caller has limits: a
callable that counts one more request and raises RateLimitedError where it exceeds them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of one request; all clients are equal while no keys are required.

    `generation` is the number of the configuration that applies to the request until its end. `id`
    identifies the key: only this key may fetch the replies to its own requests. `key` is the name
    that policies see.
    """

    generation: int = 1
    id: str | None = None
    key: str | None = None
    team: str | None = None
    max_held: int | None = None  # the key's replies that may wait for review
    team_max_held: int | None = None  # the team's


ANYONE: Final = Caller()
