"""The databases of the store and the record: SQLite in one file, or PostgreSQL by URL.

    sqlite:///pinocchio.db
    postgresql://pinocchio:PASSWORD@db.example.com/pinocchio

The PostgreSQL driver is an extra. It is imported when such a URL is opened.
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
from proxy.store.database.tables import parsed_address, path_of, place_of

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.ext.asyncio import AsyncEngine

_one_maker = threading.Lock()  # lets one thread at a time create a file

CONNECT_TIMEOUT_S = 10
_PATIENCE_S = 5.0
_PRAGMAS = (f"busy_timeout={_PATIENCE_S * 1_000:.0f}", "journal_mode=WAL")


def open_engine(url: str, *, is_durable: bool = True) -> sa.Engine:
    """Open an engine, and create the schema or migrate it to this version's.

    Changes made through it are noted in the audit chain. A SQLite file is made readable by its
    owner alone. If `is_durable`, a commit survives a loss of power, else only the end of the
    process. Raises StoreError where the database cannot be opened or a newer version has made its
    schema.
    """
    from proxy.store.database.chain import Chain  # both import the tables, which import this module
    from proxy.store.database.schema import prepare

    engine = _engine(url, is_durable)
    _keep_private(path_of(url))
    try:
        prepare(engine)
    except (SQLAlchemyError, sqlite3.Error, StoreError) as error:
        engine.dispose()
        reason = error.message if isinstance(error, StoreError) else cause(error)
        raise StoreError(f"the store {place_of(url)} cannot be opened: {reason}") from error
    Chain(url, is_durable=is_durable).attach(engine)
    return engine


def open_engine_unchanged(url: str) -> sa.Engine:
    """Return an engine for a database in which nothing is created or migrated, without audit chain.

    Raises StoreError where the driver is missing or the URL cannot be read.
    """
    return _engine(url, is_durable=False)


class LazyEngine:
    """An engine that is opened once, by the first thread that needs it.

    Most processes never use some of the tables, and the imports for them take memory.
    """

    def __init__(self, url: str, *, is_durable: bool = True) -> None:
        self._url = url
        self._is_durable = is_durable
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None

    def get(self) -> sa.Engine:
        """Return the engine, and open it at the first call.

        May wait for the database. Raises StoreError.
        """
        with self._lock:
            if self._engine is None:
                self._engine = open_engine(self._url, is_durable=self._is_durable)
            return self._engine

    def close(self) -> None:
        """Close the connections; the next `get` opens a new engine."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None


def open_async_engine(url: str) -> AsyncEngine:
    """Return an engine for an event loop, on a database that `open_engine` has opened before.

    Its changes are noted in the audit chain. Raises StoreError where the driver is missing or the
    URL cannot be read.
    """
    from proxy.store.database.chain import Chain

    engine = _async_engine(url)
    Chain(url).attach(engine.sync_engine)
    return engine


def _keep_private(path: Path | None) -> None:
    """Make a SQLite file and its companion files readable by their owner alone.

    They hold prompts and replies. A missing file is created with mode 600. SQLite gives the `-wal`
    and `-shm` files the same mode. Files whose mode cannot be changed, such as another user's, stay
    as they are.

    An existing file is never opened here: closing it would release the locks that SQLite has on it.
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
    """Return an INSERT of the connection's dialect, which can have `on_conflict_do_update`.

    Common SQL has no such clause; the dialects are PostgreSQL and SQLite.
    """
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)


def storable(value: Any) -> Any:
    r"""Replace lone surrogates and NUL in a text, which databases refuse, by escapes like `\x00`.

    Other texts, and values of other types, are returned unchanged.
    """
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return value
    return value.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def cause(error: Exception) -> str:
    """Return the first line of the database driver's message, else of the error's own."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


_PASSING = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    )
)
_PASSING_STATES = ("08", "25006", "53", "57")  # no connection, read-only, no resources, stopped


