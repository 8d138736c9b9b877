"""How a database is, without making or changing anything in it: for `pinocchio doctor`."""

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
from proxy.store.database import cause, engine_as_it_is
from proxy.store.schema import LATEST, revision_of, version_table
from proxy.store.tables import path_of, place_of

HELD_BYTES: Final = 2**20  # of a long reply that is held

State = Literal["missing", "empty", "older", "current"]


@dataclass(frozen=True, slots=True)
class Condition:
    """`skew_s` is how far the database's own clock is ahead of this machine's, if it has one."""

    state: State
    latency_s: float = 0.0
    skew_s: float | None = None


def condition_of(url: str) -> Condition:
    """Connect, read and try to write; raises StoreError where one of them fails."""
    path = path_of(url)
    if path is not None and not path.exists():
        return Condition("missing")
    engine = engine_as_it_is(url)
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
    """Write what a long held reply takes into a current store, and take it back.

    What SQLite takes back never reaches the disk, so a file beside it shows whether there is room.
    Raises StoreError.
    """
    from proxy.store.reviews.queue import ReviewQueue

    reply, path = random.randbytes(HELD_BYTES), path_of(url)  # nothing that could be compressed
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
    """A change of no row needs the same right, and the same lock, as one of many."""
    same = version_table.c.version_num
    connection.execute(version_table.update().where(sa.false()).values(version_num=same))


def _skew_s(connection: sa.Connection) -> float:
    now = connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
    return float(now) - time.time()
