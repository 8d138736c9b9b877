"""The owners of upstream's ids; the surfaces of keys, and the queues of reviewers' keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "owned_ids",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("key_hash", sa.String, nullable=False),
        sa.Column("withheld", sa.String),
        sa.Column("made_at", sa.Float, nullable=False),
    )
    op.add_column("client_keys", sa.Column("surfaces", sa.String))
    op.add_column("client_keys", sa.Column("queues", sa.String))
