"""Alembic's environment.

It migrates on the connection, and in the transaction, of `store/database/schema.py`.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
