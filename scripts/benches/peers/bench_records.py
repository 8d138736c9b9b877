"""A check that the proxy wrote exactly one row for every request that it served."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

TABLE = "exchanges"
SETTLES_S = 5.0  # rows are written in batches
PAUSE_S = 0.05
QUIET_S = 0.3  # after this time without a new row, none is expected


class Records:
    """The rows of one proxy's store, counted from the creation of this object."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._baseline = self.settle()

    @property
    def is_kept(self) -> bool:
        """Whether this version of the proxy writes rows at all."""
        return self._baseline is not None

    def settle(self) -> int | None:
        """Return the number of rows once it has been stable for 0.3 s, or after 5 s.

        Return None without a table.
        """
        deadline, changed = time.monotonic() + SETTLES_S, time.monotonic()
        count = self._count()
        while count is not None and (now := time.monotonic()) < deadline:
            if now - changed > QUIET_S:
                break
            time.sleep(PAUSE_S)
            if (latest := self._count()) != count:
                count, changed = latest, time.monotonic()
        return count

    def missing(self, served: int) -> int:
        """Return how many rows for `served` more requests are missing; negative means too many.

        It waits up to 5 s for them. Return 0 if no rows are kept.
        """
        if self._baseline is None:
            return 0
        expected, deadline = self._baseline + served, time.monotonic() + SETTLES_S
        while (count := self._count() or 0) < expected and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self._baseline = count
        return expected - count

    def _count(self) -> int | None:
        """Return the number of rows, or None where there is no such table yet."""
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
                (count,) = database.execute(f"SELECT COUNT(*) FROM {TABLE}").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "unable to open" in str(error):
                return None
            raise
        return int(count)
