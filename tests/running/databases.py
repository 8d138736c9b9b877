"""Direct access of tests to a store, on either database.

execute(url, "UPDATE held_replies SET state = :state", state="released")
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from proxy.store.database.tables import path_of


def execute(url: str, *statements: str, **values: Any) -> list[tuple[Any, ...]]:
    """Run statements in one transaction; return the rows of the last, if it has any."""
    engine = sa.create_engine(_driver(url), poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            for statement in statements:
                found = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def _driver(url: str) -> sa.URL:
    if path := path_of(url):
        return sa.URL.create("sqlite", database=str(path))
    return sa.make_url(url).set(drivername="postgresql+psycopg")
