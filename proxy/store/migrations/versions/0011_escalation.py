"""The queue to which a held reply is escalated if nobody decides in time; null means none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("held_replies", sa.Column("escalate_at", sa.Float))
    op.add_column("held_replies", sa.Column("escalate_to", sa.String))
    op.create_index("review_escalation", "held_replies", ["escalate_at"])
