"""All change their configuration, or none: the two phases of a reload, without any process.

First everybody prepares: each reads the files and builds what it needs, and says a digest of what
it read. When all have prepared the same, all swap; one that cannot, or read something else, and
none does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Literal

PREPARE_S: Final = 60.0  # in which everybody has to be prepared

Outcome = Literal["pending", "agreed", "refused"]

OTHER_FILES: Final = "the files changed while the workers read them; they are read again"
TOO_LATE: Final = f"a worker did not prepare the new configuration within {PREPARE_S:g} s"


class Agreement:
    """On generation `number`, read from files with this digest; `voters` are asked."""

    def __init__(self, number: int, digest: str, voters: Iterable[int]) -> None:
        self.number = number
        self.problems: tuple[str, ...] = ()
        self.read_again = False  # for it was nobody's fault
        self._digest = digest
        self._awaited = set(voters)
        self._until = time.monotonic() + PREPARE_S

    @property
    def outcome(self) -> Outcome:
        """What came of it so far."""
        if self.problems:
            return "refused"
        return "pending" if self._awaited else "agreed"

    def hear(self, voter: int, digest: str | None, problems: Iterable[str] = ()) -> None:
        """One has prepared what has this digest, or says why it cannot."""
        if voter not in self._awaited:
            return
        self._awaited.discard(voter)
        if digest is None:
            self.problems = tuple(problems) or ("a worker could not prepare it",)
        elif digest != self._digest:
            self.problems, self.read_again = (OTHER_FILES,), True

    def leave(self, voter: int) -> None:
        """One is gone: who takes its place begins with what holds then."""
        self._awaited.discard(voter)

    def look(self, now: float) -> None:
        """Time passes."""
        if self.outcome == "pending" and now > self._until:
            self.problems = (TOO_LATE,)
