"""The finding of a check of a reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_SHIFT: Final = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check of a reply, for example `Finding(False, -2.0, "has no table")`.

    `is_right` is True or False if the check decides whether the reply is right, and None if it
    only makes that more or less likely. `shift` is added to the log-odds of correct; the
    constructor clips it to +-3. `reason` is shown to the user and has the reply as its subject.
    """

    is_right: bool | None
    shift: float
    reason: str

    def __post_init__(self) -> None:
        """Clip `shift` to +-MAX_SHIFT."""
        object.__setattr__(self, "shift", max(-MAX_SHIFT, min(MAX_SHIFT, self.shift)))
