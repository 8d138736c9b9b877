"""Audited replies are written into the queue by a thread, for which no reply waits.

The number and bytes of waiting replies are bounded, and so is the number of open audits. An audit
beyond that is dropped and counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.http.wire.worker_threads import ShedCounter, Worker
from proxy.store.database.chain import note_change
from proxy.store.database.database import LazyEngine, cause
from proxy.store.database.tables import metadata
from proxy.store.reviews.events import event_values, review_events
from proxy.store.reviews.held_replies import AUDIT, HELD, HeldReply, row_of

held_replies = metadata.tables["held_replies"]
AT_ONCE = 50  # rows in a transaction, during which other writers wait
MAX_OPEN = 10_000  # audited replies that wait for a label


class AuditWriter:
    """The thread that writes audits; it starts, and opens the store, with the first one.

    At most `max_queue` replies of `max_bytes` together wait to be written. `add` never waits, so
    the event loop may call it.
    """

    def __init__(self, url: str, *, max_queue: int = 1_000, max_bytes: int = 64 * 2**20) -> None:
        self._max_queue = max_queue
        self._max_bytes = max_bytes
        self._waiting: deque[HeldReply] = deque()
        self._bytes = 0
        self._lock = threading.Lock()  # for the two above
        self._worker = Worker("audits", self._write_all)
        self._engine = LazyEngine(url)
        self._shed = ShedCounter("audits_shed")

    @property
    def shed(self) -> int:
        """The number of audits that were drawn and not written."""
        return self._shed.count

    def add(self, held: HeldReply) -> None:
        """Append a drawn reply to the queue; drop and count it if the queue is full.

        Never waits. The thread drops it, too, if `MAX_OPEN` audits wait for a label already.
        """
        size = _size(held)
        with self._lock:
            is_full = len(self._waiting) >= self._max_queue or self._bytes + size > self._max_bytes
            if not is_full:
                self._waiting.append(held)
                self._bytes += size
        if is_full:
            self._shed.add(1, "queue_full")
            return
        self._worker.start()
        self._worker.wake()

    def close(self) -> None:
        """Write what is still queued, end the thread and close the database."""
        self._worker.close()
        self._engine.close()

    def _write_all(self) -> None:
        """Write all waiting audits, `AT_ONCE` in a transaction, on the worker's thread."""
        with self._lock:
            batch = list(self._waiting)
            self._waiting.clear()
            self._bytes = 0
        for start in range(0, len(batch), AT_ONCE):
            self._write(batch[start : start + AT_ONCE])

    def _write(self, batch: list[HeldReply]) -> None:
        """Insert a batch of audits with their events, as many as `MAX_OPEN` leaves room for.

        The others are dropped and counted, and so is the whole batch where the store fails.
        """
        try:
            with self._engine.get().begin() as connection:
                open_count = connection.execute(_count_open()).scalar_one()
                room = max(0, MAX_OPEN - open_count)
                if rows := [row_of(each) for each in batch[:room]]:
                    connection.execute(held_replies.insert(), rows)
                    notes = [event_values(row["id"], HELD, row["created_at"]) for row in rows]
                    connection.execute(review_events.insert(), notes)
                    condition = held_replies.c.id.in_([row["id"] for row in rows])
                    note_change(connection, "drawn", held_replies, condition)
        except (SQLAlchemyError, StoreError) as error:
            self._shed.add(len(batch), cause(error))
            return
        if len(batch) > room:
            self._shed.add(len(batch) - room, "too_many_open")


def _count_open() -> sa.Select[Any]:
    """Return the query that counts the audits that wait for a label."""
    open_ones = sa.select(sa.func.count()).select_from(held_replies)
    return open_ones.where(
        held_replies.c.state == HELD,
        held_replies.c.kind == AUDIT,
        held_replies.c.expires_at > time.time(),
    )


def _size(held: HeldReply) -> int:
    """Return the bytes of memory that a waiting reply takes, about."""
    return len(held.reply) + len(held.request or b"") + 4 * len(held.question)
