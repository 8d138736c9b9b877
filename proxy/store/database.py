"""The databases behind the store and the record: SQLite in one file, or PostgreSQL by URL.

    sqlite:///pinocchio.db
    postgresql://pinocchio:PASSWORD@db.example.com/pinocchio

The driver of PostgreSQL is an extra, and imported where such a URL is opened.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from calibrator import install_command
from proxy.errors import StoreError
from proxy.store.tables import parsed_address, path_of, place_of

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.ext.asyncio import AsyncEngine

_one_maker = threading.Lock()  # of a file, before anybody has it open

CONNECT_TIMEOUT_S = 10
_PATIENCE_S = 5.0
_PRAGMAS = (f"busy_timeout={_PATIENCE_S * 1_000:.0f}", "journal_mode=WAL")


def open_engine(url: str, *, is_durable: bool = True) -> sa.Engine:
    """An engine on the schema of this version, made or brought up to it; raises StoreError.

    What is committed survives a loss of power if it `is_durable`, else the end of the process only.
    """
    from proxy.store.chain.chain import Chain  # these import the tables, that import this module
    from proxy.store.schema import prepare

    engine = _engine(url, is_durable)
    _keep_private(path_of(url))
    try:
        prepare(engine)
    except (SQLAlchemyError, sqlite3.Error, StoreError) as error:
        engine.dispose()
        why = error.message if isinstance(error, StoreError) else cause(error)
        raise StoreError(f"the store {place_of(url)} cannot be opened: {why}") from error
    Chain(url, is_durable=is_durable).attach(engine)
    return engine


def engine_as_it_is(url: str) -> sa.Engine:
    """An engine on a database in which nothing is made, and no schema is brought up to date."""
    return _engine(url, is_durable=False)


class LazyEngine:
    """An engine that whoever needs it first opens, once, on whatever thread.

    Most of a process never asks some of its tables for anything, and an import takes memory.
    """

    def __init__(self, url: str, *, is_durable: bool = True) -> None:
        self._url = url
        self._is_durable = is_durable
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None

    def get(self) -> sa.Engine:
        """May wait for the database; raises StoreError."""
        with self._lock:
            if self._engine is None:
                self._engine = open_engine(self._url, is_durable=self._is_durable)
            return self._engine

    def close(self) -> None:
        """Ends its connections; the next `get` opens it anew."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None


def open_async_engine(url: str) -> AsyncEngine:
    """An engine for an event loop, on a database that `open_engine` has seen; raises StoreError."""
    from proxy.store.chain.chain import Chain

    engine = _async_engine(url)
    Chain(url).attach(engine.sync_engine)
    return engine


def _keep_private(path: Path | None) -> None:
    """Prompts and replies are in the file: only its owner reads it, and what SQLite puts beside it,
    which gets the same mode. Where that cannot be, another user's file is as its owner wants.

    A file that is there is never opened: closing it would end the locks that SQLite has on it.
    """
    if path is None:
        return
    with _one_maker, contextlib.suppress(OSError):
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if each.exists() and each.stat().st_mode & 0o077:
                each.chmod(0o600)


def insert_into(table: sa.Table, connection: sa.Connection) -> postgresql.Insert | sqlite.Insert:
    """An insert that may say what is done `on_conflict`, which is no common SQL."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)


def storable(value: Any) -> Any:
    """What JSON can carry and a database cannot, becomes its escape: half a surrogate pair, NUL."""
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return value
    return value.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def cause(error: Exception) -> str:
    """The first line of what the database said."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


_PASSING = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    )
)
_PASSING_STATES = ("08", "25006", "53", "57")  # no connection, read-only, no resources, stopped


def may_pass(error: Exception) -> bool:
    """Whether a database is away, locked, read-only or full: the same may be written later."""
    found = getattr(error, "orig", None) or error.__cause__ or error
    if isinstance(found, sqlite3.Error):
        return getattr(found, "sqlite_errorcode", 0) & 0xFF in _PASSING
    if state := getattr(found, "sqlstate", None):
        return str(state).startswith(_PASSING_STATES)
    return any(each.__name__ == "OperationalError" for each in type(found).__mro__)


def _no_driver() -> str:
    command = install_command("postgres")
    return f"PostgreSQL needs a driver that is not installed; it comes with: {command}"


def _engine(url: str, is_durable: bool) -> sa.Engine:
    if path := path_of(url):
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
        sa.event.listen(engine, "connect", _set_pragmas if is_durable else _set_fast_pragmas)
        _stay_with_file(engine, path)
        return engine
    try:
        engine = sa.create_engine(parsed_address(url), **_of_postgres())
    except ImportError as error:
        raise StoreError(_no_driver()) from error
    if not is_durable:
        sa.event.listen(engine, "connect", _commit_without_waiting)
    return engine


def _async_engine(url: str) -> AsyncEngine:
    from sqlalchemy.ext.asyncio import create_async_engine

    if path := path_of(url):
        engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))
        sa.event.listen(engine.sync_engine, "connect", _set_pragmas)
        _stay_with_file(engine.sync_engine, path)
        return engine
    try:
        return create_async_engine(parsed_address(url), **_of_postgres())
    except ImportError as error:
        raise StoreError(_no_driver()) from error


def _stay_with_file(engine: sa.Engine, path: Path) -> None:
    """Connects anew where somebody has deleted or replaced the file: SQLite would go on to write
    into the one that is gone, and nobody would ever read it."""

    def note(_: Any, record: Any) -> None:
        record.info["file"] = _file_at(path)

    def compare(_: Any, record: Any, __: Any) -> None:
        if record.info["file"] != _file_at(path):
            raise sa.exc.DisconnectionError("the file of the store is another one")

    sa.event.listen(engine, "connect", note)  # after the pragmas, which make the file
    sa.event.listen(engine, "checkout", compare)


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _of_postgres() -> dict[str, Any]:
    """A server may be restarted: a connection is tried before it is used."""
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_TIMEOUT_S}}


def _set_pragmas(connection: Any, _: Any) -> None:
    _set(connection, *_PRAGMAS, "synchronous=FULL")


def _set_fast_pragmas(connection: Any, _: Any) -> None:
    _set(connection, *_PRAGMAS, "synchronous=NORMAL")


def _set(connection: Any, *pragmas: str) -> None:
    cursor = connection.cursor()
    for pragma in pragmas:
        _patiently(cursor, f"PRAGMA {pragma}")
    cursor.close()


def _patiently(cursor: Any, pragma: str) -> None:
    """SQLite does not wait by itself where several change the journal's mode at the same moment."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cursor.execute(pragma)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _commit_without_waiting(connection: Any, _: Any) -> None:
    connection.execute("SET synchronous_commit TO off")
    connection.commit()
