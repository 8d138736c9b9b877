"""Later findings about replies: verdicts, and certificates that no longer hold.

A verdict is a person's label of a recorded reply. Several people may label the same one. A
withdrawn grant is one that monitors have stopped relying on, also after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError
from proxy.store.database.chain import note_change
from proxy.store.database.database import cause, insert_into, open_engine
from proxy.store.database.tables import metadata

verdicts = sa.Table(
    "verdicts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),  # in the order in which they were given
    sa.Column("request_id", sa.String, nullable=False),
    sa.Column("is_correct", sa.Boolean, nullable=False),
    sa.Column("given_at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("reviewer", sa.String, nullable=False, server_default=""),  # "": unknown
    sa.Column("note", sa.Text),
    sa.Index("one_verdict_of_a_reviewer", "request_id", "reviewer", unique=True),
)
_withdrawn = sa.Table(
    "withdrawn_grants",
    metadata,
    sa.Column("grant_digest", sa.String, primary_key=True),
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("scope", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),  # a word of `policies.withdrawal`
    sa.Column("withdrawn_at", sa.Float, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A grant that no longer counts, by its digest; the other members are for people."""

    grant_digest: str
    policy: str
    scope: str
    reason: str
    withdrawn_at: float


class VerdictStore:
    """Verdicts and withdrawals in the store at `url`.

    Each method may wait for the database, and raises StoreError.
    """

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)

    def close(self) -> None:
        self.engine.dispose()

    def withdrawals(self) -> list[Withdrawal]:
        """Return all withdrawals, the oldest first."""
        with reading(self.engine) as connection:
            rows = connection.execute(_withdrawn.select().order_by(_withdrawn.c.withdrawn_at))
            return [Withdrawal(*row) for row in rows]

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Store a withdrawal and note it in the audit chain.

        Does nothing if the same grant was withdrawn before.
        """
        with self._write_transaction() as connection:
            new = insert_into(_withdrawn, connection).values(**asdict(withdrawal))
            statement = new.on_conflict_do_nothing().returning(_withdrawn.c.grant_digest)
            if connection.execute(statement).first():
                is_it = _withdrawn.c.grant_digest == withdrawal.grant_digest
                note_change(connection, "withdrawn", _withdrawn, is_it)

    def verdict_of(self, request_id: str, reviewer: str) -> bool | None:
        """Return whether a reviewer labelled a reply as correct; None if they gave no label."""
        query = sa.select(verdicts.c.is_correct).where(
            verdicts.c.request_id == request_id, verdicts.c.reviewer == reviewer
        )
        with reading(self.engine) as connection:
            return connection.execute(query).scalar_one_or_none()

    def give_verdict(
        self, request_id: str, is_correct: bool, reviewer: str = "", note: str | None = None
    ) -> None:
        """Store a label of a reply, in place of an earlier one by this reviewer."""
        with self._write_transaction() as connection:
            keep_label(connection, request_id, is_correct, reviewer, note)

    @contextmanager
    def _write_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction, committed at the end; an error of the database becomes StoreError."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written: {cause(error)}") from error


def keep_label(
    connection: sa.Connection, request_id: str, is_correct: bool, reviewer: str, note: str | None
) -> None:
    """Store a label of a reply in the caller's transaction, in place of an earlier one.

    A reviewer has one label of each reply. It is noted in the audit chain.
    """
    values = {"is_correct": is_correct, "given_at": time.time(), "note": note}
    label_key = {"request_id": request_id, "reviewer": reviewer}
    new = insert_into(verdicts, connection).values(**label_key, **values)
    connection.execute(new.on_conflict_do_update(index_elements=[*label_key], set_=values))
    conditions = verdicts.c.request_id == request_id, verdicts.c.reviewer == reviewer
    note_change(connection, "labelled", verdicts, *conditions)


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a connection for reads; an error of the database inside the block becomes StoreError."""
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise StoreError(f"the store cannot be read: {cause(error)}") from error
