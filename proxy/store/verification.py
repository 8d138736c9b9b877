"""Verification of the chain: whether the record is as it was written, and where it differs.

Every entry is checked against its MAC and the entry before, every row against the last entry that
covers it. Exchanges are compared entry by entry, so that they are never all in memory. The other
tables have few rows. The chain says which rows retention deleted, so these are no differences.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.chain import (
    BEGUN,
    CHAINED,
    CUT,
    DECLARED,
    FORGOTTEN,
    audit_chain,
    digest_of,
    mac_of,
)
from proxy.store.database.tables import all_tables
from proxy.store.database.verdicts import reading
from proxy.store.record.writer import exchanges

MOST_LISTED: Final = 100
_AT_ONCE: Final = 500
_HEAD: Final = re.compile(r"[1-9][0-9]*:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Break:
    """One difference from what was written; `sequence` is the number of the entry that reveals it.

    `what` is entry_changed, entry_missing, row_changed, row_missing, row_inserted or tail_cut.
    """

    sequence: int | None
    what: str
    of: str
    id: str | None = None

    def __str__(self) -> str:
        """Return the difference as a sentence, such as `entry 12 is gone`."""
        if self.what == "row_inserted":
            return f"{self.of} {self.id}: no entry covers it, so it was inserted"
        if self.what == "tail_cut":
            return f"entry {self.sequence}: it is gone, or another than the head that was told"
        verb = {"changed": "was changed", "missing": "is gone"}[self.what.partition("_")[2]]
        if self.what.startswith("entry"):
            return f"entry {self.sequence} {f'({self.of}) ' if self.of else ''}{verb}"
        return f"entry {self.sequence}: {self.of} {self.id}, which it covers, {verb}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """An operator's statement, in entry `sequence`, of why some cuts are harmless."""

    sequence: int
    at: float
    by: str
    why: str
    cuts: tuple[int, ...]  # the numbers of the entries that record a cut


@dataclass(slots=True)
class VerificationResult:
    """The result of a verification; `head` names the last entry, as SEQUENCE:MAC.

    `rows` are the covered rows by table, `earlier` the rows of a chain without an entry yet,
    `forgotten` rows that retention deleted. The first `unverified` entries could not be
    checked: they were made with another key, and this one has been in use since `verified_since`,
    in seconds since the epoch. `has_entry_of_key` is False if the key made no entry at all: either
    it is wrong, or somebody has changed every entry.
    """

    entries: int = 0
    head: str | None = None
    rows: dict[str, int] = field(default_factory=dict)
    earlier: int = 0
    forgotten: int = 0
    unverified: int = 0
    verified_since: float | None = None
    has_entry_of_key: bool = True
    declared: list[Declaration] = field(default_factory=list)
    count: int = 0  # of all breaks, also those not listed
    breaks: list[Break] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        return self.count == 0

    def count_row(self, table: str) -> None:
        self.rows[table] = self.rows.get(table, 0) + 1

    def add(self, sequence: int | None, what: str, of: str, id: str | None = None) -> None:
        """Count a difference, and list it among the first `MOST_LISTED`."""
        self.count += 1
        if len(self.breaks) < MOST_LISTED:
            self.breaks.append(Break(sequence, what, of, id))


def head_of(engine: sa.Engine) -> str | None:
    """Return the last entry as SEQUENCE:MAC, to be stored elsewhere, or None; raises StoreError."""
    last = sa.select(audit_chain.c.sequence, audit_chain.c.mac)
    with reading(engine) as connection:
        row = connection.execute(last.order_by(audit_chain.c.sequence.desc()).limit(1)).first()
    return f"{row.sequence}:{row.mac}" if row else None


def undeclared_cuts(connection: sa.Connection) -> list[int]:
    """Return the numbers of entries that record a loss which nobody has declared, sorted."""
    query = sa.select(audit_chain.c.sequence, audit_chain.c.kind, audit_chain.c.covers)
    condition = audit_chain.c.kind.in_((BEGUN, CUT, DECLARED))
    cuts, declared = [], set()
    for sequence, kind, covers in connection.execute(query.where(condition)):
        values = json.loads(covers or "{}")
        if kind == DECLARED:
            declared |= {*values["cuts"]}
        elif "after" in values:
            cuts.append(sequence)
    return sorted({*cuts} - declared)


def is_head(text: str) -> bool:
    """Return whether a text has the form SEQUENCE:MAC, a result of `head_of`."""
    return _HEAD.fullmatch(text) is not None