def may_pass(error: Exception) -> bool:
    """Return whether an error is temporary, so that the same write may succeed later.

    That is so where a database is unreachable, locked, read-only or full; False for others.
    """
    original = getattr(error, "orig", None) or error.__cause__ or error
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in _PASSING
    if state := getattr(original, "sqlstate", None):
        return str(state).startswith(_PASSING_STATES)
    return any(each.__name__ == "OperationalError" for each in type(original).__mro__)


def _no_driver() -> str:
    """Return the sentence that PostgreSQL's driver is missing, with the installing command."""
    command = install_command("postgres")
    return f"PostgreSQL needs a driver that is not installed; it comes with: {command}"


def _engine(url: str, is_durable: bool) -> sa.Engine:
    """Return an engine for SQLite or PostgreSQL, and connect to nothing yet.

    Raises StoreError where the driver is missing or the URL cannot be read.
    """
    if path := path_of(url):
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
        sa.event.listen(engine, "connect", _set_pragmas if is_durable else _set_fast_pragmas)
        _reconnect_on_new_file(engine, path)
        return engine
    try:
        engine = sa.create_engine(parsed_address(url), **_postgres_arguments())
    except ImportError as error:
        raise StoreError(_no_driver()) from error
    if not is_durable:
        sa.event.listen(engine, "connect", _commit_without_waiting)
    return engine


def _async_engine(url: str) -> AsyncEngine:
    """Return an engine for an event loop, on SQLite or PostgreSQL, with durable commits.

    Raises StoreError where the driver is missing or the URL cannot be read.
    """
    from sqlalchemy.ext.asyncio import create_async_engine

    if path := path_of(url):
        engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))
        sa.event.listen(engine.sync_engine, "connect", _set_pragmas)
        _reconnect_on_new_file(engine.sync_engine, path)
        return engine
    try:
        return create_async_engine(parsed_address(url), **_postgres_arguments())
    except ImportError as error:
        raise StoreError(_no_driver()) from error


def _reconnect_on_new_file(engine: sa.Engine, path: Path) -> None:
    """Make an engine reconnect when the database's file was deleted or replaced.

    SQLite would go on writing into the deleted file, which nobody could read.
    """

    def note(_: Any, record: Any) -> None:
        """Note in a new connection's record which file the database is."""
        record.info["file"] = _file_at(path)

    def compare(_: Any, record: Any, __: Any) -> None:
        """Raise DisconnectionError, so that the pool reconnects, if the file is another one."""
        if record.info["file"] != _file_at(path):
            raise sa.exc.DisconnectionError("the file of the store is another one")

    sa.event.listen(engine, "connect", note)  # after the pragmas, which create the file
    sa.event.listen(engine, "checkout", compare)


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return a file's (device, inode), which differ for a replaced file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _postgres_arguments() -> dict[str, Any]:
    """Return the arguments of `create_engine` for PostgreSQL: timeout, and a test before use.

    Each connection is tested, since a server may have been restarted.
    """
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_TIMEOUT_S}}


def _set_pragmas(connection: Any, _: Any) -> None:
    _execute_pragmas(connection, *_PRAGMAS, "synchronous=FULL")


def _set_fast_pragmas(connection: Any, _: Any) -> None:
    _execute_pragmas(connection, *_PRAGMAS, "synchronous=NORMAL")


def _execute_pragmas(connection: Any, *pragmas: str) -> None:
    """Execute pragmas, such as `journal_mode=WAL`, on a new SQLite connection."""
    cursor = connection.cursor()
    for pragma in pragmas:
        _execute_patiently(cursor, f"PRAGMA {pragma}")
    cursor.close()


def _execute_patiently(cursor: Any, pragma: str) -> None:
    """Execute a pragma, and retry for `_PATIENCE_S` while the database is locked.

    SQLite itself does not wait when several processes change the journal mode at the same moment.
    """
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
    """Let commits of a PostgreSQL connection return before they are on the disk."""
    connection.execute("SET synchronous_commit TO off")
    connection.commit()
