"""Standing approvals of calls, and the one that released a reply in its record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "standing_approvals",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("review_id", sa.String, nullable=False),
        sa.Column("key_hash", sa.String, nullable=False),
        sa.Column("rule_digest", sa.String, nullable=False),
        sa.Column("queue", sa.String, nullable=False),
        sa.Column("tool", sa.String, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("most_uses", sa.Integer, nullable=False),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("used_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.Column("revoked_by", sa.String),
    )
    op.create_index("standing_of_key", "standing_approvals", ["key_hash", "rule_digest"])
    op.add_column("exchanges", sa.Column("standing_approval", sa.String))
