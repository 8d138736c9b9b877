"""The schema of a store: made at once, brought up from every older one, refused when newer."""

from __future__ import annotations

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
from structlog.testing import capture_logs

from calibrator import install_command
from proxy.errors import StoreError
from proxy.store import schema
from proxy.store.client_keys import KeyStore
from proxy.store.database import open_engine
from proxy.store.record.reader import find
from proxy.store.reviews.held_replies import HELD, RELEASED, Store
from proxy.store.reviews.queue import ReviewQueue
from proxy.store.tables import metadata
from proxy.store.verdicts.verdicts import Findings
from tests.running.databases import execute
from tests.running.live_proxy import ROOT, environment
from tests.running.postgres import PASSWORD, PostgresServer
from tests.running.reviewing import decide

# What the first version of each table was, with a row in it; the others are not there.
OLDEST = (
    """CREATE TABLE held_replies (id VARCHAR NOT NULL, key_hash VARCHAR NOT NULL,
    state VARCHAR NOT NULL, queue VARCHAR NOT NULL, model VARCHAR NOT NULL, policy VARCHAR NOT NULL,
    confidence FLOAT, calibrator VARCHAR, question TEXT NOT NULL, reply {bytes} NOT NULL,
    created_at FLOAT NOT NULL, expires_at FLOAT NOT NULL, decided_at FLOAT, PRIMARY KEY (id))""",
    """INSERT INTO held_replies VALUES ('chatcmpl-held-1', 'k', 'held', 'review', 'gpt', 'p/r@1',
    0.2, NULL, 'why?', {empty}, 1, 4e9, NULL)""",
    """CREATE TABLE exchanges (request_id VARCHAR NOT NULL, started_at FLOAT NOT NULL,
    key_hash VARCHAR NOT NULL, path VARCHAR NOT NULL, upstream VARCHAR, model VARCHAR,
    is_stream BOOLEAN NOT NULL, status INTEGER NOT NULL, error VARCHAR, confidence FLOAT,
    confidence_status VARCHAR, reason VARCHAR, action VARCHAR, would_action VARCHAR,
    policy VARCHAR, calibrator VARCHAR, review_id VARCHAR, escalated_from VARCHAR, label VARCHAR,
    total_ms FLOAT NOT NULL, overhead_ms FLOAT NOT NULL, score_ms FLOAT,
    PRIMARY KEY (request_id))""",
    """INSERT INTO exchanges VALUES ('req_1', 1, 'k', '/v1/chat/completions', 'u', 'gpt', {true},
    200, NULL, 0.7, 'scored', NULL, 'deliver', NULL, 'p/r@1', 'c@1', NULL, NULL, NULL, 1, 1, 1)""",
)
# What was added until there were revisions.
RELEASED_BEFORE = (
    *OLDEST,
    "ALTER TABLE held_replies ADD COLUMN on_expiry VARCHAR DEFAULT 'reject' NOT NULL",
    "ALTER TABLE held_replies ADD COLUMN request_digest VARCHAR",
    "CREATE INDEX ix_held_replies_state ON held_replies (state)",
    "CREATE TABLE verdicts (id {serial}, request_id VARCHAR NOT NULL, is_correct BOOLEAN NOT NULL,"
    " given_at FLOAT NOT NULL, PRIMARY KEY (id), UNIQUE (request_id))",
    "INSERT INTO verdicts (request_id, is_correct, given_at) VALUES ('req_1', {true}, 5)",
)
# What versions between two releases made: new columns, and the old constraint beside them.
BETWEEN = (
    *RELEASED_BEFORE,
    "ALTER TABLE verdicts ADD COLUMN reviewer VARCHAR DEFAULT '' NOT NULL",
    "ALTER TABLE held_replies ADD COLUMN kind VARCHAR DEFAULT 'hold' NOT NULL",
)
AGES = {"oldest": OLDEST, "released": RELEASED_BEFORE, "between": BETWEEN}


def make_old(url: str, statements: tuple[str, ...]) -> None:
    is_sqlite = url.startswith("sqlite")
    words = {
        "bytes": "BLOB" if is_sqlite else "BYTEA",
        "serial": "INTEGER NOT NULL" if is_sqlite else "SERIAL",
        "empty": "X'7B7D'" if is_sqlite else r"'\x7b7d'",
        "true": "1" if is_sqlite else "true",
    }
    execute(url, *(statement.format(**words) for statement in statements))


