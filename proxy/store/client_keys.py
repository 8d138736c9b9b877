"""The table of client keys.

Rows are added and marked as revoked, and never change or go otherwise: two counts therefore tell
whether a copy of the table is still good. `pinocchio keys` writes from a process of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.chain.chain import note_change
from proxy.store.database import LazyEngine, cause
from proxy.store.notifications import KEYS, notify
from proxy.store.tables import metadata

client_keys = sa.Table(
    "client_keys",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("digest", sa.String, nullable=False, unique=True),
    sa.Column("created_at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("name", sa.String),
    sa.Column("team", sa.String, index=True),
    sa.Column("policy", sa.String),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("max_held", sa.Integer),
    sa.Column("attach", sa.String),
    sa.Column("expires_at", sa.Float),
    sa.Column("revoked_at", sa.Float),
    sa.Column("role", sa.String, nullable=False, server_default="caller"),
    sa.Column("surfaces", sa.String),  # names with commas between; null: all
    sa.Column("queues", sa.String),  # of a reviewer, likewise
)


class KeyStore:
    """The keys in the store at `url`; every method but `close` raises StoreError, from any thread.

    The database is opened by the first of them.
    """

    def __init__(self, url: str) -> None:
        self._engine = LazyEngine(url)

    def add(self, key: ClientKey) -> None:
        values = {column.name: getattr(key, column.name) for column in client_keys.columns}
        self._change(client_keys.insert().values(**values), "key_made", key.id)

    def all(self) -> list[ClientKey]:
        """Every key there ever was, in the order in which they were made."""
        query = sa.select(client_keys).order_by(client_keys.c.created_at, client_keys.c.id)
        return [ClientKey(**row._mapping) for row in self._read(query)]

    def find(self, digest: str) -> ClientKey | None:
        """The key with this digest, whatever its state."""
        rows = self._read(sa.select(client_keys).where(client_keys.c.digest == digest))
        return ClientKey(**rows[0]._mapping) if rows else None

    def has(self, id: str) -> bool:
        """Whether there is a key of this id, whatever its state."""
        return bool(self._read(sa.select(client_keys.c.id).where(client_keys.c.id == id)))

    def revoke(self, id: str) -> bool:
        """False where no key of this id is there to revoke."""
        of_this_id = (client_keys.c.id == id, client_keys.c.revoked_at.is_(None))
        change = client_keys.update().where(*of_this_id).values(revoked_at=time.time())
        return self._change(change, "key_revoked", id)

    def version(self) -> tuple[int, int]:
        """Another value after every change."""
        counts = (sa.func.count(), sa.func.count(client_keys.c.revoked_at))
        [row] = self._read(sa.select(*counts).select_from(client_keys))
        return row[0], row[1]

    def close(self) -> None:
        self._engine.close()

    def _read(self, query: sa.Executable) -> list[Any]:
        try:
            with self._engine.get().connect() as connection:
                return list(connection.execute(query))
        except SQLAlchemyError as error:
            raise StoreError(f"the client keys cannot be read: {cause(error)}") from error

    def _change(self, statement: sa.Insert | sa.Update, kind: str, id: str) -> bool:
        """Whether there was something to change; it is noted in the chain then."""
        try:
            with self._engine.get().begin() as connection:
                is_done = connection.execute(statement).rowcount != 0  # not always told of inserts
                if is_done:
                    notify(connection, KEYS, id)
                    note_change(connection, kind, client_keys, client_keys.c.id == id)
                return is_done
        except SQLAlchemyError as error:
            raise StoreError(f"the client keys cannot be written: {cause(error)}") from error


Role = Literal["caller", "reviewer", "admin"]
"""What a key is for: completions, or the review desk; no key is for both."""
ROLES: Final[tuple[Role, ...]] = ("caller", "reviewer", "admin")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One key as it is kept; times are seconds since the epoch. None: as the team has it."""

    id: str
    digest: str  # SHA-256 of the key, in hex
    created_at: float
    name: str | None = None
    team: str | None = None
    policy: str | None = None
    requests_per_minute: int | None = None
    max_held: int | None = None
    attach: str | None = None  # one of ATTACH
    expires_at: float | None = None
    revoked_at: float | None = None
    role: Role = "caller"
    surfaces: str | None = None  # that it may use, with commas between
    queues: str | None = None  # that a reviewer sees, with commas between

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"
