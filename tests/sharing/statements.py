"""Compile each SQL statement once per process, not once for every database that a test creates.

Every proxy in a test has its own engine, which creates thirty tables and compiles its queries:
half of the CPU that it takes to start. The statements stay the product's own. Tables are created
from the statements that the first database received.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

from proxy.store.database import schema

MOST = 2_000  # statements for each kind of database


@contextmanager
def compiled_once() -> Iterator[None]:
    """Let engines for the same kind of database share compiled statements, within this context."""
    with pytest.MonkeyPatch.context() as patch:
        _share_statements(patch)
        _share_tables(patch)
        yield


def _share_statements(patch: pytest.MonkeyPatch) -> None:
    caches: dict[tuple[object, ...], LRUCache[Any, Any]] = {}
    begin = sa.Engine.__init__

    def engine(self: sa.Engine, pool: Any, dialect: Any, *others: Any, **options: Any) -> None:
        begin(self, pool, dialect, *others, **options)
        self._compiled_cache = caches.setdefault(_kind(dialect), LRUCache(MOST))

    def is_alike(self: DefaultDialect, other: object) -> bool:
        return isinstance(other, DefaultDialect) and _kind(self) == _kind(other)

    patch.setattr(sa.Engine, "__init__", engine)
    patch.setattr(DefaultDialect, "__eq__", is_alike)  # it is part of a statement's key
    patch.setattr(DefaultDialect, "__hash__", lambda self: hash(type(self)))


def _kind(dialect: Any) -> tuple[object, ...]:
    return (type(dialect), dialect.paramstyle, dialect.supports_native_boolean)


def _share_tables(patch: pytest.MonkeyPatch) -> None:
    sent: dict[str, list[tuple[str, Any]]] = {}
    make = schema._make

    def make_as_before(connection: sa.Connection) -> None:
        name = connection.dialect.name
        if name in sent:
            for statement, parameters in sent[name]:
                connection.exec_driver_sql(statement, parameters or None)
            return
        statements: list[tuple[str, Any]] = []

        def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
            if statement.lstrip().startswith(("CREATE", "INSERT")):
                statements.append((statement, parameters))

        sa.event.listen(connection, "before_cursor_execute", note)
        make(connection)
        sa.event.remove(connection, "before_cursor_execute", note)
        sent[name] = statements

    patch.setattr(schema, "_make", make_as_before)