def verify(
    engine: sa.Engine, key: bytes, head: str | None = None, *, has_begun: bool = False
) -> VerificationResult:
    """Compare the record with its chain under `key` and return the findings; raises StoreError.

    Without entries nothing is covered yet, unless the chain `has_begun`. All entries before the
    first one of this key were made with another key or changed; this key cannot tell which. `head`
    is an earlier result of `head_of`. Only with it can verification find that the end of the chain
    was cut off.
    """
    with _snapshot(engine) as connection:
        return _Verification(connection, key, has_begun=has_begun).run(head)


@contextmanager
def _snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Connect so that all reads see the database at one moment, while others go on writing."""
    with reading(engine) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        else:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


class _Verification:
    """One verification, in a connection that sees the database at one moment."""

    def __init__(self, connection: sa.Connection, key: bytes, *, has_begun: bool) -> None:
        self._has_begun = has_begun
        self._connection = connection
        self._key = key
        self._found = VerificationResult()
        self._latest: dict[str, dict[str, tuple[str, int]]] = {name: {} for name in CHAINED}
        self._oldest = ""  # retention deleted the exchanges with ids before it
        self._oldest_at = 0.0
        self._first_at: float | None = None  # the time of the first entry made with this key
        self._cuts: dict[int, str] = {}  # the lost heads, by the entries that record it

    def run(self, head: str | None) -> VerificationResult:
        """Read all entries in order, compare the tables with them, and return the result."""
        self._read_retention()
        self._first_at = self._first_of_key()
        if self._first_at is None and not self._has_begun and not self._has_entries():
            return self._nothing_covered(head)
        self._found.has_entry_of_key = self._first_at is not None
        heads = set()
        sequence, mac = 0, ""
        for entry in self._entries():
            if entry["sequence"] != sequence + 1:
                self._found.add(sequence + 1, "entry_missing", "")
            elif self._is_by_another_key(entry, mac):
                self._found.unverified += 1
            elif not self._is_genuine(entry, mac):
                self._found.add(entry["sequence"], "entry_changed", entry["of"] or entry["kind"])
            sequence, mac = entry["sequence"], entry["mac"]
            heads.add(f"{sequence}:{mac}")
            self._read_entry(entry)
        self._found.verified_since = self._first_at if self._found.unverified else None
        self._found.entries, self._found.head = len(heads), f"{sequence}:{mac}" if heads else None
        if head is not None and head not in heads:
            number = head.partition(":")[0]
            self._found.add(int(number) if number.isdigit() else None, "tail_cut", "")
        self._add_cuts()
        self._look_for_inserted_exchanges()
        for name in CHAINED:
            if name != exchanges.name:
                self._compare_table(all_tables().tables[name])
        self._found.breaks.sort(key=lambda each: (each.sequence is None, each.sequence or 0))
        return self._found

    def _entries(self, *which: sa.ColumnElement[bool]) -> Iterator[Mapping[str, Any]]:
        """Yield the entries that match the conditions, as dicts of columns, in their order."""
        query = sa.select(audit_chain).where(*which).order_by(audit_chain.c.sequence)
        options = {"yield_per": 50}
        with self._connection.execute(query, execution_options=options) as rows:
            for row in rows.mappings():
                yield dict(row)

    def _has_entries(self) -> bool:
        """Return whether the chain has any entry."""
        return (
            self._connection.execute(sa.select(audit_chain.c.sequence).limit(1)).first() is not None
        )

    def _nothing_covered(self, head: str | None) -> VerificationResult:
        """Count all rows as `earlier`, since the chain has no entry yet; a `head` is a cut."""
        count = sa.select(sa.func.count())
        for name in CHAINED:
            rows = self._connection.execute(count.select_from(all_tables().tables[name]))
            self._found.earlier += rows.scalar_one()
        if head is not None:
            self._found.add(int(head.partition(":")[0]), "tail_cut", "")
        return self._found

    def _first_of_key(self) -> float | None:
        """Return the time of the first entry made with this key, or None if it made none."""
        for entry in self._entries():
            if self._is_ours(entry):
                return float(entry["at"])
        return None

    def _is_ours(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the entry's MAC was made with this key."""
        return hmac.compare_digest(mac_of(self._key, entry), entry["mac"])

    def _is_by_another_key(self, entry: Mapping[str, Any], before: str) -> bool:
        """Return whether another key made this entry and all before it, in an unbroken chain.

        Always False for a key that made no entry, since that key is wrong.
        """
        if self._first_at is None or self._found.unverified != entry["sequence"] - 1:
            return False
        is_whole = hashlib.sha256(entry["covers"].encode()).hexdigest() == entry["digest"]
        return not self._is_ours(entry) and entry["previous"] == before and is_whole

    def _is_genuine(self, entry: Mapping[str, Any], before: str) -> bool:
        """Return whether an entry is as this key made it, after the entry with the MAC `before`."""
        if not self._is_ours(entry) or entry["previous"] != before:
            return False
        if not entry["covers"]:  # retention empties the lists of what it has deleted
            return bool(entry["of"] == exchanges.name and entry["at"] < self._oldest_at)
        return bool(hashlib.sha256(entry["covers"].encode()).hexdigest() == entry["digest"])

    def _read_retention(self) -> None:
        """Read up to which request id retention has deleted exchanges, from genuine entries."""
        conditions = audit_chain.c.kind == FORGOTTEN, audit_chain.c.of == exchanges.name
        for entry in self._entries(*conditions):
            if hmac.compare_digest(mac_of(self._key, entry), entry["mac"]):
                self._oldest = max(self._oldest, json.loads(entry["covers"])["before"])
        if self._oldest:
            self._oldest_at = int(self._oldest.removeprefix("req_"), 16) / 1_000

    def _read_entry(self, entry: Mapping[str, Any]) -> None:
        """Remember what an entry says, and compare the exchanges that it covers with the table.

        Rows of other tables are compared at the end, with the last entry that covers each.
        """
        covers = json.loads(entry["covers"] or "{}")
        if entry["kind"] == BEGUN:
            if after := covers.get("after"):
                self._cuts[entry["sequence"]] = after
            return
        if entry["kind"] == CUT:
            self._cuts[entry["sequence"]] = covers["after"]
            return
        if entry["kind"] == DECLARED:
            declaration = covers["by"], covers["why"], tuple(covers["cuts"])
            self._found.declared.append(Declaration(entry["sequence"], entry["at"], *declaration))
            return
        if entry["kind"] == FORGOTTEN:
            return
        if entry["of"] == exchanges.name:
            self._compare_exchanges(entry["sequence"], covers)
        else:
            digests = {id: (digest, entry["sequence"]) for id, digest in covers.items()}
            self._latest.setdefault(entry["of"], {}).update(digests)

    def _add_cuts(self) -> None:
        """Add the cuts that a running proxy found in the chain, unless they are declared."""
        declared = {cut for each in self._found.declared for cut in each.cuts}
        for sequence, head in self._cuts.items():
            if sequence not in declared:
                self._found.add(int(head.partition(":")[0]), "tail_cut", "")

    def _compare_exchanges(self, sequence: int, covers: Mapping[str, str]) -> None:
        """Compare covered exchanges, by id, with the table; count them and add the differences."""
        ids = iter(covers)
        while batch := list(islice(ids, _AT_ONCE)):
            query = sa.select(exchanges).where(exchanges.c.request_id.in_(batch))
            rows = {row[0]: row for row in self._connection.execute(query)}
            for id in batch:
                if (row := rows.get(id)) is not None:
                    self._found.count_row(exchanges.name)
                    if digest_of(exchanges, row) != covers[id]:
                        self._found.add(sequence, "row_changed", exchanges.name, id)
                elif id < self._oldest:
                    self._found.forgotten += 1
                else:
                    self._found.add(sequence, "row_missing", exchanges.name, id)

    def _look_for_inserted_exchanges(self) -> None:
        """Add exchanges that no entry covers as inserted, if the counts show that there are any."""
        count = sa.select(sa.func.count()).select_from(exchanges)
        row_count = self._connection.execute(count).scalar_one()
        uncovered = row_count - self._found.rows.get(exchanges.name, 0)
        if uncovered <= 0:
            return
        covered = set()
        for entry in self._entries(audit_chain.c.of == exchanges.name):
            covered |= json.loads(entry["covers"] or "{}").keys()
        query = sa.select(exchanges.c.request_id).order_by(exchanges.c.request_id.desc())
        for (id,) in self._connection.execute(query, execution_options={"yield_per": _AT_ONCE}):
            if id not in covered:
                self._found.add(None, "row_inserted", exchanges.name, id)

    def _compare_table(self, table: sa.Table) -> None:
        """Compare a table with the last entry that covers each row, and add the differences."""
        latest = self._latest[table.name]
        [key] = table.primary_key.columns
        place = [*table.columns].index(key)
        query = sa.select(table).execution_options(yield_per=_AT_ONCE)
        with self._connection.execute(query) as rows:
            for row in rows:
                id = str(row[place])
                if id not in latest:
                    self._found.add(None, "row_inserted", table.name, id)
                    continue
                digest, sequence = latest.pop(id)
                self._found.count_row(table.name)
                if digest_of(table, row) != digest:
                    self._found.add(sequence, "row_changed", table.name, id)
        for id, (_, sequence) in latest.items():
            self._found.add(sequence, "row_missing", table.name, id)
