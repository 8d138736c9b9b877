"""A chain of HMACs over what is recorded: whoever changes a row later cannot make it fit again.

Each batch of exchanges and each turn of the review queue, of verdicts, certificates and client keys
appends an entry, in the transaction of the change itself. An entry `covers` rows, each by a digest;
its `mac` binds them to the entry before:

    digest = SHA-256(covers)        mac = HMAC-SHA-256(key, [sequence, at, kind, table, digest,
                                                             previous mac])

The first entry says how many rows there were before it. The key is `PINOCCHIO_CHAIN_KEY`, else for
SQLite a random one in a file beside the database; PostgreSQL without a key has no chain.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson
import sqlalchemy as sa
import structlog

from proxy.store.database import metadata, path_of

log = structlog.get_logger(__name__)

KEY_VARIABLE: Final = "PINOCCHIO_CHAIN_KEY"
BEGUN, FORGOTTEN = "begun", "forgotten"
CHAINED: Final = (
    *("exchanges", "held_replies", "verdicts", "feedback"),
    *("withdrawn_grants", "client_keys"),
)
_DIGITS: Final = 32  # of a row's digest, in hex
_LOCK: Final = 0x70696E6F6D  # of PostgreSQL, from reading the last entry to the commit
_OPTION: Final = "audit_chain"

audit_chain = sa.Table(
    "audit_chain",
    metadata,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),  # 1, 2, 3 ..
    sa.Column("at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("kind", sa.String, nullable=False),  # what happened
    sa.Column("of", sa.String, nullable=False),  # the table
    sa.Column("covers", sa.Text, nullable=False),  # JSON: digests of rows by primary key
    sa.Column("digest", sa.String, nullable=False),
    sa.Column("previous", sa.String, nullable=False),
    sa.Column("mac", sa.String, nullable=False),
)
_last = sa.select(audit_chain.c.sequence, audit_chain.c.mac)
_last = _last.order_by(audit_chain.c.sequence.desc()).limit(1)


class Chain:
    """The chain of one database; connections of its engine know it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._key: bytes | None = None

    def attach(self, engine: sa.Engine) -> None:
        engine.update_execution_options(**{_OPTION: self})

    def append(self, connection: sa.Connection, kind: str, of: str, covers: bytes) -> None:
        """Adds an entry, last in a transaction that has written something."""
        if (key := self._its_key()) is None:
            return
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        last = connection.execute(_last).one_or_none()
        sequence, previous = (last.sequence, last.mac) if last else (0, "")
        entries = [(kind, of, covers)]
        if last is None:
            entries.insert(0, (BEGUN, "", orjson.dumps(_counts(connection))))
        for each_kind, each_of, each_covers in entries:
            sequence += 1
            values = {
                "sequence": sequence,
                "at": time.time(),
                "kind": each_kind,
                "of": each_of,
                "covers": each_covers.decode(),
                "digest": hashlib.sha256(each_covers).hexdigest(),
                "previous": previous,
            }
            previous = mac_of(key, values)
            connection.execute(audit_chain.insert().values(**values, mac=previous))

    def _its_key(self) -> bytes | None:
        if self._key is None:
            self._key = chain_key(self._url, make=True)
            if self._key is None:
                _say_off(self._url)
        return self._key


def note_change(
    connection: sa.Connection, kind: str, table: sa.Table, *which: sa.ColumnElement[bool]
) -> None:
    """Notes rows as they are after a change, in its transaction and as the last of it."""
    if chain := connection.get_execution_options().get(_OPTION):
        rows = connection.execute(sa.select(table).where(*which)).all()
        chain.append(connection, kind, table.name, covered(table, rows))


def note_rows(
    connection: sa.Connection, kind: str, table: sa.Table, rows: Iterable[Sequence[Any]]
) -> None:
    """As `note_change`, for rows that are known: one value for each column."""
    if chain := connection.get_execution_options().get(_OPTION):
        chain.append(connection, kind, table.name, covered(table, rows))


def note_deletion(connection: sa.Connection, table: sa.Table, before: str) -> None:
    """Notes that rows were deleted whose primary key is less than `before`, as their time came."""
    if chain := connection.get_execution_options().get(_OPTION):
        chain.append(connection, FORGOTTEN, table.name, orjson.dumps({"before": before}))


# --- what an entry says --------------------------------------------------------------------------


def mac_of(key: bytes, entry: Mapping[str, Any]) -> str:
    told = [entry[name] for name in ("sequence", "at", "kind", "of", "digest", "previous")]
    return hmac.new(key, orjson.dumps(told), hashlib.sha256).hexdigest()


def covered(table: sa.Table, rows: Iterable[Sequence[Any]]) -> bytes:
    """The digests of rows by their primary keys, as JSON."""
    key = _place_of_key(table)
    return orjson.dumps({str(row[key]): digest_of(table, row) for row in rows})


def digest_of(table: sa.Table, row: Sequence[Any]) -> str:
    """Of a row's values in the order of the table's columns.

    What is null or the database's default does not count, so that columns can be added.
    """
    told = {
        name: value if convert is None else convert(value)
        for (name, convert, default), value in zip(_shape(table), row, strict=True)
        if value is not None and value != default
    }
    return hashlib.sha256(orjson.dumps(told)).hexdigest()[:_DIGITS]


@lru_cache
def _shape(table: sa.Table) -> list[tuple[str, Callable[[Any], Any] | None, Any]]:
    """For each column its name, what makes one value of several that are stored as one, and its
    default."""
    converts: dict[type, Callable[[Any], Any]] = {bool: bool, float: float, bytes: _hashed}
    return [
        (
            str(column.name),
            converts.get(column.type.python_type),
            column.server_default.arg
            if isinstance(column.server_default, sa.DefaultClause)
            else None,
        )
        for column in table.columns
    ]


@lru_cache
def _place_of_key(table: sa.Table) -> int:
    [key] = table.primary_key.columns
    return [*table.columns].index(key)


def _hashed(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _counts(connection: sa.Connection) -> dict[str, int]:
    """How many rows each table has."""
    from proxy.store.schema import all_tables  # which imports this module

    tables, count = all_tables().tables, sa.select(sa.func.count())
    return {
        name: connection.execute(count.select_from(tables[name])).scalar_one() for name in CHAINED
    }


# --- the key -------------------------------------------------------------------------------------


def chain_key(url: str, *, make: bool = False) -> bytes | None:
    """The key of the chain; None where there is none, unless it can be made."""
    if told := os.environ.get(KEY_VARIABLE):
        return told.encode()
    if (path := path_of(url)) is None:
        return None
    beside = key_file(path)
    if make:
        _make(beside)
    try:
        return beside.read_bytes().strip() or None
    except FileNotFoundError:
        return None


def say_if_off(url: str) -> bool:
    """Whether the database has no chain, for want of a key; the log says so, once."""
    if path_of(url) is not None or chain_key(url) is not None:
        return False
    _say_off(url)
    return True


def key_file(path: Path) -> Path:
    return path.with_name(path.name + ".chain-key")


def has_key_file(url: str) -> bool:
    """Whether there is a key beside the database, which is made for its first entry."""
    path = path_of(url)
    return path is not None and key_file(path).exists()


def _make(path: Path) -> None:
    """Whole or not at all, by the first of several processes, readable by this user alone."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


@lru_cache
def _say_off(url: str) -> None:
    """Once for each database."""
    log.warning(
        "audit_chain_off", hint=f"set {KEY_VARIABLE}: PostgreSQL has no place for a key of its own"
    )
