"""A chain of HMACs over what is recorded: whoever changes a row later cannot make it fit again.

Each batch of exchanges and each turn of the review queue, of verdicts, certificates and client keys
appends an entry, in the transaction of the change itself. An entry `covers` rows, each by a digest;
its `mac` binds them to the entry before:

    digest = SHA-256(covers)        mac = HMAC-SHA-256(key, [sequence, at, kind, table, digest,
                                                             previous mac])

The first entry is followed by some that cover the rows that were there before it. What a running
proxy has written last it knows, once the database has committed it: where that is gone, the log
says so, and the next entry does, in the chain itself. An operator can declare such a cut, once,
with a name and a reason, which the chain keeps. The key is `PINOCCHIO_CHAIN_KEY`, else for
SQLite a random one in a file beside the database; PostgreSQL without a key has no chain.
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

from proxy.store.tables import metadata, path_of

log = structlog.get_logger(__name__)

KEY_VARIABLE: Final = "PINOCCHIO_CHAIN_KEY"
BEGUN, FORGOTTEN = "begun", "forgotten"
FOUND: Final = "found"  # of rows that were there before the chain
CUT: Final = "cut"  # in place of entries that a running proxy knew
DECLARED: Final = "declared"  # who says of which cuts why they are harmless
BOUND: Final = "bound"  # in the first entry: rows from before it are covered
_FOUND_AT_ONCE: Final = 500
_WRITTEN: Final = "pinocchio_audit_head"  # of a connection's transaction, until it is committed
SETTLES_S: Final = 5.0
"""After so long a commit that nobody waited for is on PostgreSQL's disk: three times
`wal_writer_delay`, at most 0.6 s by default."""
CHAINED: Final = (
    *("exchanges", "held_replies", "verdicts", "feedback"),
    *("withdrawn_grants", "client_keys", "standing_approvals"),
)
_DIGITS: Final = 32  # of a row's digest, in hex
_LOCK: Final = 0x70696E6F6D  # of PostgreSQL, from reading the last entry to the commit
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
    """The chain of one database; connections of its engine know it.

    A commit that is not durable may be lost when PostgreSQL's server dies, and this process lives
    on. So where a connection ends, the entries of the last `SETTLES_S` before are known no more.
    """

    def __init__(self, url: str, *, is_durable: bool = True) -> None:
        self._url = url
        self._key: bytes | None = None
        self._known: tuple[int, str] | None = None  # the last entry that was written here
        self._settles_s = 0.0 if is_durable or path_of(url) is not None else SETTLES_S
        self._settling: deque[tuple[float, tuple[int, str]]] = deque()

    def attach(self, engine: sa.Engine) -> None:
        """Let the connections of an engine append to this chain."""
        engine.update_execution_options(**{_OPTION: self})
        dialect = engine.dialect

        def do_commit(connection: Any) -> None:
            """Commit, and only then know the entry: a disk may be full, a connection may end.

            SQLAlchemy's event `commit` comes before the database is asked.
            """
            head = connection.info.pop(_WRITTEN, None)
            type(dialect).do_commit(dialect, connection)
            if head is not None:
                self._committed(head)

        dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
        sa.event.listen(engine, "rollback", lambda connection: connection.info.pop(_WRITTEN, None))
        if self._settles_s:
            sa.event.listen(engine, "handle_error", self._failed)

    def _committed(self, head: tuple[int, str]) -> None:
        now, settling = time.monotonic(), self._settling
        if not self._settles_s:
            self._known = head
            return
        settling.append((now, head))
        while settling[0][0] < now - self._settles_s:
            self._known = settling.popleft()[1]

    def _failed(self, context: sa.ExceptionContext) -> None:
        """A connection has ended; perhaps the server has died."""
        if context.is_disconnect:
            self._settling.clear()  # what came long enough before the last of them is known

    def _last_known(self) -> tuple[int, str] | None:
        return self._settling[-1][1] if self._settling else self._known

    def append(self, connection: sa.Connection, kind: str, of: str, covers: bytes) -> None:
        """Adds an entry, last in a transaction that has written something."""
        if (key := self._its_key()) is None:
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
        """What is added for a change: kind, table and rows."""
        if (lost := self._lost(connection, last)) is not None:
            log.error("audit_chain_cut", known_head=lost, hint="pinocchio audit verify")
            if last is not None:
                yield CUT, "", orjson.dumps({"after": lost})
        if last is None:
            told = {BOUND: True} | ({"after": lost} if lost is not None else {})
            yield BEGUN, "", orjson.dumps(told)
            yield from _there_before(connection, of, orjson.loads(covers))
        yield kind, of, covers

    def _lost(self, connection: sa.Connection, last: Any) -> str | None:
        """The entry that was written here last, where the database has it no more."""
        known = self._last_known()
        if known is None or (last is not None and (last.sequence, last.mac) == known):
            return None
        sequence, mac = known
        its = sa.select(audit_chain.c.mac).where(audit_chain.c.sequence == sequence)
        return None if connection.execute(its).scalar() == mac else f"{sequence}:{mac}"

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


def note_rows(connection: sa.Connection, kind: str, table: sa.Table, rows: Alike) -> None:
    """As `note_change`, for rows that are known."""
    if chain := connection.get_execution_options().get(_OPTION):
        chain.append(connection, kind, table.name, _covered(table, rows))


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
    return _covered(table, by_types(rows))


def _covered(table: sa.Table, rows: Alike) -> bytes:
    key, found = itemgetter(_place_of_key(table)), dict[str, str]()
    for types, alike in rows.items():
        digests = _digests(_shape(table, types), alike)
        found.update(zip(map(str, map(key, alike)), digests, strict=True))
    return orjson.dumps(found)


def digest_of(table: sa.Table, row: Sequence[Any]) -> str:
    """Of a row's values in the order of the table's columns.

    What is null or the database's default does not count, so that columns can be added.
    """
    [digest] = _digests(_shape(table, tuple(map(type, row))), [row])
    return digest


def by_types(rows: Iterable[Sequence[Any]]) -> Alike:
    """Rows by the types of their values: what is done for all that are alike is done fast."""
    alike: defaultdict[tuple[type, ...], list[Any]] = defaultdict(list)
    for row in rows:
        alike[tuple(map(type, row))].append(row)
    return alike


class _Shape(NamedTuple):
    """How rows of the same types are read."""

    is_there: Sequence[bool]  # of each column: what is null is not
    names: Sequence[str]  # of the columns that are there
    defaults: Sequence[tuple[str, Any]]  # of those that have one
    converts: Sequence[tuple[str, Callable[[Any], Any]]]  # make one value of several stored as one


def _digests(shape: _Shape, rows: Sequence[Sequence[Any]]) -> list[str]:
    values = map(compress, rows, repeat(shape.is_there))
    told: Iterable[dict[str, Any]] = map(dict, map(zip, repeat(shape.names), values))
    if shape.defaults or shape.converts:
        told = map(_settled, told, repeat(shape))
    return [sha256.hexdigest()[:_DIGITS] for sha256 in map(hashlib.sha256, map(orjson.dumps, told))]


def _settled(told: dict[str, Any], shape: _Shape) -> dict[str, Any]:
    """Leaves out defaults, and makes one value of several that are stored as one."""
    for name, default in shape.defaults:
        if told[name] == default:
            del told[name]
    for name, convert in shape.converts:
        if name in told:
            told[name] = convert(told[name])
    return told


@lru_cache(maxsize=1_024)
def _shape(table: sa.Table, types: tuple[type, ...]) -> _Shape:
    there = [each for each in zip(table.columns, types, strict=True) if each[1] is not NoneType]
    defaults = [(column.name, column.server_default) for column, _ in there]
    converts = [
        (column.name, _CONVERTS.get(column.type.python_type), kind) for column, kind in there
    ]
    return _Shape(
        [kind is not NoneType for kind in types],
        [str(column.name) for column, _ in there],
        [(str(n), each.arg) for n, each in defaults if isinstance(each, sa.DefaultClause)],
        [(str(n), convert) for n, convert, kind in converts if convert and convert is not kind],
    )


@lru_cache
def _place_of_key(table: sa.Table) -> int:
    [key] = table.primary_key.columns
    return [*table.columns].index(key)


def _hashed(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


_CONVERTS: Final[Mapping[type, Callable[[Any], Any]]] = {bool: bool, float: float, bytes: _hashed}


def _there_before(
    connection: sa.Connection, of: str, covers: Mapping[str, str]
) -> Iterator[tuple[str, str, bytes]]:
    """Entries that cover the rows of all tables, but for those of `of` that are covered anyway."""
    from proxy.store.tables import all_tables  # which imports this module

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
                yield FOUND, name, covered(table, fresh)


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
