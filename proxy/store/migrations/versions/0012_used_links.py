"""The uses of links in chat messages, each of which decides once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "used_links",
        sa.Column("review_id", sa.String, primary_key=True),
        sa.Column("reviewer", sa.String, primary_key=True),
        sa.Column("revision", sa.String, primary_key=True),
        sa.Column("verdict", sa.String, nullable=False),
        sa.Column("used_at", sa.Float, nullable=False, index=True),
    )