def differences(url: str) -> list[object]:
    """What the metadata of this version have that the database has not, and the other way round."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            # of defaults, SQLite tells the text alone, which is written in more than one way
            are_told = connection.dialect.name == "postgresql"
            options = {"compare_type": True, "compare_server_default": are_told}
            context = MigrationContext.configure(connection, opts=options)
            found: list[object] = compare_metadata(context, schema.all_tables())
            return found
    finally:
        engine.dispose()


def test_a_new_database_has_the_tables_of_this_version(store_url: str) -> None:
    """All of them, whoever opens it first, and the number of the latest revision."""
    keys = KeyStore(store_url)
    assert keys.all() == []
    keys.close()
    assert differences(store_url) == []
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [(schema.LATEST,)]


@pytest.mark.parametrize("age", AGES)
def test_an_older_database_ends_where_a_new_one_begins(store_url: str, age: str) -> None:
    """What the revisions made differs in nothing from the tables of this version."""
    make_old(store_url, AGES[age])
    with capture_logs() as lines:
        assert differences(store_url) == []
    [line] = [each for each in lines if each["event"] == "store_migrated"]
    assert (line["before"], line["now"]) == ("without a revision", schema.LATEST)
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [(schema.LATEST,)]


@pytest.mark.parametrize("age", AGES)
async def test_an_older_database_loses_no_row(store_url: str, age: str) -> None:
    """What was held, recorded and found out before is there, and the database takes new rows."""
    make_old(store_url, AGES[age])
    store, findings = Store(store_url), Findings(store_url)
    await store.open()
    old = await store.get("chatcmpl-held-1")
    assert old is not None
    assert (old.standing, old.kind, old.reply, old.is_bound) == (HELD, "hold", b"{}", False)
    assert decide(store.url, old.id, RELEASED)
    await store.aclose()
    for reviewer in ("", "ada", "bob"):
        findings.give_verdict("req_1", False, reviewer)
    recorded = find(findings.engine, "req_1")
    assert recorded is not None
    assert (recorded.model, recorded.confidence, recorded.is_correct) == ("gpt", 0.7, False)
    assert execute(store_url, "SELECT count(*) FROM verdicts") == [(3,)]
    findings.close()


def test_of_those_that_start_at_once_one_migrates(store_url: str) -> None:
    """The others wait, and all of them work on the result."""
    make_old(store_url, RELEASED_BEFORE)
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(open_engine, [store_url] * 4))
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM verdicts")).scalar() == 1
        engine.dispose()
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [(schema.LATEST,)]


def test_of_those_that_start_at_once_one_makes_the_tables(store_url: str) -> None:
    """A new database that several open at the same moment is made once."""
    with ThreadPoolExecutor(4) as pool:
        for engine in pool.map(open_engine, [store_url] * 4):
            engine.dispose()
    assert differences(store_url) == []


def test_threads_that_need_a_database_at_once_share_one_engine(store_url: str) -> None:
    """One is opened for all of them: nobody could close a second one. Closed, it opens anew."""
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
    """A sentence says what to do, and nothing is changed."""
    open_engine(store_url).dispose()
    execute(store_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"schema 9999, this one knows .* upgrade pinocchio-proxy"):
        open_engine(store_url)
    assert execute(store_url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_revision_that_fails_changes_nothing(store_url: str) -> None:
    """The database stays as it was, and the next start tries again."""
    make_old(store_url, (*RELEASED_BEFORE, "CREATE VIEW withdrawn_grants AS SELECT 1 AS policy"))
    with pytest.raises(StoreError, match="cannot be opened"):
        open_engine(store_url)
    tables = {"held_replies", "exchanges", "verdicts"}
    engine = sa.create_engine(store_url.replace("postgresql://", "postgresql+psycopg://"))
    assert set(sa.inspect(engine).get_table_names()) == tables
    engine.dispose()
    execute(store_url, "DROP VIEW withdrawn_grants")
    assert differences(store_url) == []


def test_there_is_one_line_of_revisions() -> None:
    """Their last is what this version says it needs, so that no start looks through the files."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [schema.LATEST]
    assert metadata is schema.all_tables()


def test_a_start_on_an_up_to_date_database_does_without_alembic(tmp_path: Path) -> None:
    """Neither that nor making a new one imports it; the driver of PostgreSQL stays out too."""
    code = (
        "import sys, proxy.app; from proxy.store.database import open_engine\n"
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
    """One line, without the password; `postgres://` is understood as well."""
    url = BROKEN[how](postgres.new_database()).replace("postgresql://", "postgres://")
    with pytest.raises(StoreError) as raised:
        open_engine(url)
    message = str(raised.value)
    assert message.startswith(("the store postgresql://127.0.0.1/db", "the store's URL cannot"))
    assert PASSWORD not in message
    assert "\n" not in message


def test_without_the_driver_the_error_says_how_to_get_it() -> None:
    """An installation without the extra tells the one command that it needs."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from proxy.store.database import open_engine\n"
        "open_engine('postgresql://u:p@127.0.0.1/x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT
    )
    assert install_command("postgres") in done.stderr.splitlines()[-1]
