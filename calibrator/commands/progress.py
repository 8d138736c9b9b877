"""Progress of long work with the time left: a bar on a terminal, lines elsewhere.

A line is written after a few seconds and then twice a minute, so that the log of a nightly run
shows its progress. The time left follows from the speed since the first work was done; work that
was done at the start, such as scores of an earlier run, does not count as speed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import typer

FIRST_LINE_S = 5.0
LINE_EVERY_S = 30.0


class Progress:
    """A context manager that shows the progress of one piece of work.

    `total` is the amount of work, in rows or whatever `advance` counts. It is None where it is
    unknown, and 0 where `update` will set it.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        *,
        is_terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the progress of `title`; nothing is shown before the context is entered.

        `is_terminal` None asks stderr whether it is one. `clock` returns seconds.
        """
        self._title, self._total, self._done = title, total, 0
        self._clock = clock
        self._begin: tuple[float, int] | None = None  # time and amount of the first work
        self._next_line = clock() + FIRST_LINE_S
        self._bar = _bar(title, total) if _is_terminal(is_terminal) else None

    def __enter__(self) -> Progress:
        """Show the bar, if there is one, and return the progress."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bar, if there is one."""
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add `count` to the work done."""
        self.update(self._done + count, self._total)

    def update(self, done: int, total: int | None) -> None:
        """Set the amount of work done and the total, and show both.

        Without a terminal a line is printed at most twice a minute.
        """
        self._done, self._total = done, total
        if self._bar is not None:
            self._bar.update(0, completed=done, total=total)
            return
        now = self._clock()
        if self._begin is None:
            self._begin = (now, done)
        if now >= self._next_line and done != total:
            self._next_line = now + LINE_EVERY_S
            self.say(self._line(now))

    def say(self, sentence: str) -> None:
        """Print a line to stderr, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(sentence, markup=False, highlight=False)
        else:
            typer.echo(sentence, err=True)

    def _line(self, now: float) -> str:
        """Return a line such as `scoring: 120 of 400 (30%), 3 min left`."""
        if not self._total:
            return f"{self._title}: {self._done:,}"
        share = f"{self._title}: {self._done:,} of {self._total:,} ({self._done / self._total:.0%})"
        seconds = self._seconds_left(now)
        return share if seconds is None else f"{share}, {duration_text(seconds)} left"

    def _seconds_left(self, now: float) -> float | None:
        """Return the seconds that are left, or None before any work was seen or without a total."""
        if self._begin is None or self._total is None or self._done <= self._begin[1]:
            return None
        seconds_each = (now - self._begin[0]) / (self._done - self._begin[1])
        return seconds_each * (self._total - self._done)


def duration_text(seconds: float) -> str:
    """Return a duration in words, such as `40 s`, `3 min` or `2.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h"


def _is_terminal(wish: bool | None) -> bool:
    """Return whether progress is shown as a bar; for None, whether stderr is a terminal."""
    return sys.stderr.isatty() if wish is None else wish


def _bar(title: str, total: int | None) -> Any:
    """Return rich's progress bar, not shown yet; for the total None it has no time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(title, total=total)
    return bar
