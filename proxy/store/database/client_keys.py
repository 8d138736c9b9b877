"""The table of client keys.

Rows are only added or marked as revoked. So the counts of all keys and of revoked ones show whether
a copy of the table is still current. `pinocchio keys` writes from its own process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.chain import note_change
from proxy.store.database.database import LazyEngine, cause
from proxy.store.database.notifications import KEYS, notify
from proxy.store.database.tables import metadata

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
    sa.Column("surfaces", sa.String),  # names, separated by commas; null: all
    sa.Column("queues", sa.String),  # of a reviewer: names, separated by commas
)


class KeyStore:
    """The keys in the store at `url`, usable from any thread.

    The first method called opens the database. Every method but `close` raises StoreError.
    """

    def __init__(self, url: str) -> None:
        self._engine = LazyEngine(url)

    def add(self, key: ClientKey) -> None:
        """Insert a key, note it in the audit chain and notify other proxies."""
        values = {column.name: getattr(key, column.name) for column in client_keys.columns}
        self._change(client_keys.insert().values(**values), "key_made", key.id)

    def all(self) -> list[ClientKey]:
        """Return all keys, also expired and revoked ones, in the order of their creation."""
        query = sa.select(client_keys).order_by(client_keys.c.created_at, client_keys.c.id)
        return [ClientKey(**row._mapping) for row in self._read(query)]

    def find(self, digest: str) -> ClientKey | None:
        """Return the key with this digest, also an expired or revoked one, or None.

        The digest is the key's SHA-256 in hex.
        """
        rows = self._read(sa.select(client_keys).where(client_keys.c.digest == digest))
        return ClientKey(**rows[0]._mapping) if rows else None

    def has(self, id: str) -> bool:
        """Return whether a key has this id, even if it has expired or been revoked."""
        return bool(self._read(sa.select(client_keys.c.id).where(client_keys.c.id == id)))

    def revoke(self, id: str) -> bool:
        """Mark a key as revoked; return False if there is none or it was revoked before."""
        of_this_id = (client_keys.c.id == id, client_keys.c.revoked_at.is_(None))
        change = client_keys.update().where(*of_this_id).values(revoked_at=time.time())
        return self._change(change, "key_revoked", id)

    def version(self) -> tuple[int, int]:
        """Return (count of all keys, count of revoked keys), which differs after every change."""
        counts = (sa.func.count(), sa.func.count(client_keys.c.revoked_at))
        [row] = self._read(sa.select(*counts).select_from(client_keys))
        return row[0], row[1]

    def close(self) -> None:
        self._engine.close()

    def _read(self, query: sa.Executable) -> list[Any]:
        """Execute a query and return its rows; raises StoreError."""
        try:
            with self._engine.get().connect() as connection:
                return list(connection.execute(query))
        except SQLAlchemyError as error:
            raise StoreError(f"the client keys cannot be read: {cause(error)}") from error

    def _change(self, statement: sa.Insert | sa.Update, kind: str, id: str) -> bool:
        """Execute a statement and return whether it changed rows; raises StoreError.

        If it did, the change of key `id` is noted in the audit chain as `kind`, and other proxies
        are notified.
        """
        try:
            with self._engine.get().begin() as connection:
                is_done = connection.execute(statement).rowcount != 0  # -1: not counted
                if is_done:
                    notify(connection, KEYS, id)
                    note_change(connection, kind, client_keys, client_keys.c.id == id)
                return is_done
        except SQLAlchemyError as error:
            raise StoreError(f"the client keys cannot be written: {cause(error)}") from error


Role = Literal["caller", "reviewer", "admin"]
"""What a key is for: the API (`caller`), the review desk (`reviewer`), or administration (`admin`).

A key has one role.
"""
ROLES: Final[tuple[Role, ...]] = ("caller", "reviewer", "admin")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One key as stored, with times in seconds since the epoch; None means the team's setting."""

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
    surfaces: str | None = None  # those that it may use, separated by commas
    queues: str | None = None  # those that a reviewer sees, separated by commas

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return "revoked", "expired" or "active" at the time `now`, in seconds since the epoch."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"
