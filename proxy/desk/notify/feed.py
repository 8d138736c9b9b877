"""What happens at the desk and in traffic, for those who watch, as it happens.

    event: review
    id: 7
    data: {"number": 7, "review_id": "chatcmpl-held-..", "event": "released", "by": "alice", ..}

    event: traffic
    data: {"seconds": 60, "count": 120, "confidence": 0.71, "actions": {"deliver": 120}}

One task asks the store each second, whichever process did what, and only while somebody watches; a
stream whose key was revoked, or whose session has ended, ends then.
Who says which number they have heard last is first told what came after it, a turn twice rather
than not at all.
Who reads too slowly is not waited for: what they missed is dropped, and `event: missed` says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, Final

import structlog

from proxy.errors import RateLimitedError, StoreError
from proxy.store.reviews.events import Event
from proxy.store.reviews.queue import MOST_TURNS, ReviewQueue
from proxy.wire.json_splice import dumps

log = structlog.get_logger(__name__)

ASK_EVERY_S: Final = 0.9
PING_EVERY_S: Final = 15.0
TRAFFIC_S, TRAFFIC_EVERY_S = 60, 3.0  # of the last minute, told so often
MOST_WATCHERS: Final = 50
MOST_WAITING: Final = 100  # messages for one of them
END: Final = b""
_Waiting = asyncio.Queue[bytes]
PING: Final = b": ping\n\n"
MISSED: Final = b"event: missed\ndata: {}\n\n"


class Feed:
    """Lives on the event loop; `wake` may be called from any thread."""

    def __init__(self, queue: ReviewQueue, every_s: float = ASK_EVERY_S) -> None:
        self._queue = queue
        self._every_s = every_s
        self._watchers: dict[_Waiting, Callable[[], bool]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._last = 0  # the number of the last event that was told
        self._traffic_at = 0.0  # when it is told next

    async def watch(
        self, heard: int | None = None, stays: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """A stream of events from now on, or of those after the number `heard`, while `stays`,
        which is asked on a thread, says so.

        Raises RateLimitedError where too many watch, and StoreError.
        """
        if len(self._watchers) >= MOST_WATCHERS:
            raise RateLimitedError(f"{MOST_WATCHERS} watch already", PING_EVERY_S)
        if not self._is_asking():
            self._last = await asyncio.to_thread(self._queue.last_event)
        return self._messages(heard, stays)

    def _is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    async def _messages(self, heard: int | None, stays: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Counts as watching once it is read from: a client may leave before."""
        mine: _Waiting = asyncio.Queue(MOST_WAITING)
        self._watchers[mine] = stays
        if not self._is_asking():
            self._loop = asyncio.get_running_loop()
            self._asking = asyncio.create_task(self._ask())
        try:
            yield PING  # so that the headers are out
            for message in await asyncio.to_thread(self._missed, heard):
                yield message
            while not self._is_closed:
                try:
                    message = await asyncio.wait_for(mine.get(), PING_EVERY_S)
                except TimeoutError:
                    message = PING
                if message == END:
                    return
                yield message
        finally:
            self._watchers.pop(mine, None)

    def _missed(self, heard: int | None) -> list[bytes]:
        """What was told after the number `heard`, before this stream began; on a thread."""
        if heard is None or heard >= self._last:
            return []
        told = [event for event in self._queue.events_after(heard) if event.number <= self._last]
        return [MISSED] if len(told) == MOST_TURNS else [_review(event) for event in told]

    def wake(self) -> None:
        """Something happened in this process: nobody waits for the next second."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def end(self) -> None:
        """Ends every stream; call it on the event loop."""
        self._is_closed = True
        self._tell([END])
        self._wake.set()

    async def aclose(self) -> None:
        """Waits for the last question to the store."""
        self.end()
        if self._asking is not None:
            await self._asking

    async def _ask(self) -> None:
        is_told = False
        while self._watchers and not self._is_closed:
            await self._send_away()
            try:
                self._tell(await asyncio.to_thread(self._news))
                is_told = False
            except StoreError as error:
                if not is_told:
                    log.warning("desk_events_unknown", reason=error.message)
                is_told = True
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self._every_s)
            except TimeoutError:
                continue

    async def _send_away(self) -> None:
        """Ends the streams of those who may watch no longer, before they are told more."""
        asked = dict(self._watchers)
        gone = await asyncio.to_thread(lambda: [each for each in asked if not asked[each]()])
        for watcher in gone:
            if self._watchers.pop(watcher, None) is not None:
                _empty(watcher)
                watcher.put_nowait(END)

    def _news(self) -> list[bytes]:
        """What happened since the last time, on a thread."""
        self._queue.expire()
        news = []
        for event in self._queue.events_after(self._last):
            self._last = event.number
            news.append(_review(event))
        if time.monotonic() >= self._traffic_at:
            self._traffic_at = time.monotonic() + TRAFFIC_EVERY_S
            traffic = self._queue.traffic(time.time() - TRAFFIC_S)
            news.append(_message("traffic", {"seconds": TRAFFIC_S, **traffic}))
        return news

    def _tell(self, messages: list[bytes]) -> None:
        for watcher in self._watchers:
            if watcher.qsize() + len(messages) > MOST_WAITING:
                _empty(watcher)
                watcher.put_nowait(MISSED)
            for message in messages[: MOST_WAITING - 1]:
                watcher.put_nowait(message)


def _empty(watcher: _Waiting) -> None:
    while not watcher.empty():
        watcher.get_nowait()


def _review(event: Event) -> bytes:
    return b"id: %d\n%b" % (event.number, _message("review", asdict(event)))


def _message(kind: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps(data))
