"""A chain of HMACs over the record: nobody without the key can change a row and make the chain fit.

Each batch of exchanges and each change of the review queue, verdicts, certificates and client keys
appends an entry, in the transaction of the change itself. An entry `covers` rows, each by a digest.
Its `mac` binds them to the entry before:

    digest = SHA-256(covers)        mac = HMAC-SHA-256(key, [sequence, at, kind, table, digest,
                                                             previous mac])

The entries after the first cover the rows that are older than the chain. A running proxy remembers
the last entry that it wrote and the database committed. If that entry is gone, the proxy logs it
and records it in the next entry. An operator can declare such a cut, once, with a name and a
reason, which the chain keeps. The key is `PINOCCHIO_CHAIN_KEY`, or for SQLite a random one in a
file beside the database. PostgreSQL without a key has no chain.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import sqlalchemy as sa
import structlog

from proxy.store.database.tables import metadata, path_of

log = structlog.get_logger(__name__)

KEY_VARIABLE: Final = "PINOCCHIO_CHAIN_KEY"
BEGUN, FORGOTTEN = "begun", "forgotten"
FOUND: Final = "found"  # an entry for rows from before the chain
CUT: Final = "cut"  # an entry for the loss of entries that a running proxy wrote
DECLARED: Final = "declared"  # an entry in which an operator explains cuts
_FOUND_AT_ONCE: Final = 500
_WRITTEN: Final = "pinocchio_audit_head"  # in a connection's info, until the commit
SETTLES_S: Final = 5.0
"""Seconds after which a commit that nobody waited for is on PostgreSQL's disk.

That is three times `wal_writer_delay`, at most 0.6 s by default.
"""
CHAINED: Final = (
    *("exchanges", "held_replies", "verdicts", "feedback"),
    *("withdrawn_grants", "client_keys", "standing_approvals"),
)
_DIGITS: Final = 32  # hexadecimal digits of a row's digest
_LOCK: Final = 0x70696E6F6D  # PostgreSQL's advisory lock, from reading the last entry to the commit
_OPTION: Final = "audit_chain"

Alike: TypeAlias = Mapping[tuple[type, ...], Sequence[Sequence[Any]]]
"""Rows by the types of their values, see `by_types`."""

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
    """The chain of one database, to which connections of an attached engine append.

    A commit that is not durable may be lost when PostgreSQL's server crashes while this process
    lives on. So when a connection breaks, the entries of the last `SETTLES_S` seconds are
    forgotten.
    """

    def __init__(self, url: str, *, is_durable: bool = True) -> None:
        self._url = url
        self._key: bytes | None = None
        self._known: tuple[int, str] | None = None  # the last settled one written here
        self._settles_s = 0.0 if is_durable or path_of(url) is not None else SETTLES_S
        self._settling: deque[tuple[float, tuple[int, str]]] = deque()

    def attach(self, engine: sa.Engine) -> None:
        """Let the connections of an engine append to this chain: changes the engine in place.

        Sets the option by which `note_change` finds the chain, wraps the dialect's commit, and
        listens to rollbacks and lost connections.
        """
        engine.update_execution_options(**{_OPTION: self})
        dialect = engine.dialect

        def do_commit(connection: Any) -> None:
            """Commit, and remember the entry only then, since a commit can fail.

            SQLAlchemy's event `commit` comes before the database commits.
            """
            head = connection.info.pop(_WRITTEN, None)
            type(dialect).do_commit(dialect, connection)
            if head is not None:
                self._note_commit(head)

        dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
        sa.event.listen(engine, "rollback", lambda connection: connection.info.pop(_WRITTEN, None))
        if self._settles_s:
            sa.event.listen(engine, "handle_error", self._forget_unsettled)

    def _note_commit(self, head: tuple[int, str]) -> None:
        """Remember an entry, as (sequence, mac), that the database has committed.

        Where commits need time to settle, it becomes the last known settled entry `SETTLES_S`
        later.
        """
        now, settling = time.monotonic(), self._settling
        if not self._settles_s:
            self._known = head
            return
        settling.append((now, head))
        while settling[0][0] < now - self._settles_s:
            self._known = settling.popleft()[1]

    def _forget_unsettled(self, context: sa.ExceptionContext) -> None:
        """Forget the entries that have not settled when a connection breaks.

        The server may have crashed.
        """
        if context.is_disconnect:
            self._settling.clear()  # settled entries are in `_known`

    def _last_known(self) -> tuple[int, str] | None:
        """Return the last entry committed here as (sequence, mac), settled or not, or None."""
        return self._settling[-1][1] if self._settling else self._known

    def append(self, connection: sa.Connection, kind: str, of: str, covers: bytes) -> None:
        """Add an entry of a kind such as "decided" for rows of table `of`.

        It comes last in a transaction that has written something. `covers` is JSON with the digests
        of the rows by primary key. Before it come an entry for lost entries, or the first entries
        of a new chain, where they are due. Does nothing without a key.
        """
        if (key := self._find_key()) is None:
            return
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        last = connection.execute(_last).one_or_none()
        sequence, previous = (last.sequence, last.mac) if last else (0, "")
        for each_kind, each_of, each_covers in self._entries(connection, last, kind, of, covers):
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
            connection.execute(audit_chain.insert(), {**values, "mac": previous})
        connection.info[_WRITTEN] = sequence, previous

    def _entries(
        self, connection: sa.Connection, last: Any, kind: str, of: str, covers: bytes
    ) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to add for a change, each as (kind, table, covered rows as JSON).

        First, where due, come an entry for entries that are gone (which also logs an error), or the
        first entries of a new chain. The change itself, as in the arguments, comes last.
        """
        if (lost_entry := self._lost_entry(connection, last)) is not None:
            log.error("audit_chain_cut", known_head=lost_entry, hint="pinocchio audit verify")
            if last is not None:
                yield CUT, "", orjson.dumps({"after": lost_entry})
        if last is None:
            yield BEGUN, "", orjson.dumps({"after": lost_entry} if lost_entry is not None else {})
            yield from _entries_before(connection, of, orjson.loads(covers))
        yield kind, of, covers

    def _lost_entry(self, connection: sa.Connection, last: Any) -> str | None:
        """Return the last entry written here, as `SEQUENCE:MAC`, if the database no longer has it.

        None if it is still there, whether last or followed by others, or if nothing was written
        here.
        """
        known = self._last_known()
        if known is None or (last is not None and (last.sequence, last.mac) == known):
            return None
        sequence, mac = known
        query = sa.select(audit_chain.c.mac).where(audit_chain.c.sequence == sequence)
        return None if connection.execute(query).scalar() == mac else f"{sequence}:{mac}"

    def _find_key(self) -> bytes | None:
        """Return the chain's key, or None (which is logged once) for PostgreSQL without a key.

        Creates the key file of a SQLite database if it is missing.
        """
        if self._key is None:
            self._key = chain_key(self._url, make=True)
            if self._key is None:
                _warn_unchained(self._url)
        return self._key


