"""The two phases of a reload, as plain state: all workers change their configuration, or none.

First each worker prepares: it reads the files, builds what it needs, and reports a digest of what
it read. When all have prepared the same, all swap. If one cannot, or read something else, none
swaps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Literal

PREPARE_S: Final = 60.0  # the time in which every worker has to prepare

Outcome = Literal["pending", "agreed", "refused"]

OTHER_FILES: Final = "the files changed while the workers read them; they are read again"
TOO_LATE: Final = f"a worker did not prepare the new configuration within {PREPARE_S:g} s"


class Agreement:
    """The vote of `voters` on generation `number`, whose files have this digest."""

    def __init__(self, number: int, digest: str, voters: Iterable[int]) -> None:
        self.number = number
        self.problems: tuple[str, ...] = ()
        self.read_again = False  # True where only the files' timing was at fault
        self._digest = digest
        self._awaited = set(voters)
        self._until = time.monotonic() + PREPARE_S

    @property
    def outcome(self) -> Outcome:
        """The outcome so far: refused by one, agreed by all, or pending."""
        if self.problems:
            return "refused"
        return "pending" if self._awaited else "agreed"

    def hear(self, voter: int, digest: str | None, problems: Iterable[str] = ()) -> None:
        """Count one worker's vote: the digest that it prepared, or None and its problems.

        Votes of others, and second votes, are ignored.
        """
        if voter not in self._awaited:
            return
        self._awaited.discard(voter)
        if digest is None:
            self.problems = tuple(problems) or ("a worker could not prepare it",)
        elif digest != self._digest:
            self.problems, self.read_again = (OTHER_FILES,), True

    def leave(self, voter: int) -> None:
        """Stop waiting for a worker that is gone; its replacement starts with what is in force."""
        self._awaited.discard(voter)

    def look(self, now: float) -> None:
        """Refuse the change where votes are missing after PREPARE_S; `now` is time.monotonic()."""
        if self.outcome == "pending" and now > self._until:
            self.problems = (TOO_LATE,)
