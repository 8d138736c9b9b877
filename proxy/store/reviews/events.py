"""The events of replies under review: one row each, written in the transaction of the change.

A reader continues after the last number that it has seen, whichever process wrote the row. Numbers
are given in order, but in PostgreSQL they may become visible in another order. Webhooks, which must
not miss any, use `is_announced`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.database.tables import metadata

review_events = sa.Table(
    "review_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("review_id", sa.String, nullable=False, index=True),
    # held, approved, edited, escalated, released, rejected, expired
    sa.Column("event", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("by", sa.String),  # the reviewer
    sa.Column("is_announced", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("review_events_to_announce", "is_announced", "id"),
)
KEPT_S: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """One event, with the facts of its reply that are not text."""

    number: int
    review_id: str
    event: str
    at: float
    by: str | None
    kind: str
    queue: str
    team: str | None
    model: str
    policy: str
    confidence: float | None
    request_id: str | None
    expires_at: float


def event_values(review_id: str, event: str, at: float, by: str | None = None) -> dict[str, Any]:
    """Return the columns of an event's row; `event` is a word such as "released"."""
    return {"review_id": review_id, "event": event, "at": at, "by": by}


def insert_event(review_id: str, event: str, at: float, by: str | None = None) -> sa.Insert:
    """Return the statement that inserts an event, such as "released", of a reply."""
    return review_events.insert().values(event_values(review_id, event, at, by))


def event_columns(*more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return the query for ReviewEvents joined with their replies, with `more` columns last."""
    held = metadata.tables["held_replies"]  # not imported: its module imports this one
    event = review_events.c
    columns = (event.id.label("number"), event.review_id, event.event, event.at, event.by)
    names = ("kind", "queue", "team", "model", "policy", "confidence", "request_id", "expires_at")
    query = sa.select(*columns, *(held.c[name] for name in names), *more).select_from(review_events)
    return query.join(held, held.c.id == event.review_id)
