"""The finding of a check of a reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_SHIFT: Final = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check of a reply.

    `is_right` is None if the check only makes the reply more or less likely to be right. `shift` is
    added to the log-odds of correct, clipped to +-3. `reason` is a sentence for the user.
    """

    is_right: bool | None
    shift: float
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", max(-MAX_SHIFT, min(MAX_SHIFT, self.shift)))
