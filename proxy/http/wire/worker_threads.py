"""Threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import structlog

P = ParamSpec("P")
Result = TypeVar("Result")

log = structlog.get_logger(__name__)

JOIN_S = 10.0
LOG_EVERY_S = 10.0
AT_A_TIME = 2  # large bodies that are read at once; others wait, which bounds the memory
_threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="read-large")


async def apart(work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Run `work` on one of few shared threads and return its result; raises what it raises."""
    call = partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


class Worker:
    """A background thread that calls `turn` until it is closed.

    With `every_s` it does so at this interval, the first time after `first_s` seconds, and no more
    once it is closing. Without, it does so `gather_s` seconds after it is woken, and a last time
    when it is closed; `turn` then handles all that is waiting. `turn` may not raise.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], None],
        *,
        every_s: float | None = None,
        first_s: float | None = None,
        gather_s: float = 0.0,
    ) -> None:
        self._name = name
        self._turn = turn
        self._gather_s = gather_s
        self._every_s = every_s
        self._first_s = every_s if first_s is None else first_s
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs already or has been closed."""
        if self._thread is None and not self._closing.is_set():
            run = self._run_woken if self._every_s is None else self._run_regularly
            self._thread = threading.Thread(target=run, name=self._name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Request a turn; never blocks, so the event loop may call it."""
        if not self._wake.is_set():
            self._wake.set()

    def pause(self, seconds: float) -> bool:
        """Wait on the thread; returns True as soon as the worker is closing."""
        return self._closing.wait(seconds)

    def close(self) -> None:
        """End the thread and wait for it, at most `JOIN_S` seconds."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None

    def _run_woken(self) -> None:
        """Run a turn after each wake and a last one at the close; this is the thread's function."""
        is_over = False
        while not is_over:
            self._wake.wait()
            self.pause(self._gather_s)
            self._wake.clear()
            is_over = self._closing.is_set()
            self._turn()

    def _run_regularly(self) -> None:
        """Run a turn each `every_s` seconds until the close; this is the thread's function."""
        assert self._every_s is not None
        assert self._first_s is not None
        wait_s = self._first_s
        while not self.pause(wait_s):
            self._turn()
            wait_s = self._every_s


class ShedCounter:
    """A counter of losses that logs its total as `event`, at most once in LOG_EVERY_S."""

    def __init__(self, event: str) -> None:
        self.count = 0
        self._event = event
        self._logged_at = -LOG_EVERY_S

    def add(self, count: int, reason: str) -> None:
        """Add losses to the count and log it, unless it was logged a short time ago."""
        self.count += count
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.error(self._event, count=self.count, reason=reason)
