"""The schema of a store: created at once, migrated by revisions, refused if newer or too old."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from calibrator import install_command
from proxy.errors import StoreError
from proxy.store.database import schema
from proxy.store.database.client_keys import KeyStore
from proxy.store.database.database import open_engine
from proxy.store.database.tables import metadata
from proxy.store.database.verdicts import VerdictStore
from proxy.store.queue import ReviewQueue
from tests.running.databases import execute
from tests.running.live_proxy import ROOT, environment
from tests.running.postgres import PASSWORD, PostgresServer
from tests.sharing.captured_logs import capture_logs

NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0015", "0014"
def upgrade():
    op.add_column("verdicts", sa.Column("colour", sa.String))
    op.create_table("ghosts", sa.Column("id", sa.String, primary_key=True))
"""


@pytest.fixture
def a_later_version(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Make a store with a verdict in it; when called, the version has one revision more."""
    findings = VerdictStore(store_url)
    findings.give_verdict("req_1", True, "ada")
    findings.close()

    def begin() -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(schema.MIGRATIONS, folder)
        (folder / "versions" / "0015_next.py").write_text(NEXT)
        monkeypatch.setattr(schema, "MIGRATIONS", folder)
        monkeypatch.setattr(schema, "LATEST", "0015")

    return begin


def differences(url: str) -> list[object]:
    """Return the differences between this version's metadata and the database, both ways."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            # SQLite gives only the text of defaults, which can be written in several ways.
            are_told = connection.dialect.name == "postgresql"
            options = {"compare_type": True, "compare_server_default": are_told}
            context = MigrationContext.configure(connection, opts=options)
            found: list[object] = compare_metadata(context, schema.all_tables())
            return found
    finally:
        engine.dispose()


def test_a_new_database_has_the_tables_of_this_version(store_url: str) -> None:
    """A new database has all tables and the latest revision, whoever opens it first."""
    keys = KeyStore(store_url)
    assert keys.all() == []
    keys.close()
    assert differences(store_url) == []
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [(schema.LATEST,)]


def test_a_store_of_the_first_revision_is_opened_as_it_is(store_url: str) -> None:
    """A store of version 0.1.0 has its revision, and nothing is migrated."""
    open_engine(store_url).dispose()
    execute(store_url, f"UPDATE alembic_version SET version_num = '{schema.FIRST}'")
    with capture_logs() as lines:
        assert differences(store_url) == []
    assert [each for each in lines if each["event"] == "store_migrated"] == []


def test_a_store_from_before_the_first_revision_is_refused(store_url: str) -> None:
    """A store from before the first revision is refused unchanged, with what to do."""
    open_engine(store_url).dispose()
    execute(store_url, "UPDATE alembic_version SET version_num = '0013'")
    with pytest.raises(StoreError, match=r"before 0\.1\.0 made it \(schema 0013.* another store"):
        open_engine(store_url)
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("0013",)]
    execute(store_url, "DROP TABLE alembic_version")
    with pytest.raises(StoreError, match=r"before 0\.1\.0 made it \(schema without a number"):
        open_engine(store_url)


def test_of_those_that_start_at_once_one_migrates(
    store_url: str, a_later_version: Callable[[], None]
) -> None:
    """Of several that start at once one migrates and the others wait; no row is lost."""
    a_later_version()
    with capture_logs() as lines, ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(open_engine, [store_url] * 4))
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT count(colour) FROM verdicts")).scalar() == 0
        engine.dispose()
    [line] = [each for each in lines if each["event"] == "store_migrated"]
    assert (line["before"], line["now"]) == ("0014", "0015")
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("0015",)]
    assert execute(store_url, "SELECT request_id FROM verdicts") == [("req_1",)]


def test_of_those_that_start_at_once_one_makes_the_tables(store_url: str) -> None:
    """A new database that several open at the same moment is created once."""
    with ThreadPoolExecutor(4) as pool:
        for engine in pool.map(open_engine, [store_url] * 4):
            engine.dispose()
    assert differences(store_url) == []


def test_threads_that_need_a_database_at_once_share_one_engine(store_url: str) -> None:
    """Threads that need a database at once share one engine; once closed, it opens anew."""
    queue, ready = ReviewQueue(store_url), threading.Barrier(4)

    def engine(_: int) -> sa.Engine:
        ready.wait(10)
        return queue.engine

    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(engine, range(4)))
        assert all(each is found[0] for each in found)
        queue.close()
        assert queue.engine is not found[0]
    finally:
        queue.close()


def test_a_newer_database_is_refused(store_url: str) -> None:
    """A newer database is refused unchanged, with what to do."""
    open_engine(store_url).dispose()
    execute(store_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"schema 9999, this one knows .* upgrade pinocchio-proxy"):
        open_engine(store_url)
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_revision_that_fails_changes_nothing(
    store_url: str, a_later_version: Callable[[], None]
) -> None:
    """A revision that fails leaves the database as it was, and the next start tries again."""
    execute(store_url, "CREATE VIEW ghosts AS SELECT 1 AS id")
    a_later_version()
    with pytest.raises(StoreError, match="cannot be opened"):
        open_engine(store_url)
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("0014",)]
    execute(store_url, "DROP VIEW ghosts")
    open_engine(store_url).dispose()
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("0015",)]


def test_there_is_one_line_of_revisions() -> None:
    """Revisions form one line, and its last is the one that this version names."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [schema.LATEST]
    assert metadata is schema.all_tables()


def test_a_start_on_an_up_to_date_database_does_without_alembic(tmp_path: Path) -> None:
    """Opening a new or up-to-date SQLite file imports neither Alembic nor PostgreSQL's driver."""
    code = (
        "import sys, proxy.app; from proxy.store.database.database import open_engine\n"
        f"[open_engine('sqlite:///{tmp_path}/held.db').dispose() for _ in range(2)]\n"
        "heavy = {'alembic', 'psycopg', 'mako', 'sqlalchemy.dialects.postgresql'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")


Broken = Callable[[str], str]
BROKEN: dict[str, Broken] = {
    "no such database": lambda url: url + "x",
    "wrong password": lambda url: url.replace(PASSWORD, PASSWORD + "x"),
    "nobody listens": lambda url: url.replace("127.0.0.1:", "127.0.0.1:1"),
    "no number for a port": lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"),
    "an option that does not exist": lambda url: url + "?colour=blue",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_server_that_cannot_be_used_is_a_sentence(postgres: PostgresServer, how: str) -> None:
    """An unusable server gives one line without the password; `postgres://` is accepted as well."""
    url = BROKEN[how](postgres.new_database()).replace("postgresql://", "postgres://")
    with pytest.raises(StoreError) as raised:
        open_engine(url)
    message = str(raised.value)
    assert message.startswith(("the store postgresql://127.0.0.1/db", "the store's URL cannot"))
    assert PASSWORD not in message
    assert "\n" not in message


def test_without_the_driver_the_error_says_how_to_get_it() -> None:
    """Without the driver the error has the one command that installs it."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from proxy.store.database.database import open_engine\n"
        "open_engine('postgresql://u:p@127.0.0.1/x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT
    )
    assert install_command("postgres") in done.stderr.splitlines()[-1]
