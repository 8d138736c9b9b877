"""The chain after a failed commit: no alarm of tampering, and no lost record.

A commit fails before the database has it (a full disk, a constraint that is checked at the end, a
connection that ends), or after it (the answer is lost). PostgreSQL's server may die with its last
commits, for which nobody waited. The databases and their failures are real.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from typer.testing import CliRunner, Result

from proxy.commands.audit import cli
from proxy.exchange.exchange import new_request_id
from proxy.store.database.chain import BEGUN, CUT, KEY_VARIABLE, audit_chain, note_change
from proxy.store.database.client_keys import client_keys
from proxy.store.database.database import open_engine
from proxy.store.record.writer import Records
from tests.proxy.store.test_records import row
from tests.running.live_proxy import ROOT, environment, until
from tests.running.postgres import PostgresServer

FAILURES = (SQLAlchemyError, sqlite3.Error, psycopg.Error, OSError)
HOW = ("before the database has it", "connection ends", "answer is lost")


@pytest.fixture(autouse=True)
def chain_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key of the tests")


@pytest.fixture
def engine(store_url: str) -> Iterator[sa.Engine]:
    engine = open_engine(store_url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
            "CREATE TABLE children (parent INTEGER REFERENCES parents (id) "
            "DEFERRABLE INITIALLY DEFERRED)",
        ):
            connection.exec_driver_sql(statement)
    yield engine
    engine.dispose()


@pytest.fixture
def audit(store_url: str, tmp_path: Path) -> Callable[..., Result]:
    (tmp_path / "proxy.yaml").write_text(f"store: {store_url}\n")
    return lambda *words: CliRunner().invoke(
        cli, [*words, "--config", str(tmp_path / "proxy.yaml")]
    )


def add_key(
    engine: sa.Engine, id: str, *, fails: str = "", then: Callable[..., None] | None = None
) -> None:
    """Write a row and its entry in a transaction, which may fail at its commit."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        values = {"id": id, "digest": id, "created_at": 1.0}
        connection.execute(client_keys.insert(), values)
        if fails:
            connection.exec_driver_sql("INSERT INTO children VALUES (7)")
        note_change(connection, "made", client_keys, client_keys.c.id == id)
        if then is not None:
            then(connection)


def end_connection(connection: sa.Connection) -> None:
    """End a connection before its COMMIT, at the server or by closing the file's handle."""
    if connection.dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.close()
        return
    pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with psycopg.connect(
        connection.engine.url.render_as_string(hide_password=False).replace("+psycopg", ""),
        autocommit=True,
    ) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))


def kinds(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(audit_chain.c.kind)).scalars())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_commit_that_fails_raises_no_alarm(
    engine: sa.Engine,
    audit: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    before: int,
) -> None:
    """A failed commit, first or later, once or repeated, leaves a chain that verifies."""
    for number in range(before):
        add_key(engine, f"before {number}")
    ways: dict[str, Any] = dict(
        zip(HOW, ({"fails": "at the end"}, {"then": end_connection}, {}), strict=True)
    )
    with monkeypatch.context() as patch:
        if how == HOW[2]:
            lose_answer(patch, engine)
        for number in range(2):
            with pytest.raises(FAILURES):
                add_key(engine, f"fails {number}", **ways[how])
    add_key(engine, "after")
    add_key(engine, "and again")
    assert CUT not in kinds(engine)
    assert kinds(engine).count(BEGUN) == 1
    done = audit("verify")
    assert (done.exit_code, "nothing was changed" in done.stdout) == (0, True), done.stdout


def lose_answer(patch: pytest.MonkeyPatch, engine: sa.Engine) -> None:
    """Make commits succeed in the database while the connection breaks before the answer."""
    dialect = type(engine.dialect)
    commit = dialect.do_commit

    def and_fail(self: object, connection: object) -> None:
        commit(self, connection)
        raise OSError("the connection was reset")

    patch.setattr(dialect, "do_commit", and_fail)


