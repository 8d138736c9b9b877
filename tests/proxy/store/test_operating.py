"""Promises of docs/database.md: least rights, few connections, complete backups."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from proxy.commands.audit import cli
from proxy.store.database.database import open_engine
from tests.running.databases import execute
from tests.running.desk_client import DESK, HOLD, decide, make_key
from tests.running.live_proxy import ROOT, LiveProxy, until
from tests.running.postgres import PostgresServer
from tests.servers.faulty_upstream import FaultyUpstream

PAGE = (ROOT / "docs" / "database.md").read_text(encoding="utf-8")
MOST_CONNECTIONS = 30  # of one process, as the page says


def grants() -> list[str]:
    """Return the statements that the page gives to the database's owner."""
    block = PAGE.split("```sql\n")[1].split("```")[0]
    return [line.strip() for line in block.split(";") if line.strip()]


@pytest.fixture
def with_least_rights(
    postgres: PostgresServer, postgres_url: str, upstream: FaultyUpstream, tmp_path: Path
) -> Iterator[LiveProxy]:
    """Yield a proxy that may read and write rows of a migrated store, but create nothing in it."""
    open_engine(postgres_url).dispose()  # as `pinocchio migrate` does
    name = postgres_url.rpartition("/")[2]
    statements = [each.replace("pinocchio_db", name).replace("SECRET", "app") for each in grants()]
    execute(postgres_url, "DROP ROLE IF EXISTS pinocchio_app", *statements)
    url = f"postgresql://pinocchio_app:app@127.0.0.1:{postgres.port}/{name}"
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=url, **DESK)
    yield proxy
    proxy.stop()
    execute(postgres_url, "DROP OWNED BY pinocchio_app", "DROP ROLE pinocchio_app")


def test_a_proxy_runs_with_the_rights_that_the_page_grants(
    with_least_rights: LiveProxy, postgres_url: str
) -> None:
    """With the page's rights replies are held, recorded and decided on, but no table is made."""
    proxy = with_least_rights
    held = proxy.ask("p=0.1").headers["x-pinocchio-review-id"]
    assert decide(proxy, held, verdict="approve", correct=True).status_code == 200
    until(lambda: execute(postgres_url, "SELECT status FROM exchanges") == [(200,)])
    assert proxy.desk.get("/metrics").status_code == 200
    with pytest.raises(Exception, match="permission denied"):
        execute(proxy.config.store, "CREATE TABLE mine (id int)")


def test_a_database_that_hangs_does_not_keep_a_scrape_waiting(
    postgres_url: str, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """While tables are locked a scrape gets what is known without the database at
    once, with the token or an admin's key; afterwards the rest is there again.
    """
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=postgres_url, **DESK)
    key = {"authorization": f"Bearer {make_key(proxy, 'admin', 'prometheus')}"}
    engine = sa.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        proxy.ask("p=0.1")
        for headers in ({}, key):
            assert "pinocchio_held_replies{" in proxy.desk.get("/metrics", headers=headers).text
        with engine.begin() as connection:
            names = [f'"{name}"' for name in sa.inspect(connection).get_table_names()]
            connection.execute(sa.text(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE"))
            begun = time.monotonic()
            while time.monotonic() - begun < 8:  # longer than all but keys are remembered
                for headers in ({}, key):
                    began = time.monotonic()
                    found = proxy.desk.get("/metrics", headers=headers)
                    assert found.status_code == 200
                    assert "pinocchio_requests_total{" in found.text
                    assert time.monotonic() - began < 3
                time.sleep(0.5)
        until(lambda: "pinocchio_held_replies{" in proxy.desk.get("/metrics").text)
    finally:
        engine.dispose()
        proxy.stop()


def test_a_busy_proxy_has_few_connections(
    postgres_url: str, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A proxy that holds 60 replies at once, beside a desk in use, has few connections."""
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=postgres_url, **DESK)
    name, seen = postgres_url.rpartition("/")[2], 0
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    try:
        proxy.desk.get("/metrics")
        with ThreadPoolExecutor(30) as pool:
            asking = [pool.submit(proxy.ask, f"p=0.{n % 9 + 1} {n}") for n in range(60)]
            while not all(each.done() for each in asking):
                [(count,)] = execute(postgres_url, query)
                seen = max(seen, count - 1)  # this one
        assert {each.result().status_code for each in asking} == {200}
    finally:
        proxy.stop()
    assert 0 < seen <= MOST_CONNECTIONS, seen
    assert f"at most {MOST_CONNECTIONS} connections" in PAGE


def test_a_backup_of_sqlite_has_what_is_in_the_log_of_writes(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """The page's statement copies a store in use with its log of writes
    (`-wal`), and the copy's chain is intact; the file alone lacks that log.
    """
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, **DESK)
    held = [proxy.ask(f"p=0.{n}").headers["x-pinocchio-review-id"] for n in (1, 2, 3)]
    statement = PAGE.split('"VACUUM INTO')[1].split('"')[0]
    copy, alone = tmp_path / "backup.db", tmp_path / "alone.db"
    sql = f"VACUUM INTO{statement}".replace("/backup/pinocchio.db", str(copy))
    with closing(sqlite3.connect(proxy.store_path)) as store:
        store.execute(sql)
    shutil.copyfile(proxy.store_path, alone)
    shutil.copyfile(f"{proxy.store_path}.chain-key", f"{copy}.chain-key")
    proxy.stop()
    assert ids_in(copy) == set(held)
    assert ids_in(alone) < set(held)
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{copy}\n")
    done = CliRunner().invoke(cli, ["verify", "--config", str(tmp_path / "proxy.yaml")])
    assert done.exit_code == 0, done.output


def ids_in(path: Path) -> set[str]:
    """Return the ids of held replies in a copy, empty if even the table is missing."""
    with closing(sqlite3.connect(path)) as store:
        tables = {name for (name,) in store.execute("SELECT name FROM sqlite_master")}
        if "held_replies" not in tables:
            return set()
        return {id for (id,) in store.execute("SELECT id FROM held_replies")}
