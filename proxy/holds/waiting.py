"""Waiting for a reviewer: a request with an open connection learns of the verdict within a moment.

The desk of this process calls `wake` at once, and PostgreSQL notifies of verdicts given elsewhere.
Verdicts are written to the store, by other processes too (`pinocchio reviews`). So one task polls
it for all waiting requests, only while there are any, and seldom where the store sends
notifications.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import structlog

from proxy.errors import StoreError
from proxy.store.reviews.held_replies import HELD, HeldReply, Store

log = structlog.get_logger(__name__)

ASK_EVERY_S, NOTIFIED_ASK_EVERY_S = 0.25, 2.0
ASKED_AT_ONCE = 10_000  # ids in one query


class Verdicts:
    """The requests that wait for a verdict, and the task that polls the store for them."""

    def __init__(self, store: Store, every_s: float = ASK_EVERY_S) -> None:
        self._store = store
        self._every_s = every_s
        self.is_notified = False  # whether the store reports verdicts given elsewhere
        self._waiting: dict[asyncio.Future[None], str] = {}  # the id that each one waits for
        self._polling: asyncio.Task[None] | None = None
        self._is_over = False  # no request may wait any longer

    async def wait(self, held: HeldReply, wait_s: float) -> str:
        """Wait up to `wait_s` seconds for a decision, and return the reply's state by then.

        That is `HeldReply.current_state`: decided, expired, or still held. Raises StoreError.
        """
        decided = asyncio.get_running_loop().create_future()
        self._waiting[decided] = held.id
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            left_s = 0.0 if self._is_over else min(wait_s, held.expires_at - time.time())
            await asyncio.wait({decided}, timeout=max(0.0, left_s))
        finally:
            del self._waiting[decided]
        now = await self._store.get(held.id)
        return HELD if now is None else now.current_state

    def wake(self, id: str) -> None:
        """End the wait of requests for the review `id`, which is decided.

        Call it on the event loop.
        """
        for future, waiting_for in self._waiting.items():
            if waiting_for == id and not future.done():
                future.set_result(None)

    def end_waits(self) -> None:
        """Wake all waiting requests, since the proxy stops soon; call it on the event loop.

        Later calls of `wait` return at once.
        """
        self._is_over = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def aclose(self) -> None:
        """Stop polling the store; call it when no request waits any more."""
        if self._polling is not None:
            self._polling.cancel()  # it may be sleeping
            with suppress(asyncio.CancelledError):
                await self._polling

    async def _poll(self) -> None:
        """Ask the store about the awaited reviews at intervals, as long as any is awaited.

        A failing store is logged; the requests continue to wait.
        """
        while self._waiting:
            await asyncio.sleep(NOTIFIED_ASK_EVERY_S if self.is_notified else self._every_s)
            ids = list(set(self._waiting.values()))
            try:
                for start in range(0, len(ids), ASKED_AT_ONCE):
                    await self._end_decided_waits(ids[start : start + ASKED_AT_ONCE])
            except StoreError as error:  # the requests go on waiting until their time is over
                log.warning("verdicts_unknown", reason=error.message)

    async def _end_decided_waits(self, ids: list[str]) -> None:
        """End the wait for those of the reviews `ids` that are decided."""
        decided = set(ids) - await self._store.open_ids(ids)
        for future, id in self._waiting.items():
            if id in decided and not future.done():
                future.set_result(None)
