"""The record of exchanges: one row each, written in batches by a thread of its own.

A reply never waits for its row. While the database is unavailable, rows wait in a bounded queue.
Rows beyond the bound, and rows that the database refuses, are dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, compress, repeat
from operator import itemgetter
from types import NoneType
from typing import Any, Final

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.http.wire.worker_threads import ShedCounter, Worker
from proxy.store.database.chain import Alike, by_types, note_rows
from proxy.store.database.database import cause, may_pass, open_engine, storable
from proxy.store.database.tables import metadata
from proxy.store.reviews.polls import Poll, put_polls

log = structlog.get_logger(__name__)

# `Exchange._row` gives one value for each column, in this order (exchange/exchange.py)
exchanges = sa.Table(
    "exchanges",
    metadata,
    sa.Column("request_id", sa.String, primary_key=True),
    sa.Column("started_at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("key_hash", sa.String, nullable=False),  # or the id of one of our client keys
    sa.Column("path", sa.String, nullable=False),
    sa.Column("upstream", sa.String),
    sa.Column("model", sa.String),
    sa.Column("is_stream", sa.Boolean, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),  # the HTTP status that the client got
    sa.Column("error", sa.String),  # our machine code
    sa.Column("confidence", sa.Float),
    sa.Column("confidence_status", sa.String),
    sa.Column("reason", sa.String),
    sa.Column("action", sa.String),  # the one carried out
    sa.Column("would_action", sa.String),  # in shadow mode
    sa.Column("policy", sa.String),  # policy/rule@version
    sa.Column("calibrator", sa.String),
    sa.Column("review_id", sa.String),
    sa.Column("escalated_from", sa.String),
    sa.Column("label", sa.String),  # of an annotated reply
    sa.Column("total_ms", sa.Float, nullable=False),
    sa.Column("overhead_ms", sa.Float, nullable=False),
    sa.Column("score_ms", sa.Float),
    sa.Column("calls", sa.String),  # JSON: each call, where a policy asked more than once
    sa.Column("team", sa.String),
    sa.Column("key", sa.String),  # the name that policies see
    sa.Column("generation", sa.Integer),  # of the configuration, counted from the start
    sa.Column("facts", sa.String),  # those that the policy used, see facts.py
    sa.Column("shadowed", sa.String),  # JSON: what rules in shadow would have done
    sa.Column("score", sa.Float),  # the confidence before a recalibration
    sa.Column("conversation", sa.String),  # a digest of its opening, see openings.py
    sa.Column("standing_approval", sa.String),  # the id of the one that released a call
    sa.Column("support", sa.Float),  # null where there was no context
    sa.Column("basis", sa.String),  # names, separated by commas; null: not known
    sa.Column("act", sa.String),
    sa.Column("needs_facts", sa.Boolean),
    sa.Column("is_familiar", sa.Boolean),
)
conversation_of_row: Final = sa.func.coalesce(exchanges.c.conversation, exchanges.c.request_id)
"""The conversation, or the request id where the request has none."""
COLUMNS = tuple(exchanges.columns.keys())
Row = tuple[Any, ...]
"""One value for each of `COLUMNS`."""
DAY_S: Final = 86_400


def first_id(at: float) -> str:
    """Return the smallest id that an exchange from a time on, in seconds since the epoch, can have.

    Ids begin with the time, see `exchange.new_request_id`.
    """
    return f"req_{max(0, int(at * 1_000)):012x}"


AWAY_S: Final = 1.0  # seconds until an unavailable database is tried again
ROWS_AT_ONCE = 128  # in one statement; each statement takes a lock that delays the event loop
_STARTED_AT, _TOTAL_MS = COLUMNS.index("started_at"), COLUMNS.index("total_ms")
_NAMES = tuple(f'"{name}"' for name in COLUMNS)


@lru_cache(maxsize=1_024)
def _insert(columns: tuple[int, ...], rows: int) -> str:
    """Return the SQLite statement that inserts `rows` rows; `columns` are positions in COLUMNS."""
    placeholders = f"({', '.join('?' * len(columns))})"
    names = ", ".join(_NAMES[column] for column in columns)
    return f"INSERT INTO {exchanges.name} ({names}) VALUES {', '.join([placeholders] * rows)}"


def split_batch(batch: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield the rows in lists of 128, 64, 32 .. 1, so that few statements are prepared."""
    start, size = 0, ROWS_AT_ONCE
    while size:
        while len(batch) - start >= size:
            yield batch[start : start + size]
            start += size
        size //= 2


def _put(connection: sa.Connection, batch: Alike) -> None:
    """Insert rows, grouped by `by_types`: few statements in SQLite, COPY in PostgreSQL.

    Raises SQLAlchemyError, StoreError or ValueError.
    """
    if connection.dialect.name == "sqlite":
        for types, alike in batch.items():  # nulls are left out: they cost as much as values
            columns = tuple(n for n, kind in enumerate(types) if kind is not NoneType)
            for rows in split_batch([*map(itemgetter(*columns), alike)]):
                connection.exec_driver_sql(_insert(columns, len(rows)), tuple(chain(*rows)))
        return
    psycopg: Any = connection.connection
    try:
        with (
            psycopg.cursor() as cursor,
            cursor.copy(f"COPY {exchanges.name} ({', '.join(_NAMES)}) FROM STDIN") as copy,
        ):
            for row in chain(*batch.values()):
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:
        raise StoreError(cause(error)) from error


