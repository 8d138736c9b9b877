"""Retention: late holds expire, and old exchanges and the content of old holds are deleted.

A thread does this in slices. Each is one short transaction, so that no writer waits for long.
Deletions are noted in the chain, so that verification can tell them from rows that somebody else
deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.http.wire.worker_threads import Worker
from proxy.store.database.chain import audit_chain, note_change, note_deletion
from proxy.store.database.database import LazyEngine, cause
from proxy.store.queue import ReviewQueue
from proxy.store.record.writer import DAY_S, exchanges, first_id
from proxy.store.reviews.held_replies import HELD, escalate_some, expire_some, held_replies
from proxy.store.reviews.outbox import DeliveryOutbox
from proxy.store.reviews.polls import polls

log = structlog.get_logger(__name__)

EXPIRE_EVERY_S: Final = 10.0
FIRST_AFTER_S: Final = 5.0  # seconds, since a starting proxy has other work
FORGET_EVERY_S: Final = 3_600.0
PAUSE_S: Final = 0.02  # seconds between slices, for other writers
EXCHANGES_AT_ONCE: Final = 2_000
CONTENTS_AT_ONCE: Final = 200
ENTRIES_AT_ONCE: Final = 200
Slice = Callable[[sa.Connection], int]
"""One transaction of work; returns how many rows it changed, 0 when nothing is left."""


class Retention:
    """A thread that deletes exchanges after `keep_days` and content after `keep_content_days`.

    With `keep_days` 0 all exchanges are kept. The days of content count from the decision on its
    reply or its expiry. Content that a client may still fetch is kept.
    """

    def __init__(self, url: str, keep_days: float, keep_content_days: float) -> None:
        self._url = url
        self._keep_days = keep_days
        self._keep_content_days = keep_content_days
        self._worker = Worker(
            "retention", self._turn, every_s=EXPIRE_EVERY_S, first_s=FIRST_AFTER_S
        )
        self._forget_at = 0.0
        self._engine = LazyEngine(url)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._worker.close()
        self._engine.close()

    def expire(self) -> None:
        """Mark held replies that are past their time as expired, and escalate those that are due.

        Raises StoreError.
        """
        self._in_slices(expire_some)
        self._in_slices(escalate_some)

    def forget(self) -> None:
        """Delete exchanges, polls, content, events and deliveries past their retention, in slices.

        Raises StoreError.
        """
        now = time.time()
        if self._keep_days:
            oldest_at = now - self._keep_days * DAY_S
            self._in_slices(lambda connection: _forget_exchanges(connection, oldest_at))
            self._in_slices(lambda connection: _clear_lists(connection, oldest_at))
            self._in_slices(lambda connection: _forget_polls(connection, oldest_at))
        decided_before = now - self._keep_content_days * DAY_S
        self._in_slices(lambda connection: _forget_content(connection, decided_before))
        queue, outbox = ReviewQueue(self._url), DeliveryOutbox(self._url)
        try:
            queue.forget_events()
            outbox.forget()
        finally:
            queue.close()
            outbox.close()

    def _turn(self) -> None:
        """Mark and escalate what is due, and delete what is old once an hour (`FORGET_EVERY_S`).

        Logs an error of the store.
        """
        try:
            self.expire()
            if time.monotonic() >= self._forget_at:
                self._forget_at = time.monotonic() + FORGET_EVERY_S
                self.forget()
        except StoreError as error:
            log.error("retention_failed", reason=error.message)

    def _in_slices(self, work: Slice) -> None:
        """Repeat `work` on one connection, with pauses, until it returns 0 or the proxy stops.

        Raises StoreError if the database fails.
        """
        try:
            with self._engine.get().connect() as connection:
                while work(connection) and not self._worker.pause(PAUSE_S):
                    pass
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error


def _forget_exchanges(connection: sa.Connection, oldest_at: float) -> int:
    """Delete up to `EXCHANGES_AT_ONCE` exchanges that began before `oldest_at`; return how many.

    The deletion is noted in the audit chain.
    """
    before = first_id(oldest_at)
    batch = sa.select(exchanges.c.request_id).where(exchanges.c.request_id < before)
    batch = batch.order_by(exchanges.c.request_id).limit(EXCHANGES_AT_ONCE)
    if not connection.execute(batch.limit(1)).all():
        return 0
    connection.rollback()
    count = connection.execute(exchanges.delete().where(exchanges.c.request_id.in_(batch))).rowcount
    note_deletion(connection, exchanges, before)
    connection.commit()
    return count


def _forget_polls(connection: sa.Connection, oldest_at: float) -> int:
    """Delete up to `EXCHANGES_AT_ONCE` polls from before `oldest_at`; return how many."""
    before = first_id(oldest_at)
    batch = sa.select(polls.c.request_id).where(polls.c.request_id < before)
    batch = batch.order_by(polls.c.request_id).limit(EXCHANGES_AT_ONCE)
    count = connection.execute(polls.delete().where(polls.c.request_id.in_(batch))).rowcount
    connection.commit()
    return count


def _clear_lists(connection: sa.Connection, oldest_at: float) -> int:
    """Clear the lists of covered rows in up to `ENTRIES_AT_ONCE` old chain entries, and commit.

    Their exchanges have been deleted; the entries themselves stay. Returns how many were changed.
    """
    is_old = audit_chain.c.of == exchanges.name, audit_chain.c.kind == "recorded"
    batch = sa.select(audit_chain.c.sequence).where(*is_old, audit_chain.c.at < oldest_at)
    batch = batch.where(audit_chain.c.covers != "").limit(ENTRIES_AT_ONCE)
    if not connection.execute(batch.limit(1)).all():
        return 0
    connection.rollback()
    change = audit_chain.update().where(audit_chain.c.sequence.in_(batch))
    count = connection.execute(change.values(covers="")).rowcount
    connection.commit()
    return count


def _forget_content(connection: sa.Connection, decided_before: float) -> int:
    """Delete the content of up to `CONTENTS_AT_ONCE` decided replies, and keep their facts.

    No client may fetch them any more. It is noted in the audit chain. Returns how many.
    """
    held = held_replies.c
    is_over = held.state != HELD, held.decided_at < decided_before, held.expires_at < time.time()
    batch = sa.select(held.id).where(*is_over, sa.func.length(held.reply) > 0)
    batch = batch.limit(CONTENTS_AT_ONCE)
    ids = connection.execute(batch).scalars().all()
    connection.rollback()
    if not ids:
        return 0
    change = held_replies.update().where(held.id.in_(ids))
    edits = {
        each.name: sa.case((each.is_(None), None), else_=b"")
        for each in (held.revised, held.proposed)
    }
    gone = change.values(question="", reply=b"", request=None, findings=None, **edits)
    connection.execute(gone)
    note_change(connection, "content_deleted", held_replies, held.id.in_(ids))
    connection.commit()
    return len(ids)
