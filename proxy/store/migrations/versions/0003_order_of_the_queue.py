"""A queue of 100,000 replies is read page by page, in its order."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

_ORDER = ["state", "confidence", "created_at", "id", "queue", "team", "kind"]


def upgrade() -> None:
    op.create_index("review_order", "held_replies", _ORDER)
    op.create_index("review_expiry", "held_replies", ["state", "expires_at"])
    op.create_index("review_decided", "held_replies", ["decided_at"])
    op.create_index("held_of_key", "held_replies", ["key_hash", "state"])
