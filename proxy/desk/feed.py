"""A live feed of what happens at the desk and in traffic, for browsers that watch.

    event: review
    id: 7
    data: {"number": 7, "review_id": "chatcmpl-held-..", "event": "released", "by": "alice", ..}

    event: traffic
    data: {"seconds": 60, "count": 120, "confidence": 0.71, "actions": {"deliver": 120}}

One task polls the store each second, and only while somebody watches, so that events of every
process are found. A stream whose key was revoked, or whose session has ended, ends then. A client
that names the last number it has received first gets the events after it; an event may arrive
twice, but is not left out. Slow readers are not waited for: what they missed is dropped, and
`event: missed` says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, Final

import structlog

from proxy.errors import RateLimitedError, StoreError
from proxy.http.wire.json_splice import dumps
from proxy.store.queue import MOST_TURNS, ReviewQueue
from proxy.store.reviews.events import ReviewEvent

log = structlog.get_logger(__name__)

ASK_EVERY_S: Final = 0.9
PING_EVERY_S: Final = 15.0
TRAFFIC_S, TRAFFIC_EVERY_S = 60, 3.0  # seconds of traffic in a message, and between messages
MOST_WATCHERS: Final = 50
MOST_WAITING: Final = 100  # messages for one watcher
END: Final = b""
_Waiting = asyncio.Queue[bytes]
PING: Final = b": ping\n\n"
MISSED: Final = b"event: missed\ndata: {}\n\n"


class Feed:
    """The streams of all watchers, on the event loop; `wake` is safe on any thread."""

    def __init__(self, queue: ReviewQueue, every_s: float = ASK_EVERY_S) -> None:
        self._queue = queue
        self._every_s = every_s
        self._watchers: dict[_Waiting, Callable[[], bool]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._last = 0  # the number of the last event that was sent
        self._traffic_at = 0.0  # when the next message about traffic is due

    async def watch(
        self, last_number: int | None = None, may_stay: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """Return a stream of events, as server-sent events, from now on or after `last_number`.

        The stream ends when `may_stay`, which is called on a thread, returns false. Raises
        RateLimitedError where too many watch, and StoreError.
        """
        if len(self._watchers) >= MOST_WATCHERS:
            raise RateLimitedError(f"{MOST_WATCHERS} watch already", PING_EVERY_S)
        if not self._is_polling():
            self._last = await asyncio.to_thread(self._queue.last_event)
        return self._messages(last_number, may_stay)

    def _is_polling(self) -> bool:
        """Return whether the task that polls the store is running."""
        return self._polling is not None and not self._polling.done()

    async def _messages(
        self, last_number: int | None, may_stay: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield the messages of one watcher, with a ping every `PING_EVERY_S` seconds.

        It counts as watching from its first read on, since a client may leave before. The first
        watcher starts the task that polls.
        """
        queue: _Waiting = asyncio.Queue(MOST_WAITING)
        self._watchers[queue] = may_stay
        if not self._is_polling():
            self._loop = asyncio.get_running_loop()
            self._polling = asyncio.create_task(self._poll())
        try:
            yield PING  # so that the headers are sent at once
            for message in await asyncio.to_thread(self._messages_since, last_number):
                yield message
            while not self._is_closed:
                try:
                    message = await asyncio.wait_for(queue.get(), PING_EVERY_S)
                except TimeoutError:
                    message = PING
                if message == END:
                    return
                yield message
        finally:
            self._watchers.pop(queue, None)

    def _messages_since(self, last_number: int | None) -> list[bytes]:
        """Return the messages after number `last_number` that were sent before this stream began.

        If there are too many, `missed` alone is returned. Called on a thread.
        """
        if last_number is None or last_number >= self._last:
            return []
        events = [
            event for event in self._queue.events_after(last_number) if event.number <= self._last
        ]
        return [MISSED] if len(events) == MOST_TURNS else [_review(event) for event in events]

    def wake(self) -> None:
        """Poll the store at once, because something happened in this process."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def end(self) -> None:
        """End every stream; call it on the event loop."""
        self._is_closed = True
        self._send_all([END])
        self._wake.set()

    async def aclose(self) -> None:
        """End every stream, and wait until the task that polls has ended."""
        self.end()
        if self._polling is not None:
            await self._polling

    async def _poll(self) -> None:
        """Poll the store and send its news to all watchers, while there are any.

        An unreadable store is logged once.
        """
        is_logged = False
        while self._watchers and not self._is_closed:
            await self._end_departed()
            try:
                self._send_all(await asyncio.to_thread(self._news))
                is_logged = False
            except StoreError as error:
                if not is_logged:
                    log.warning("desk_events_unknown", reason=error.message)
                is_logged = True
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self._every_s)
            except TimeoutError:
                continue

    async def _end_departed(self) -> None:
        """End the streams of visitors who may not watch any longer.

        Their waiting messages are lost.
        """
        watchers = dict(self._watchers)
        departed = await asyncio.to_thread(
            lambda: [each for each in watchers if not watchers[each]()]
        )
        for watcher in departed:
            if self._watchers.pop(watcher, None) is not None:
                _empty(watcher)
                watcher.put_nowait(END)

    def _news(self) -> list[bytes]:
        """Return the messages about what happened since the last call; call it on a thread.

        Replies whose time is over are marked as expired first. The traffic of the last minute is
        included every `TRAFFIC_EVERY_S`. Raises StoreError.
        """
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

    def _send_all(self, messages: list[bytes]) -> None:
        """Add messages to every watcher's queue; a full queue is emptied and gets `missed`."""
        for watcher in self._watchers:
            if watcher.qsize() + len(messages) > MOST_WAITING:
                _empty(watcher)
                watcher.put_nowait(MISSED)
            for message in messages[: MOST_WAITING - 1]:
                watcher.put_nowait(message)


def _empty(watcher: _Waiting) -> None:
    """Discard all messages that wait for a watcher."""
    while not watcher.empty():
        watcher.get_nowait()


def _review(event: ReviewEvent) -> bytes:
    """Return the server-sent event `review` about a change of a reply, with its number as id."""
    return b"id: %d\n%b" % (event.number, _message("review", asdict(event)))


def _message(kind: str, data: Any) -> bytes:
    """Return a server-sent event of a kind, with its data as JSON."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps(data))
