"""Labels that clients and reviewers volunteer, apart from verdicts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "feedback",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("is_correct", sa.Boolean, nullable=False),
        sa.Column("given_at", sa.Float, nullable=False),
        sa.Column("given_by", sa.String, nullable=False),
        sa.Column("note", sa.Text),
    )
    op.create_index("one_feedback_of_a_giver", "feedback", ["request_id", "given_by"], unique=True)
