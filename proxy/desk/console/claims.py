"""Claims: who has a held reply open at the console, so that two people do not do the same work.

A claim lasts a minute, and is renewed while the page stays open. It prevents nobody from deciding:
others see it in the queue and on the page, and are sent to the next reply without a claim. Claims
are in memory: they belong to the desk of one proxy, and end with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

CLAIM_S: Final = 60.0
MOST_CLAIMS: Final = 1_000  # the oldest go first


class _Claim(NamedTuple):
    id: str
    until: float


class Claims:
    """One claim for each person, on the page that they opened last; safe on any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_name: dict[str, _Claim] = {}

    def take(self, id: str, name: str) -> str | None:
        """Claim a reply for a person; return who else has it open, and keeps it, or None."""
        with self._lock:
            if (other := self._holder(id, name)) is not None:
                return other
            self._by_name.pop(name, None)
            self._by_name[name] = _Claim(id, self._clock() + CLAIM_S)
            while len(self._by_name) > MOST_CLAIMS:
                del self._by_name[next(iter(self._by_name))]
            return None

    def others(self, name: str) -> dict[str, str]:
        """Return the replies that other people have open: their names by the reply's id."""
        with self._lock:
            now = self._clock()
            claims = self._by_name.items()
            return {c.id: by for by, c in claims if c.until > now and by != name}

    def end(self, id: str) -> None:
        """Forget who had a reply open, because it is decided."""
        with self._lock:
            for by in [by for by, claim in self._by_name.items() if claim.id == id]:
                del self._by_name[by]

    def _holder(self, id: str, name: str) -> str | None:
        now = self._clock()
        found = (by for by, claim in self._by_name.items() if claim.id == id and claim.until > now)
        return next((by for by in found if by != name), None)
