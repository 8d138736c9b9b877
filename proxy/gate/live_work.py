"""The work in progress for each client key, so that it ends when the key does.

A stream or a WebSocket may last for an hour. When its key is revoked or expires, the work is
cancelled together with the call to upstream. If no reply has begun, the client gets a 401 with the
reason; otherwise its connection ends before the reply does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

GONE = "the client key was revoked or has expired"


class LiveWork:
    """The running tasks of each key, by the key's id; for use on the event loop only."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[asyncio.Task[object]]] = {}
        self._ended: set[asyncio.Task[object]] = set()

    async def run(
        self, key: str, work: Awaitable[None], hang_up: Callable[[], Awaitable[None]]
    ) -> None:
        """Await the work, and call `hang_up` instead if the key ends first.

        Other cancellations are passed on.
        """
        task = asyncio.current_task()
        assert task is not None  # ASGI applications run in a task
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
        """Cancel the work of every key that is not among `keys`, the ids that are still valid."""
        for key in self._tasks.keys() - keys:
            for task in self._tasks[key]:
                self._ended.add(task)
                task.cancel()
