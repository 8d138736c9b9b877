"""Drift monitors in the database, so that they continue after a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "drift_monitors",
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("calibrator", sa.String, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("team", sa.String, primary_key=True),
        sa.Column("seen", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("alarmed_at", sa.Float),
        sa.Column("alarmed_by", sa.String),
    )
