"""Whether the proxy wrote a row for every request that it served: neither more nor fewer."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

TABLE = "exchanges"
SETTLES_S = 5.0  # rows are written in batches
PAUSE_S = 0.05
QUIET_S = 0.3  # so long without a new row, and there will be none


class Records:
    """The rows of one proxy's store, counted from the moment this is made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._baseline = self.settle()

    @property
    def is_kept(self) -> bool:
        """Whether this version of the proxy writes rows at all."""
        return self._baseline is not None

    def settle(self) -> int | None:
        """The number of rows, once it has not changed for a moment."""
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
        """How many of the rows for `served` more requests are not there; negative: too many."""
        if self._baseline is None:
            return 0
        expected, deadline = self._baseline + served, time.monotonic() + SETTLES_S
        while (count := self._count() or 0) < expected and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self._baseline = count
        return expected - count

    def _count(self) -> int | None:
        """None where there is no such table yet."""
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
                (count,) = database.execute(f"SELECT COUNT(*) FROM {TABLE}").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "unable to open" in str(error):
                return None
            raise
        return int(count)
