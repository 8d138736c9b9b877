"""What happened to replies under review, a row for each turn, written with the change itself.

Whoever follows the desk reads on from the last number seen, whichever process wrote the row.
Numbers are given in order, and in PostgreSQL may become visible out of it: what must not be missed
(webhooks) goes by `is_announced`.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from proxy.store.database import metadata

review_events = sa.Table(
    "review_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("review_id", sa.String, nullable=False, index=True),
    sa.Column("event", sa.String, nullable=False),  # held, released, rejected, expired
    sa.Column("at", sa.Float, nullable=False),  # seconds since the epoch
    sa.Column("by", sa.String),  # the reviewer
    sa.Column("is_announced", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index(
        "review_events_to_announce",
        "id",
        sqlite_where=sa.text("NOT is_announced"),
        postgresql_where=sa.text("NOT is_announced"),
    ),
)
KEPT_S: Final = 30 * 86_400.0


def happened(review_id: str, event: str, at: float, by: str | None = None) -> sa.Insert:
    """The statement that notes it."""
    return review_events.insert().values(review_id=review_id, event=event, at=at, by=by)