def _storable_rows(rows: Alike) -> Alike:
    """Return the rows with each value as `storable` returns it.

    Nearly all values need no change, so the rows of one shape are checked together.
    """
    return {types: _storable_alike(types, alike) for types, alike in rows.items()}


def _storable_alike(
    types: tuple[type, ...], rows: Sequence[Sequence[Any]]
) -> Sequence[Sequence[Any]]:
    """Return rows of the same types with each text as `storable` returns it.

    The same rows are returned if all their texts are plain ASCII.
    """
    is_text = [issubclass(kind, str) for kind in types]
    text = "".join(chain.from_iterable(map(compress, rows, repeat(is_text))))
    if text.isascii() and "\0" not in text:
        return rows
    return [tuple(map(storable, row)) for row in rows]


class Records:
    """The queue of rows to be written; `add` never waits, so the event loop may call it."""

    def __init__(
        self,
        url: str,
        *,
        max_queue: int = 50_000,
        every_s: float = 0.2,
        most_rows: int = 2_000,
    ) -> None:
        self._url = url
        self._max_queue = max_queue
        self._most_rows = most_rows
        self._rows: deque[Row | Poll] = deque()
        # rows added within `every_s` share a transaction
        self._worker = Worker("records", self._write_all, gather_s=every_s)
        self._engine: sa.Engine | None = None
        self._shed = ShedCounter("records_shed")
        self._write_error = ""
        self._first_row: Row | Poll | None = None  # the first row of the current batch

    @property
    def shed(self) -> int:
        """The number of rows that were not written."""
        return self._shed.count

    def lag_s(self) -> float:
        """Return how many seconds the oldest unwritten row has waited; 0 if all are written."""
        oldest = self._first_row
        if oldest is None:
            try:
                oldest = self._rows[0]
            except IndexError:
                return 0.0
        return max(0.0, time.time() - _ended_at(oldest))

    def open(self) -> None:
        """Open the database, create or migrate its tables, and start the thread.

        Raises StoreError.
        """
        self._engine = open_engine(self._url, is_durable=False)
        self._worker.start()

    def add(self, row: Row | Poll) -> None:
        """Append a row or a poll to the queue, unless `max_queue` wait already.

        Then it is dropped, counted in `shed` and logged.
        """
        if len(self._rows) >= self._max_queue:
            self._shed.add(1, "queue_full")
            return
        self._rows.append(row)
        self._worker.wake()

    def close(self) -> None:
        """Write what is still queued, end the thread and close the database."""
        if self._engine is not None:
            self._worker.close()
            self._engine.dispose()
            self._engine = None

    def _write_all(self) -> None:
        """Write what is queued, batch by batch, in the worker's thread.

        While the database is unavailable, rows stay queued and are tried again every `AWAY_S`; that
        is logged. When the proxy stops, they are tried once, then dropped and counted.
        """
        is_last, was_away = self._worker.pause(0), False
        while self._rows:
            batch = [self._rows.popleft() for _ in range(min(len(self._rows), self._most_rows))]
            self._first_row = batch[0]
            if not (left := self._write(batch)):
                continue
            self._rows.extendleft(reversed(left))
            if is_last:
                self._shed.add(len(self._rows), self._write_error)
                self._rows.clear()
            elif not was_away:
                was_away = True
                log.warning("records_wait", count=len(self._rows), reason=self._write_error)
            is_last = is_last or self._worker.pause(AWAY_S)
        self._first_row = None
        if was_away and not is_last:
            log.info("records_written_again")

    def _write(self, batch: list[Row | Poll]) -> list[Row | Poll]:
        """Write a batch, or each row alone if the database refuses it, so that few are lost.

        Returns the rows left to be written because the database is unavailable. Rows that are
        refused are dropped and counted.
        """
        assert self._engine is not None
        again = [each for each in batch if isinstance(each, Poll)]
        rows = _storable_rows(by_types(each for each in batch if not isinstance(each, Poll)))
        try:
            with self._engine.begin() as connection:
                if again:
                    put_polls(connection, again)
                if rows:
                    _put(connection, rows)
                    note_rows(connection, "recorded", exchanges, rows)
        except (SQLAlchemyError, StoreError, ValueError) as error:
            if may_pass(error):
                self._write_error = cause(error)
                return batch
            if len(batch) == 1:
                self._shed.add(1, cause(error))
                return []
            for at, row in enumerate(batch):
                if self._write([row]):
                    return batch[at:]
        return []


def _ended_at(row: Row | Poll) -> float:
    """Return when an exchange ended or a poll was answered, in seconds since the epoch."""
    if isinstance(row, Poll):
        return row.at
    started_at, total_ms = row[_STARTED_AT], row[_TOTAL_MS]
    return float(started_at + total_ms / 1_000)
