"""The chain of HMACs over the recorded rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "audit_chain",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("of", sa.String, nullable=False),
        sa.Column("covers", sa.Text, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("previous", sa.String, nullable=False),
        sa.Column("mac", sa.String, nullable=False),
    )
