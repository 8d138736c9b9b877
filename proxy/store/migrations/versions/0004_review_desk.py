"""Roles of keys; events of replies under review, which webhooks deliver."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("client_keys")}
    if "role" not in there:
        role = sa.Column("role", sa.String, nullable=False, server_default="caller")
        op.add_column("client_keys", role)
    op.create_table(
        "review_events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("review_id", sa.String, nullable=False, index=True),
        sa.Column("event", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("by", sa.String),
        sa.Column("is_announced", sa.Boolean, nullable=False, server_default=sa.false()),
        if_not_exists=True,
    )
    op.create_index(
        "review_events_to_announce", "review_events", ["is_announced", "id"], if_not_exists=True
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("event_number", sa.Integer, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("due_at", sa.Float, index=True),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("given_up_at", sa.Float),
        if_not_exists=True,
    )
