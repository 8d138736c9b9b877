"""Held replies keep their requests and revisions; several reviewers may label one reply."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    held: list[sa.Column[Any]] = [
        sa.Column("kind", sa.String, nullable=False, server_default="hold"),
        sa.Column("request_id", sa.String),
        sa.Column("team", sa.String),
        sa.Column("path", sa.String),
        sa.Column("request", sa.LargeBinary),
        sa.Column("revised", sa.LargeBinary),
        sa.Column("decided_by", sa.String),
        sa.Column("note", sa.Text),
        sa.Column("share", sa.Float),
    ]
    for column in _missing("held_replies", held):
        op.add_column("held_replies", column)
    for column in _missing("exchanges", [sa.Column("score", sa.Float)]):
        op.add_column("exchanges", column)
    op.create_index(
        "ix_held_replies_request_id", "held_replies", ["request_id"], if_not_exists=True
    )
    _drop_one_verdict_for_each_request()
    for column in _missing("verdicts", _of_verdicts()):
        op.add_column("verdicts", column)
    whose = ["request_id", "reviewer"]
    op.create_index("one_verdict_of_a_reviewer", "verdicts", whose, unique=True, if_not_exists=True)


def _of_verdicts() -> list[sa.Column[Any]]:
    return [
        sa.Column("reviewer", sa.String, nullable=False, server_default=""),
        sa.Column("note", sa.Text),
    ]


def _missing(table: str, columns: list[sa.Column[Any]]) -> list[sa.Column[Any]]:
    """Return the columns that a table lacks; versions between two releases may have added some."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    return [column for column in columns if column.name not in there]


def _drop_one_verdict_for_each_request() -> None:
    """Drop the constraint of one verdict for each request.

    SQLite cannot drop a constraint, so there the table is copied row by row.
    """
    found = sa.inspect(op.get_bind()).get_unique_constraints("verdicts")
    if not any(each["column_names"] == ["request_id"] for each in found):
        return
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint("verdicts_request_id_key", "verdicts", type_="unique")
        return
    missing = {column.name for column in _missing("verdicts", _of_verdicts())}
    table = sa.Table(
        "verdicts",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("is_correct", sa.Boolean, nullable=False),
        sa.Column("given_at", sa.Float, nullable=False),
        *(column for column in _of_verdicts() if column.name not in missing),
    )
    with op.batch_alter_table("verdicts", copy_from=table, recreate="always"):
        pass
