"""The desk while its database is away: known visitors are let in as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running.desk_client import (
    API,
    DESK,
    HOLD,
    bearer,
    code_of,
    logged_in,
    make_key,
    revoke_key,
    stranger,
)
from tests.running.live_proxy import LiveProxy, until
from tests.running.postgres import PostgresServer
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """Yield a server that only these tests use, since they stop it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(
    own_postgres: PostgresServer, upstream: FaultyUpstream, tmp_path: Path
) -> Iterator[LiveProxy]:
    url = own_postgres.new_database()
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=url, **DESK)
    yield proxy
    proxy.stop()


def test_metrics_are_served_to_keys_that_are_known(
    proxy: LiveProxy, own_postgres: PostgresServer
) -> None:
    """Prometheus's key reads /metrics during an outage, also if it never asked before.
    A reviewer's session continues with the same rights, and strangers get nothing.
    """
    before = make_key(proxy, "admin", "unused")
    reviewer = make_key(proxy, "reviewer", "alice")
    with stranger(proxy) as client, logged_in(proxy, reviewer) as page:  # the first request of all
        asking = make_key(proxy, "admin", "prometheus")
        assert client.get("/metrics", headers=bearer(asking)).status_code == 200
        own_postgres.stop()
        try:
            with capture_logs() as lines:
                for secret in (before, asking):
                    answer = client.get("/metrics", headers=bearer(secret))
                    assert answer.status_code == 200
                    assert "pinocchio_store_lag_seconds" in answer.text
                assert [line["event"] for line in lines].count("desk_keys_remembered") == 1
            assert page.get(f"{API}/me").status_code == 200
            assert client.get("/metrics", headers=bearer(reviewer)).status_code == 403
            unknown = f"sk-pinocchio-{'0' * 64}"
            refused = client.get("/metrics", headers=bearer(unknown))
            assert code_of(refused) == (503, "store_unavailable")
            assert code_of(client.get("/metrics"))[0] == 401
        finally:
            own_postgres.start_again()


def test_a_revoked_key_is_forgotten(proxy: LiveProxy, own_postgres: PostgresServer) -> None:
    """A revoked key that the desk has seen opens nothing, with the store and without it."""
    secret = make_key(proxy, "admin", "leaver")
    with stranger(proxy) as client:
        assert client.get("/metrics", headers=bearer(secret)).status_code == 200
        revoke_key(proxy, "leaver")
        until(lambda: client.get("/metrics", headers=bearer(secret)).status_code == 401)
        own_postgres.stop()
        try:
            assert client.get("/metrics", headers=bearer(secret)).status_code == 503
        finally:
            own_postgres.start_again()
