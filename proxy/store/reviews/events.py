"""What happened to replies under review, a row for each turn, written with the change itself.

Whoever follows the desk reads on from the last number seen, whichever process wrote the row.
Numbers are given in order, and in PostgreSQL may become visible out of it: what must not be missed
(webhooks) goes by `is_announced`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from proxy.store.tables import metadata

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
class Event:
    """One turn, with the facts of its reply that are no text."""

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


def noted(review_id: str, event: str, at: float, by: str | None = None) -> dict[str, Any]:
    """A row of it."""
    return {"review_id": review_id, "event": event, "at": at, "by": by}


def happened(review_id: str, event: str, at: float, by: str | None = None) -> sa.Insert:
    """The statement that notes it."""
    return review_events.insert().values(noted(review_id, event, at, by))


def event_columns(*more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """A query for Events, joined with their replies; `more` columns stand beside theirs."""
    held = metadata.tables["held_replies"]  # its module notes events, and imports this one
    event = review_events.c
    own = (event.id.label("number"), event.review_id, event.event, event.at, event.by)
    names = ("kind", "queue", "team", "model", "policy", "confidence", "request_id", "expires_at")
    query = sa.select(*own, *(held.c[name] for name in names), *more).select_from(review_events)
    return query.join(held, held.c.id == event.review_id)
