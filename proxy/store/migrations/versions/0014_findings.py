"""The calibrator's findings besides the confidence, in the record and with held replies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("exchanges", sa.Column("support", sa.Float))
    op.add_column("exchanges", sa.Column("basis", sa.String))
    op.add_column("exchanges", sa.Column("act", sa.String))
    op.add_column("exchanges", sa.Column("needs_facts", sa.Boolean))
    op.add_column("exchanges", sa.Column("is_familiar", sa.Boolean))
    op.add_column("held_replies", sa.Column("findings", sa.Text))
