"""Checks of a database for `pinocchio doctor`, which neither create nor change anything in it."""

from __future__ import annotations

import os
import random
import tempfile
import time
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.database import cause, open_engine_unchanged
from proxy.store.database.schema import LATEST, revision_of, version_table
from proxy.store.database.tables import path_of, place_of

HELD_BYTES: Final = 2**20  # the size of a long held reply

State = Literal["missing", "empty", "older", "current"]


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a database, the seconds to connect, read and write, and its clock's skew.

    `skew_s` is how many seconds the database's clock is ahead of this machine's. It is None for
    SQLite, which has no clock of its own.
    """

    state: State
    latency_s: float = 0.0
    skew_s: float | None = None


def condition_of(url: str) -> Condition:
    """Connect to a database, read its revision and try to write; return its condition.

    `state` is "missing" for a SQLite file that does not exist (it is not created), "empty" for a
    database without a revision, "current" or "older". Nothing stays written. Raises StoreError
    where a step fails, and for a revision that this version cannot use.
    """
    path = path_of(url)
    if path is not None and not path.exists():
        return Condition("missing")
    engine = open_engine_unchanged(url)
    began = time.perf_counter()
    try:
        with engine.connect() as connection:
            revision = revision_of(connection)
            if revision is not None:
                _try_to_write(connection)
            latency_s = time.perf_counter() - began
            skew_s = None if path is not None else _skew_s(connection)
            connection.rollback()
    except SQLAlchemyError as error:
        raise StoreError(f"the store {place_of(url)} cannot be used: {cause(error)}") from error
    finally:
        engine.dispose()
    if revision is None:
        return Condition("empty", latency_s, skew_s)
    return Condition("current" if revision == LATEST else "older", latency_s, skew_s)


def try_to_hold(url: str) -> None:
    """Write a long held reply of 1 MiB into a current store, and roll it back.

    SQLite writes nothing to the disk before a commit, so the reply is also written to a temporary
    file beside the database, which shows whether there is room. Raises StoreError.
    """
    from proxy.store.queue import ReviewQueue

    reply, path = random.randbytes(HELD_BYTES), path_of(url)  # incompressible
    queue = ReviewQueue(url)
    try:
        queue.try_to_hold(reply)
        if path is not None:
            with tempfile.TemporaryFile(dir=path.resolve().parent) as file:
                file.write(reply)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        text = f"{place_of(url)}: a held reply of 1 MB cannot be written: {error.strerror}"
        raise StoreError(text) from error
    finally:
        queue.close()


def _try_to_write(connection: sa.Connection) -> None:
    """Update no rows, which needs the same permission and the same lock as updating many."""
    same = version_table.c.version_num
    connection.execute(version_table.update().where(sa.false()).values(version_num=same))


def _skew_s(connection: sa.Connection) -> float:
    """Return by how many seconds the clock of a PostgreSQL server is ahead of this machine's."""
    now = connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
    return float(now) - time.time()