def note_change(
    connection: sa.Connection, kind: str, table: sa.Table, *which: sa.ColumnElement[bool]
) -> None:
    """Append an entry to the chain with digests of the rows of `table` that match `which`.

    `kind` says what happened, such as "decided". The rows are read, so call it last in the
    transaction of the change. Does nothing where the engine has no chain or no key.
    """
    if chain := connection.get_execution_options().get(_OPTION):
        rows = connection.execute(sa.select(table).where(*which)).all()
        chain.append(connection, kind, table.name, digest_rows(table, rows))


def note_rows(connection: sa.Connection, kind: str, table: sa.Table, rows: Alike) -> None:
    """Append an entry to the chain for rows whose values are known, without reading them.

    `rows` are grouped by `by_types`. Does nothing where the engine has no chain; see `note_change`.
    """
    if chain := connection.get_execution_options().get(_OPTION):
        chain.append(connection, kind, table.name, _digest_groups(table, rows))


def note_deletion(connection: sa.Connection, table: sa.Table, before: str) -> None:
    """Append an entry to the chain: rows whose primary key is less than `before` were deleted.

    Retention calls it. Does nothing where the engine has no chain.
    """
    if chain := connection.get_execution_options().get(_OPTION):
        chain.append(connection, FORGOTTEN, table.name, orjson.dumps({"before": before}))


# --- the contents of an entry --------------------------------------------------------------------


def mac_of(key: bytes, entry: Mapping[str, Any]) -> str:
    """Return the HMAC-SHA-256, in hex, of an entry's values (`sequence`, `at`, `kind` ..)."""
    values = [entry[name] for name in ("sequence", "at", "kind", "of", "digest", "previous")]
    return hmac.new(key, orjson.dumps(values), hashlib.sha256).hexdigest()


def digest_rows(table: sa.Table, rows: Iterable[Sequence[Any]]) -> bytes:
    """Return JSON that maps each row's primary key, as text, to its digest.

    For example `{"req_1": "3f2a.."}`.
    """
    return _digest_groups(table, by_types(rows))


def _digest_groups(table: sa.Table, rows: Alike) -> bytes:
    """Return JSON that maps the primary keys of rows to their digests.

    `rows` are grouped by `by_types`.
    """
    key, found = itemgetter(_place_of_key(table)), dict[str, str]()
    for types, alike in rows.items():
        digests = _digests(_shape(table, types), alike)
        found.update(zip(map(str, map(key, alike)), digests, strict=True))
    return orjson.dumps(found)


def digest_of(table: sa.Table, row: Sequence[Any]) -> str:
    """Return the digest of a row, in hex, from its values in the order of the table's columns.

    Nulls and the database's defaults are left out, so that columns can be added later.
    """
    [digest] = _digests(_shape(table, tuple(map(type, row))), [row])
    return digest


def by_types(rows: Iterable[Sequence[Any]]) -> Alike:
    """Group rows by the types of their values, as a dict from the tuple of types to the rows.

    Rows of the same types are digested fast.
    """
    alike: defaultdict[tuple[type, ...], list[Any]] = defaultdict(list)
    for row in rows:
        alike[tuple(map(type, row))].append(row)
    return alike


