"""The database behind the store and the records: SQLite in one file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from proxy.errors import StoreError

metadata = sa.MetaData()
_PRAGMAS = ("journal_mode=WAL", "busy_timeout=5000")


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///")).expanduser()


def open_engine(url: str, *, is_durable: bool = True) -> sa.Engine:
    """An engine on an existing schema, made where it is missing; raises StoreError.

    A file of an older version gets the columns that it lacks. What is committed survives a loss of
    power if it `is_durable`, else the end of the process only.
    """
    path = path_of(url)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    sa.event.listen(engine, "connect", set_pragmas if is_durable else _set_fast_pragmas)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # of those that start, one at a time
            metadata.create_all(connection)
            _add_missing_columns(connection)
            connection.commit()
    except (SQLAlchemyError, sqlite3.Error) as error:
        engine.dispose()
        raise StoreError(f"the store {path} cannot be opened: {cause(error)}") from error
    return engine


def _add_missing_columns(connection: sa.Connection) -> None:
    """Columns that came later are nullable or have a default of the database's."""
    for table in metadata.tables.values():
        there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def set_pragmas(connection: Any, _: Any) -> None:
    _set(connection, *_PRAGMAS, "synchronous=FULL")


def _set_fast_pragmas(connection: Any, _: Any) -> None:
    _set(connection, *_PRAGMAS, "synchronous=NORMAL")


def _set(connection: Any, *pragmas: str) -> None:
    cursor = connection.cursor()
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def cause(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
