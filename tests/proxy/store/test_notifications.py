"""PostgreSQL notifies every proxy of verdicts and keys; without it they are found by polling."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from proxy.gate.secret_keys import digest_of, new_key_id, new_secret
from proxy.holds import waiting
from proxy.store.database.client_keys import ClientKey, KeyStore
from proxy.store.reviews.held_replies import HELD, RELEASED
from tests.running.databases import execute
from tests.running.live_proxy import LiveProxy, question, until
from tests.running.reviewing import decide, listed
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

HOLD = "{version: 1, name: p, default: {hold: {queue: q, reply: wait, wait: 60s}}}"
NEVER_S = 600.0
LISTENING = (
    "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make polling of the store so rare that this test sees none of it."""
    monkeypatch.setattr(waiting, "NOTIFIED_ASK_EVERY_S", NEVER_S)
    monkeypatch.setattr("proxy.generations.reloading.NOTIFIED_LOOK_EVERY_S", NEVER_S)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def proxy(upstream: FaultyUpstream, url: str, tmp_path: Path, seldom: None) -> Iterator[LiveProxy]:
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=url)
    until(lambda: execute(url, LISTENING))
    time.sleep(0.2)  # it notifies those who wait
    yield proxy
    proxy.stop()


def test_remote_verdict_wakes_waiter(proxy: LiveProxy, url: str) -> None:
    """A client that waits gets a verdict from elsewhere without a query to the store."""
    with ThreadPoolExecutor() as pool:
        waiting_one = pool.submit(proxy.ask, "p=0.1")
        until(lambda: listed(url, HELD))
        time.sleep(0.5)  # by now it waits for the next query, in ten minutes
        [id] = listed(url, HELD)
        assert decide(url, id, RELEASED)
        assert waiting_one.result(5).headers["x-pinocchio-action"] == "deliver"


def test_a_lost_connection_is_made_again(proxy: LiveProxy, url: str) -> None:
    """A lost connection is made again, and meanwhile the store is polled."""
    [(pid,)] = execute(url, LISTENING)
    with capture_logs() as lines:
        execute(url, f"SELECT pg_terminate_backend({pid})")
        until(lambda: [row for row in execute(url, LISTENING) if row != (pid,)])
        until(lambda: "store_notifications_heard" in [each["event"] for each in lines])
    events = [each["event"] for each in lines if each["event"].startswith("store_notifications")]
    assert events == ["store_notifications_lost", "store_notifications_heard"]
    with ThreadPoolExecutor() as pool:
        waiting_one = pool.submit(proxy.ask, "p=0.1")
        until(lambda: listed(url, HELD))
        [id] = listed(url, HELD)
        assert decide(url, id, RELEASED)
        assert waiting_one.result(5).status_code == 200


def test_a_key_is_known_and_revoked_everywhere_at_once(
    upstream: FaultyUpstream, url: str, tmp_path: Path, seldom: None
) -> None:
    """A new key works everywhere at once; once it is revoked, its requests under way end too."""
    options = {"keys": "required", "upstream": {"api_key": "sk-own"}}
    proxy = LiveProxy(upstream.base_url, tmp_path, store=url, **options)
    secret, keys = new_secret(), KeyStore(url)
    key = ClientKey(new_key_id(), digest_of(secret.encode()), time.time())

    def status() -> int:
        return httpx.post(
            f"{proxy.base_url}/chat/completions",
            json=question("p=0.9"),
            headers={"authorization": f"Bearer {secret}"},
            trust_env=False,
        ).status_code

    try:
        until(lambda: execute(url, LISTENING))
        time.sleep(0.5)
        keys.add(key)
        until(lambda: status() == 200)
        assert keys.revoke(key.id)
        until(lambda: status() == 401)
    finally:
        keys.close()
        proxy.stop()
