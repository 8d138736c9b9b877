"""A store that fails again and again under load: nothing is lost silently, no alarm is raised.

Commits fail, the disk is full, the database is gone or locked, in turn. Each reply that a
client knows as held is at the desk, each reply that was sent has its record or is counted as
dropped, and `audit verify` finds no fault. The databases are real, and so are their failures.

    scripts/test -m slow -s tests/proxy/store/test_repeated_faults.py    fifty of each kind
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from proxy.commands.audit import cli
from proxy.store.database.chain import KEY_VARIABLE
from tests.proxy.test_faults import desk_of, locked, no_space
from tests.running.databases import execute
from tests.running.desk_client import TOKEN, scraped, value
from tests.running.live_proxy import ProxyProcess, question, until
from tests.running.postgres import PostgresServer
from tests.servers.faulty_upstream import FaultyUpstream

CLIENTS = 4
KEY = "a key of the tests"
CONFIG = """
upstreams: {{any: {{base_url: "{upstream}", api_key: sk-x}}}}
models: [{{match: "*", upstream: any}}]
calibrator: {{checkpoint: "fake:0.7"}}
policies: policy.yaml
store: "{store}"
admin: {{port: 0, token: {token}}}
"""
POLICY = """
version: 1
name: faults
rules: [{name: sure, when: {model: ok}, then: deliver}]
default: {hold: {queue: q, reply: error}}
"""
TABLES = ("exchanges", "held_replies")
Fault = Callable[[], AbstractContextManager[None]]


class Load:
    """Clients that ask until they are stopped, and the replies that they got."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.held: set[str] = set()
        self.answered: set[str] = set()
        self.is_over = threading.Event()

    def run(self, client: int) -> None:
        """Ask for replies that go out and for replies that are held, in turn."""
        number = 0
        with httpx.Client(base_url=self._url, trust_env=False, timeout=60) as http:
            while not self.is_over.is_set():
                number += 1
                model = "ok" if number % 2 else f"say {client}-{number}"
                reply = http.post("/chat/completions", json=question("x", model))
                self.answered.add(reply.headers["x-pinocchio-request-id"])
                if "x-pinocchio-review-id" in reply.headers:
                    self.held.add(reply.headers["x-pinocchio-review-id"])
                time.sleep(0.01)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """Yield a server that only these tests use, since they stop it."""
    with PostgresServer() as server:
        yield server


def faults_of_sqlite(path: Path, proxy: ProxyProcess) -> list[Fault]:
    """Return a refused commit, a full disk, and a database that somebody else has locked."""

    @contextmanager
    def refused() -> Iterator[None]:
        execute(
            f"sqlite:///{path}",
            *(
                f"CREATE TRIGGER no_{table} BEFORE INSERT ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
                for table in TABLES
            ),
        )
        yield
        execute(f"sqlite:///{path}", *(f"DROP TRIGGER no_{table}" for table in TABLES))

    return [refused, lambda: no_space(proxy), lambda: locked(path)]


def faults_of_postgres(url: str, server: PostgresServer) -> list[Fault]:
    """Return a commit that fails at its end, a full disk, and a server that is stopped."""

    @contextmanager
    def raising(code: str, kind: str) -> Iterator[None]:
        body = f"begin raise exception using errcode = ''{code}''; end"
        execute(
            url,
            f"create or replace function fail() returns trigger language plpgsql as '{body}'",
        )
        for table in TABLES:  # in transactions of their own, which wait for one table each
            execute(url, f"create {kind.format(table=table)} for each row execute function fail()")
        yield
        for table in TABLES:
            execute(url, f"drop trigger no_{table} on {table}")

    @contextmanager
    def stopped() -> Iterator[None]:
        server.stop()
        yield
        server.start_again()

    deferred = "constraint trigger no_{table} after insert on {table} deferrable initially deferred"
    return [
        lambda: raising("23503", deferred),
        lambda: raising("53100", "trigger no_{table} before insert on {table}"),
        stopped,
    ]


@pytest.mark.parametrize("times", [4, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_is_lost_silently(
    kind: str,
    times: int,
    own_postgres: PostgresServer,
    upstream: FaultyUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What clients received is in the store once it works again, and the chain verifies."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else own_postgres.new_database()
    config = CONFIG.format(upstream=upstream.base_url, store=url, token=TOKEN)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "proxy.yaml").write_text(config)
    chance = random.Random(times)
    with ProxyProcess(tmp_path, config, env={KEY_VARIABLE: KEY}) as proxy, desk_of(proxy) as desk:
        load = Load(proxy.base_url)
        faults = (
            faults_of_postgres(url, own_postgres)
            if kind == "postgresql"
            else faults_of_sqlite(tmp_path / "store.db", proxy)
        )
        with ThreadPoolExecutor(CLIENTS) as pool:
            done = [pool.submit(load.run, client) for client in range(CLIENTS)]
            try:
                for number in range(times):
                    with faults[number % len(faults)]():
                        time.sleep(chance.uniform(0.05, 0.4))
                    time.sleep(chance.uniform(0.05, 0.4))
            finally:
                load.is_over.set()
        for each in done:
            each.result()
        until(lambda: value(scraped(desk), "pinocchio_store_lag_seconds") == 0, 60)
        dropped = value(scraped(desk), "pinocchio_store_dropped_total", what="records")
    kept = {id for (id,) in execute(url, "select id from held_replies")}
    recorded = {id for (id,) in execute(url, "select request_id from exchanges")}
    summary = f"{len(load.answered)} replies, {len(load.held)} held, {dropped:g} dropped"
    print(f"{kind}, {times} faults: {summary}")
    assert load.held - kept == set()
    assert len(load.answered - recorded) == dropped  # a database that refuses rows gets no others
    verified = CliRunner().invoke(cli, ["verify", "--config", str(tmp_path / "proxy.yaml")])
    assert verified.exit_code == 0, verified.output
