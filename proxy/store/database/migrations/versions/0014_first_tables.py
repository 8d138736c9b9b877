"""The first revision: the tables of 0.1.0, which `schema.py` makes from their definitions.

The numbers before it were used during development.
"""

from __future__ import annotations

revision = "0014"
down_revision = None


def upgrade() -> None:
    """Do nothing: a database either has these tables already, or gets all of the latest version."""
