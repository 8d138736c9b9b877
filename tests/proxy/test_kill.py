"""A proxy that is killed under load loses no held reply and hands none out twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.running.databases import execute
from tests.running.killing import CONFIG, HOLD, KEY, REVIEW_ID, TOOL, Killed
from tests.running.live_proxy import LiveProxy, ProxyProcess, error_of, question, until
from tests.running.postgres import PostgresServer
from tests.servers.faulty_upstream import FaultyUpstream

MORE = 20  # further lives at most, until a reply is handed out


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_instant(
    upstream: FaultyUpstream, store_url: str, tmp_path: Path, times: int
) -> None:
    """However often a proxy is killed, no reply with a confirmed id is lost, none is released
    twice, no row is half written, and what was handed out was marked before.

    Where nothing was handed out after `times` lives, there are some more.
    """
    killed = Killed(store_url, upstream.base_url, tmp_path, seed=times)
    lives = 0
    while lives < times or (not killed.handed and lives < times + MORE):
        killed.live_and_die()
        lives += 1
    assert killed.problems() == []
    print(f"killed {lives} times: {len(killed.told)} held, {len(killed.handed)} handed out")
    assert 0 < len(killed.handed) < len(killed.told)


AT_COMMIT = (  # a commit waits for whoever has this lock
    "create function late() returns trigger language plpgsql as "
    "'begin perform pg_advisory_xact_lock_shared(7); return null; end'",
    "create constraint trigger late after insert on held_replies deferrable initially deferred "
    "for each row execute function late()",
)
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
    "and datname = current_database()"
)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """Yield a server that only these tests use, since they kill it."""
    with PostgresServer() as server:
        yield server


def ask(base_url: str) -> httpx.Response:
    body = question("once", "tools", tools=[TOOL])
    url = f"{base_url}/chat/completions"
    return httpx.post(url, json=body, headers=KEY, trust_env=False, timeout=30)


def are_waiting(url: str, number: int) -> bool:
    """Return whether so many transactions wait for a lock."""
    return execute(url, WAITING) == [(number,)]


@contextmanager
def no_commits(url: str) -> Iterator[psycopg.Connection]:
    """Block commits of held replies until the connection is closed."""
    execute(url, *AT_COMMIT)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(7)")
        yield connection


def test_killed_in_the_middle_of_a_commit(
    upstream: FaultyUpstream, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """PostgreSQL finishes the last statement of a killed proxy. A client that asks another proxy
    meanwhile gets an error and then the reply that was held before, never a second held reply.
    """
    url = own_postgres.new_database()
    (tmp_path / "other").mkdir()
    other = LiveProxy(upstream.base_url, tmp_path / "other", policy=HOLD, store=url)
    try:
        (tmp_path / "hold.yaml").write_text(HOLD)
        config = CONFIG.format(upstream=upstream.base_url, store=url)
        proxy = ProxyProcess(tmp_path, config)
        with ThreadPoolExecutor() as pool:
            with no_commits(url):
                lost = pool.submit(ask, proxy.base_url)
                until(lambda: are_waiting(url, 1))
                proxy.send_signal(signal.SIGKILL)
                with pytest.raises(httpx.TransportError):
                    lost.result()
                second = pool.submit(ask, other.base_url)
                until(lambda: are_waiting(url, 2))
            again = second.result()
        proxy.wait(within_s=20)
        assert (again.status_code, error_of(again)["code"]) == (503, "store_unavailable")
        [(id,)] = execute(url, "select id from held_replies")
        assert ask(other.base_url).headers[REVIEW_ID] == id
        assert execute(url, "select id from held_replies") == [(id,)]
    finally:
        other.stop()


def test_postgresql_is_killed_in_the_middle_of_a_commit(
    upstream: FaultyUpstream, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """A client whose commit PostgreSQL could not confirm gets an error;
    asking again brings one held reply, whether the first was stored or not.
    """
    url = own_postgres.new_database()
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=url)
    try:
        with ThreadPoolExecutor() as pool:
            with suppress(psycopg.OperationalError), no_commits(url):
                first = pool.submit(ask, proxy.base_url)
                until(lambda: are_waiting(url, 1))
                own_postgres.kill()
            error = first.result()
            assert (error.status_code, error_of(error)["code"]) == (503, "store_unavailable")
            restart = pool.submit(own_postgres.start_again)
            until(lambda: REVIEW_ID in ask(proxy.base_url).headers)
            restart.result()
        [(id,)] = execute(url, "select id from held_replies")
        assert ask(proxy.base_url).headers[REVIEW_ID] == id
    finally:
        proxy.stop()
