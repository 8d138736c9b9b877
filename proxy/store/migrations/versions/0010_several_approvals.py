"""The number of approvals that a held reply needs; null means one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("held_replies", sa.Column("approvals", sa.Integer))
    op.add_column("held_replies", sa.Column("approved", sa.Text))
    op.add_column("held_replies", sa.Column("proposed", sa.LargeBinary))
