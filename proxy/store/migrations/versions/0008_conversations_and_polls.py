"""The conversation of each exchange; polls for held replies in a table of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("exchanges", sa.Column("conversation", sa.String))
    op.create_table(
        "polls",
        sa.Column("request_id", sa.String, primary_key=True),
        sa.Column("review_id", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("action", sa.String),
        sa.Column("error", sa.String),
    )
    op.create_index("polls_of_review", "polls", ["review_id"])
    op.create_table(
        "counted_conversations",
        sa.Column("about", sa.String, primary_key=True),
        sa.Column("conversation", sa.String, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("counted_at", "counted_conversations", ["at"])
