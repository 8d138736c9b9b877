"""What is being done for each client key, so that it can end with the key.

A stream or a WebSocket may go on for an hour. When its key is revoked, or expires, the work is
cancelled, and the call upstream with it. Where no reply has begun, the client is told why with a
401; else its connection ends without the reply's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

GONE = "the client key was revoked or has expired"


class LiveWork:
    """The tasks of every key, by its id; to be used on the event loop alone."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[asyncio.Task[object]]] = {}
        self._ended: set[asyncio.Task[object]] = set()

    async def run(
        self, key: str, work: Awaitable[None], hang_up: Callable[[], Awaitable[None]]
    ) -> None:
        """Does the work; where its key ends before it does, hangs up instead."""
        task = asyncio.current_task()
        assert task is not None  # an ASGI application runs in one
        tasks = self._tasks.setdefault(key, set())
        tasks.add(task)
        try:
            await work
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
        finally:
            tasks.discard(task)
            if not tasks:
                self._tasks.pop(key, None)
        if task in self._ended:
            self._ended.discard(task)
            await hang_up()

    def end_all_but(self, keys: Collection[str]) -> None:
        """From now on these keys alone are good."""
        for key in self._tasks.keys() - keys:
            for task in self._tasks[key]:
                self._ended.add(task)
                task.cancel()
