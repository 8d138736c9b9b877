"""The schema of the store: created in an empty database, migrated in an older one.

An empty database gets all tables at once, and the number of the latest revision. An older one runs
the revisions in `migrations/versions/` that it lacks; one older than the first is refused. If
several proxies start at the same time, one migrates and the others wait.
Alembic, which runs the revisions, is imported only when one has to run.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import structlog

from proxy.errors import StoreError
from proxy.store.database.tables import all_tables

log = structlog.get_logger(__name__)

FIRST: Final = "0014"
"""The oldest revision that can be migrated."""
LATEST: Final = "0014"
"""The revision of the tables in this version."""
MIGRATIONS: Final = Path(__file__).parent / "migrations"
_WAIT_MS: Final = 600_000  # milliseconds to wait for another process that migrates
_LOCK: Final = 0x70696E6F63  # PostgreSQL's advisory lock for changes of the schema

version_table = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), primary_key=True),
)
_one_at_a_time = threading.Lock()  # Alembic keeps its context in global variables


def prepare(engine: sa.Engine) -> None:
    """Create the schema, or migrate it to `LATEST`; do nothing if it is current.

    Waits while another process does the same. Raises StoreError for a newer schema, for one older
    than `FIRST`, and for tables without a revision.
    """
    with engine.connect() as connection:
        if revision_of(connection) == LATEST:
            return
        connection.rollback()
        _wait_for_turn(connection)
        revision = revision_of(connection)
        if revision is None:
            if _has_tables(connection):
                raise _too_old("without a number")
            _make(connection)
        elif revision != LATEST:
            _migrate(connection, revision)
        connection.commit()


def revision_of(connection: sa.Connection) -> str | None:
    """Return the database's revision, or None if it has none.

    Raises StoreError for one that is later than `LATEST` or earlier than `FIRST`.
    """
    if not sa.inspect(connection).has_table(version_table.name):
        return None
    revision = connection.execute(sa.select(version_table.c.version_num)).scalar()
    if revision is not None and revision > LATEST:
        raise StoreError(
            f"a newer version of Pinocchio made it (schema {revision}, this one knows {LATEST}); "
            "upgrade pinocchio-proxy, or use another store"
        )
    if revision is not None and revision < FIRST:
        raise _too_old(revision)
    return revision


def _too_old(revision: str) -> StoreError:
    """Return the error for a schema older than `FIRST`; `revision` is its number, or words."""
    return StoreError(
        f"a version of Pinocchio before 0.1.0 made it (schema {revision}, the oldest that can be "
        f"migrated is {FIRST}); use another store"
    )


def _wait_for_turn(connection: sa.Connection) -> None:
    """Wait for the exclusive lock on changes of the schema, held until the transaction ends."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_WAIT_MS}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def _has_tables(connection: sa.Connection) -> bool:
    """Return whether the database has at least one table with the name of one of ours."""
    return bool(set(sa.inspect(connection).get_table_names()) & set(all_tables().tables))


def _make(connection: sa.Connection) -> None:
    """Create all tables and store `LATEST` as the revision."""
    all_tables().create_all(connection)
    version_table.create(connection, checkfirst=True)
    connection.execute(version_table.insert().values(version_num=LATEST))


def _migrate(connection: sa.Connection, revision: str) -> None:
    """Run the Alembic revisions from `revision` to `LATEST` on this connection, and log it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, LATEST)
    log.info("store_migrated", before=revision, now=LATEST)