class _Shape(NamedTuple):
    """How to digest rows of a table whose values have the same types."""

    is_there: Sequence[bool]  # for each column: False if it is null
    names: Sequence[str]  # of the columns that are not null
    defaults: Sequence[tuple[str, Any]]  # of the columns that have one
    converts: Sequence[tuple[str, Callable[[Any], Any]]]  # for types that differ between databases


def _digests(shape: _Shape, rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the digest of each row in hex: SHA-256 of its named values as JSON, `_DIGITS` long."""
    values = map(compress, rows, repeat(shape.is_there))
    records: Iterable[dict[str, Any]] = map(dict, map(zip, repeat(shape.names), values))
    if shape.defaults or shape.converts:
        records = map(_normalize_row, records, repeat(shape))
    return [
        sha256.hexdigest()[:_DIGITS] for sha256 in map(hashlib.sha256, map(orjson.dumps, records))
    ]


def _normalize_row(row: dict[str, Any], shape: _Shape) -> dict[str, Any]:
    """Remove default values from a row, in place, and convert types that databases change.

    Returns the same dict.
    """
    for name, default in shape.defaults:
        if row[name] == default:
            del row[name]
    for name, convert in shape.converts:
        if name in row:
            row[name] = convert(row[name])
    return row


@lru_cache(maxsize=1_024)
def _shape(table: sa.Table, types: tuple[type, ...]) -> _Shape:
    """Return how to digest rows of a table whose values have these types, by column."""
    columns = [each for each in zip(table.columns, types, strict=True) if each[1] is not NoneType]
    defaults = [(column.name, column.server_default) for column, _ in columns]
    converts = [
        (column.name, _CONVERTS.get(column.type.python_type), kind) for column, kind in columns
    ]
    return _Shape(
        [kind is not NoneType for kind in types],
        [str(column.name) for column, _ in columns],
        [(str(n), each.arg) for n, each in defaults if isinstance(each, sa.DefaultClause)],
        [(str(n), convert) for n, convert, kind in converts if convert and convert is not kind],
    )


@lru_cache
def _place_of_key(table: sa.Table) -> int:
    """Return the index of the table's only primary key column among its columns."""
    [key] = table.primary_key.columns
    return [*table.columns].index(key)


def _hash_bytes(value: bytes) -> str:
    """Return the SHA-256 of bytes in hex."""
    return hashlib.sha256(value).hexdigest()


_CONVERTS: Final[Mapping[type, Callable[[Any], Any]]] = {
    bool: bool,
    float: float,
    bytes: _hash_bytes,
}


def _entries_before(
    connection: sa.Connection, of: str, covers: Mapping[str, str]
) -> Iterator[tuple[str, str, bytes]]:
    """Yield entries, as (kind, table, digests as JSON), that cover all rows when a chain begins.

    Each covers at most `_FOUND_AT_ONCE` rows of one table. The rows of table `of` whose keys are in
    `covers` are left out, since another entry covers them.
    """
    from proxy.store.database.tables import all_tables  # which imports this module

    for name in CHAINED:
        table = all_tables().tables[name]
        [key], last = table.primary_key.columns, None
        while True:
            query = sa.select(table).order_by(key).limit(_FOUND_AT_ONCE)
            rows = connection.execute(query if last is None else query.where(key > last)).all()
            if not rows:
                break
            last = rows[-1][_place_of_key(table)]
            fresh = [
                row for row in rows if name != of or str(row[_place_of_key(table)]) not in covers
            ]
            if fresh:
                yield FOUND, name, digest_rows(table, fresh)


# --- the key -------------------------------------------------------------------------------------


def chain_key(url: str, *, make: bool = False) -> bytes | None:
    """Return the chain's key: `PINOCCHIO_CHAIN_KEY`, else the file beside a SQLite database.

    None if there is neither. With `make`, a key file that is missing is created.
    """
    if key := os.environ.get(KEY_VARIABLE):
        return key.encode()
    if (path := path_of(url)) is None:
        return None
    file = key_file(path)
    if make:
        _make(file)
    try:
        return file.read_bytes().strip() or None
    except FileNotFoundError:
        return None


def warn_if_unchained(url: str) -> bool:
    """Return whether the database has no chain because it is PostgreSQL without a key.

    Logs that once for each database.
    """
    if path_of(url) is not None or chain_key(url) is not None:
        return False
    _warn_unchained(url)
    return True


def key_file(path: Path) -> Path:
    """Return the path of the key file beside a SQLite database: `pinocchio.db.chain-key`."""
    return path.with_name(path.name + ".chain-key")


def has_key_file(url: str) -> bool:
    """Return whether a key file is beside the database; False for PostgreSQL, which has none.

    The file is created for the first entry.
    """
    path = path_of(url)
    return path is not None and key_file(path).exists()


def _make(path: Path) -> None:
    """Create a key file with a random key, readable by this user alone, unless the file exists.

    The file is complete as soon as it exists. Of several processes the first one creates it.
    """
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
def _warn_unchained(url: str) -> None:
    """Log that a database has no chain, once for each database."""
    log.warning(
        "audit_chain_off", hint=f"set {KEY_VARIABLE}: PostgreSQL has no place for a key of its own"
    )