FULL_DISK = """
import os, resource, sys, time
from proxy.store.record.writer import Records
from proxy.exchange.exchange import new_request_id
from tests.proxy.store.test_records import row
from tests.running.live_proxy import until

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def add(count, model="m"):
    for _ in range(count):
        records.add(tuple(row(new_request_id(), model=model)))

path = sys.argv[1].removeprefix("sqlite:///")
records = Records(sys.argv[1], every_s=0.01)
records.open()
for more in (0, 100, 5_000, 20_000, 60_000):  # the disk is full in the midst of a commit
    add(20)
    until(lambda: not records.lag_s())
    limit(max(os.path.getsize(path + end) for end in ("", "-wal")) + more)
    add(60, "x" * 500)
    time.sleep(0.3)
    limit(resource.RLIM_INFINITY)
    until(lambda: not records.lag_s())
records.close()
print(records.shed)
"""


def test_a_full_disk_raises_no_alarm(tmp_path: Path) -> None:
    """A full disk, simulated by a limit on the file's size, raises no alarm and loses nothing."""
    url = f"sqlite:///{tmp_path}/store.db"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, url],
        env={**environment(), "PYTHONPATH": str(ROOT), KEY_VARIABLE: os.environ[KEY_VARIABLE]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "records_wait" in done.stdout  # commits did fail
    assert done.stdout.splitlines()[-1] == "0"
    (tmp_path / "proxy.yaml").write_text(f"store: {url}\n")
    verified = CliRunner().invoke(cli, ["verify", "--config", str(tmp_path / "proxy.yaml")])
    assert (verified.exit_code, "400 of exchanges" in verified.stdout) == (0, True), verified.stdout
    assert "audit_chain_cut" not in done.stdout


def test_a_server_that_dies_takes_the_last_commits_along_without_an_alarm(tmp_path: Path) -> None:
    """Records that a crashed PostgreSQL had not yet written to its disk raise no alarm."""
    with PostgresServer(is_durable=True) as server:
        url = server.new_database()
        open_engine(url).dispose()  # its tables are on the disk
        records = Records(url, every_s=0.001)
        records.open()
        for _ in range(3):
            for _ in range(30):
                records.add(tuple(row(new_request_id())))
                until(lambda: not records.lag_s())
            server.kill()
            server.start_again()
            records.add(tuple(row(new_request_id())))
            until(lambda: not records.lag_s())
        records.close()
        (tmp_path / "proxy.yaml").write_text(f"store: {url}\n")
        done = CliRunner().invoke(cli, ["verify", "--config", str(tmp_path / "proxy.yaml")])
    assert (done.exit_code, "nothing was changed" in done.stdout) == (0, True), done.stdout


def test_a_cut_is_declared_once(engine: sa.Engine, audit: Callable[..., Result]) -> None:
    """A declared cut stays in the chain with author and reason, and a later one needs its own."""
    add_key(engine, "first")
    assert audit("declare", "--by", "ada", "--why", "x").exit_code == 1
    for why in ("the first backup was restored", "another one was"):
        add_key(engine, why)
        with engine.begin() as connection:
            last = sa.select(sa.func.max(audit_chain.c.sequence)).scalar_subquery()
            connection.execute(audit_chain.delete().where(audit_chain.c.sequence == last))
            connection.execute(client_keys.delete().where(client_keys.c.id == why))
        add_key(engine, f"after {why}")
        assert audit("verify").exit_code == 1
        assert audit("declare", "--by", " ", "--why", why).exit_code == 2
        assert audit("declare", "--by", "ada", "--why", why).exit_code == 0
        done = audit("verify")
        assert (done.exit_code, why in done.stdout, "'ada'" in done.stdout) == (0, True, True)
        assert audit("declare", "--by", "eve", "--why", "other words").exit_code == 1
        engine.dispose()
    found = json.loads(audit("verify", "--json").stdout)
    assert [each["by"] for each in found["declared"]] == ["ada", "ada"]


def test_changed_rows_cannot_be_declared(engine: sa.Engine, audit: Callable[..., Result]) -> None:
    """A declaration covers entries that are gone, and no changed rows."""
    add_key(engine, "changed")
    with engine.begin() as connection:
        connection.execute(client_keys.update().values(digest="another"))
    assert audit("declare", "--by", "eve", "--why", "never mind").exit_code == 1
    assert audit("verify").exit_code == 1
