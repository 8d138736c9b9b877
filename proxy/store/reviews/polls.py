"""Polls: requests with which a client asks again for a reply held for it.

They are not exchanges: no upstream is asked, and nothing is scored or decided. Each is a short row
that names the held reply, so that it can be explained and counted. The exchange is that of the
first request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import reading
from proxy.store.reviews.held_replies import HeldReply

polls = sa.Table(
    "polls",
    metadata,
    sa.Column("request_id", sa.String, primary_key=True),
    sa.Column("review_id", sa.String, nullable=False),  # of the held reply
    sa.Column("at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("status", sa.Integer, nullable=False),  # the HTTP status that the client got
    sa.Column("action", sa.String),  # hold while it waits, deliver once it was released
    sa.Column("error", sa.String),  # our machine code
)
sa.Index("polls_of_review", polls.c.review_id)


class HoldState(NamedTuple):
    """The state of a held reply: `request_id` names its exchange, `polls` counts its polls.

    Times are seconds since the epoch.
    """

    review_id: str
    request_id: str | None
    state: str
    decided_by: str | None
    expires_at: float
    polls: int


class Poll(NamedTuple):
    """One poll, with a value for each column."""

    request_id: str
    review_id: str
    at: float
    status: int
    action: str | None
    error: str | None


def put_polls(connection: sa.Connection, new_polls: list[Poll]) -> None:
    """Insert polls in the caller's transaction; raises SQLAlchemyError."""
    connection.execute(polls.insert(), [each._asdict() for each in new_polls])


def poll_by(engine: sa.Engine, request_id: str) -> Poll | None:
    """Return the poll with this request id, or None; raises StoreError."""
    with reading(engine) as connection:
        row = connection.execute(polls.select().where(polls.c.request_id == request_id)).first()
    return Poll(*row) if row else None


def hold_state_of(engine: sa.Engine, review_id: str) -> HoldState | None:
    """Return the state of the held reply with this id, with its polls counted, or None.

    Raises StoreError.
    """
    held = metadata.tables["held_replies"].c
    columns = held.id, held.request_id, held.state, held.decided_by, held.expires_at
    query = sa.select(*columns, counted_polls(held.id)).where(held.id == review_id)
    with reading(engine) as connection:
        row = connection.execute(query).first()
    return HoldState(*row) if row else None


def stored_reply(engine: sa.Engine, review_id: str) -> HeldReply | None:
    """Return the held reply with this id as it is stored, without expiring it, or None.

    Raises StoreError.
    """
    held = metadata.tables["held_replies"]
    with reading(engine) as connection:
        row = connection.execute(held.select().where(held.c.id == review_id)).first()
    return HeldReply(**row._mapping) if row else None


def counted_polls(review_id: sa.ColumnElement[Any]) -> sa.ScalarSelect[int]:
    """Return a subquery, usable as a column, that counts the polls of a held reply.

    `review_id` is the column that names the reply.
    """
    counting = sa.select(sa.func.count()).select_from(polls).where(polls.c.review_id == review_id)
    return counting.scalar_subquery()
