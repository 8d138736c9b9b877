"""The tables as they were before there were revisions.

A database from then may lack tables and columns that came later; it gets those, and loses nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_tables = sa.MetaData()
sa.Table(
    "held_replies",
    _tables,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("key_hash", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("queue", sa.String, nullable=False),
    sa.Column("model", sa.String, nullable=False),
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("confidence", sa.Float, nullable=True),
    sa.Column("calibrator", sa.String, nullable=True),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("reply", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False, index=True),
    sa.Column("expires_at", sa.Float, nullable=False),
    sa.Column("decided_at", sa.Float, nullable=True),
    sa.Column("on_expiry", sa.String, nullable=False, server_default="reject"),
    sa.Column("request_digest", sa.String, nullable=True, index=True),
    sa.Column("rule_digest", sa.String, nullable=True),
    sa.Column("calls", sa.Text, nullable=True),
    sa.Column("taken_at", sa.Float, nullable=True),
)
sa.Table(
    "exchanges",
    _tables,
    sa.Column("request_id", sa.String, primary_key=True),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("key_hash", sa.String, nullable=False),
    sa.Column("path", sa.String, nullable=False),
    sa.Column("upstream", sa.String),
    sa.Column("model", sa.String),
    sa.Column("is_stream", sa.Boolean, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("error", sa.String),
    sa.Column("confidence", sa.Float),
    sa.Column("confidence_status", sa.String),
    sa.Column("reason", sa.String),
    sa.Column("action", sa.String),
    sa.Column("would_action", sa.String),
    sa.Column("policy", sa.String),
    sa.Column("calibrator", sa.String),
    sa.Column("review_id", sa.String),
    sa.Column("escalated_from", sa.String),
    sa.Column("label", sa.String),
    sa.Column("total_ms", sa.Float, nullable=False),
    sa.Column("overhead_ms", sa.Float, nullable=False),
    sa.Column("score_ms", sa.Float),
    sa.Column("calls", sa.String),
    sa.Column("team", sa.String),
    sa.Column("key", sa.String),
    sa.Column("generation", sa.Integer),
    sa.Column("facts", sa.String),
    sa.Column("shadowed", sa.String),
)
sa.Table(
    "verdicts",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("request_id", sa.String, nullable=False, unique=True),
    sa.Column("is_correct", sa.Boolean, nullable=False),
    sa.Column("given_at", sa.Float, nullable=False),
)
sa.Table(
    "withdrawn_grants",
    _tables,
    sa.Column("grant_digest", sa.String, primary_key=True),
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("scope", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("withdrawn_at", sa.Float, nullable=False),
)
sa.Table(
    "client_keys",
    _tables,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("digest", sa.String, nullable=False, unique=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("name", sa.String),
    sa.Column("team", sa.String, index=True),
    sa.Column("policy", sa.String),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("max_held", sa.Integer),
    sa.Column("attach", sa.String),
    sa.Column("expires_at", sa.Float),
    sa.Column("revoked_at", sa.Float),
)


def upgrade() -> None:
    connection = op.get_bind()
    for table in _tables.sorted_tables:
        if not sa.inspect(connection).has_table(table.name):
            table.create(connection)
            continue
        there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                new = sa.Column(
                    column.name,
                    column.type,
                    nullable=column.nullable,
                    server_default=column.server_default,
                )
                op.add_column(table.name, new)
        for index in table.indexes:
            index.create(connection, checkfirst=True)
