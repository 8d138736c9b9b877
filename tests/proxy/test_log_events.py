"""Each event of the log is named in a test; the ones that are easy to cause are caused here.

A line says what failed and where in the proxy's own words, without any text or key of a client's.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies import load_policy
from proxy.config.sections import Config
from proxy.config.setup import load_setup
from proxy.desk.feed import Feed
from proxy.desk.webhooks import Courier
from proxy.errors import StoreError, UpstreamError
from proxy.holds.waiting import Verdicts
from proxy.http.listener.endpoint import Endpoint
from proxy.http.wire.http import Reply
from proxy.http.workers.board import Board
from proxy.http.workers.channel import Channel, Message, pack_message
from proxy.http.workers.peers import Peers
from proxy.http.workers.supervisor import RefusedError
from proxy.learning.traffic import Traffic
from proxy.observe.outbox import Outbox
from proxy.startup.multiprocess import _Configuration
from proxy.store.database.database import open_engine
from proxy.store.database.owned_ids import OwnedIds
from proxy.store.database.verdicts import Withdrawal
from proxy.store.queue import ReviewQueue
from proxy.store.retention import Retention
from proxy.store.reviews.held_replies import Store
from proxy.upstreams.translation.errors import error_reply
from tests.proxy.store.test_store import REPLY
from tests.running.client_keys import OWN_KEY, make_key
from tests.running.databases import execute
from tests.running.live_proxy import ROOT, LiveProxy, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

SECRET = "sk-secret of a client"
LOGGED = re.compile(r'\b(?:log\.(?:debug|info|warning|error|exception)|ShedCounter)\(\s*"(\w+)"')


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """Yield the lines that this test logs; check that none contains the secret."""
    with capture_logs() as captured:
        yield captured
    assert SECRET not in str(captured)
    assert "sk-secret" not in str(captured)


@pytest.fixture
def no_store(tmp_path: Path) -> str:
    """Return the URL of a database in a folder that does not exist."""
    return f"sqlite:///{tmp_path}/gone/store.db"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a database that can be used."""
    url = f"sqlite:///{tmp_path}/store.db"
    open_engine(url).dispose()
    return url


def of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def soon(lines: list[Any], event: str) -> dict[str, Any]:
    """Return the first line of this event as soon as it is logged."""
    await asyncio.to_thread(until, lambda: of(lines, event))
    first: dict[str, Any] = of(lines, event)[0]
    return first


def without(url: str, table: str) -> None:
    """Rename a table within this context, so that whatever needs it fails."""
    execute(url, f"ALTER TABLE {table} RENAME TO {table}_before")


# --- the store -----------------------------------------------------------------------------------


def test_ids_wait_for_the_store(no_store: str, lines: list[Any]) -> None:
    ids = OwnedIds(no_store)
    ids.note("file-" + SECRET, "a-hash")
    until(lambda: of(lines, "owned_ids_not_written"))
    ids.close()
    line = of(lines, "owned_ids_not_written")[0]
    assert (line["count"], line["log_level"]) == (1, "error")
    assert "cannot be opened" in line["reason"]


def test_what_is_old_stays_while_the_store_is_away(
    no_store: str, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retention that cannot open the store is logged with the reason."""
    monkeypatch.setattr("proxy.store.retention.FIRST_AFTER_S", 0.01)
    retention = Retention(no_store, keep_days=30, keep_content_days=7)
    retention.start()
    until(lambda: of(lines, "retention_failed"))
    retention.close()
    assert "cannot be opened" in of(lines, "retention_failed")[0]["reason"]


async def test_desk_stream_survives_store_failure(url: str, lines: list[Any]) -> None:
    """While the store fails, the desk's event stream stays open and one line is logged."""
    queue = ReviewQueue(url)
    feed = Feed(queue, every_s=0.01)
    stream = await feed.watch()
    assert await anext(stream) == b": ping\n\n"
    without(url, "held_replies")
    waiting = asyncio.ensure_future(anext(stream))
    assert (await soon(lines, "desk_events_unknown"))["log_level"] == "warning"
    await asyncio.sleep(0.1)
    assert len(of(lines, "desk_events_unknown")) == 1
    await feed.aclose()
    with suppress(StopAsyncIteration):
        await waiting
    queue.close()


async def test_webhooks_wait_for_the_store(no_store: str, lines: list[Any]) -> None:
    hook = {"url": "https://hooks.example/sk-secret", "secret": "whsec_" + "A" * 32}
    config = Config.model_validate({"store": no_store, "webhooks": [hook]})
    courier = Courier(config, None, every_s=0.01)
    courier.start()
    line = await soon(lines, "webhooks_paused")
    await asyncio.sleep(0.1)
    await courier.aclose()
    assert "cannot be opened" in line["reason"]
    assert len(of(lines, "webhooks_paused")) == 1


async def test_who_waits_for_a_verdict_goes_on_waiting(url: str, lines: list[Any]) -> None:
    store = Store(url)
    await store.open()
    verdicts = Verdicts(store, every_s=0.01)
    waiting = asyncio.create_task(verdicts.wait(replace(REPLY, expires_at=time.time() + 60), 20))
    without(url, "held_replies")
    assert (await soon(lines, "verdicts_unknown"))["log_level"] == "warning"
    assert not waiting.done()
    verdicts.end_waits()
    with pytest.raises(StoreError):
        await waiting
    await verdicts.aclose()
    await store.aclose()


async def test_unwritten_withdrawal_is_kept(url: str, tmp_path: Path, lines: list[Any]) -> None:
    """A withdrawal that cannot be written is logged as
    long as it waits, and once more when the proxy ends.
    """
    policy = tmp_path / "gate.yaml"
    policy.write_text(
        "version: 1\nname: gate\ncertificate: gate.certificate.json\nrules:\n"
        "  - {name: sure, when: {confidence: {max_error: 0.1}}, then: deliver}\ndefault: block\n"
    )
    traffic = Traffic(url, look_every_s=0.01)
    await traffic.open([load_policy(policy)])
    without(url, "withdrawn_grants")
    traffic._note(Withdrawal("digest", "gate", "all", "drift", time.time()))
    assert (await soon(lines, "traffic_not_read"))["log_level"] == "error"
    await traffic.aclose()
    assert (await soon(lines, "withdrawal_not_written"))["log_level"] == "error"


def test_unusable_keys_are_logged(
    upstream: FaultyUpstream, tmp_path: Path, lines: list[Any]
) -> None:
    """A key of an unknown team is logged, and so is a failure to read the keys."""
    proxy = LiveProxy(upstream.base_url, tmp_path, keys="required", upstream={"api_key": OWN_KEY})
    try:
        assert len(of(lines, "no_client_keys")) == 1
        secret, key = make_key(proxy.store_path, team="gone")
        until(lambda: of(lines, "key_unusable"))
        assert f"key {key.id}: there is no team 'gone'" in of(lines, "key_unusable")[0]["problem"]
        without(f"sqlite:///{proxy.store_path}", "client_keys")
        until(lambda: of(lines, "keys_unreadable"))
        assert of(lines, "keys_unreadable")[0]["hint"] == "the known ones still hold"
        assert secret not in str(lines)
    finally:
        proxy.stop()


# --- clients and upstreams -----------------------------------------------------------------------


def test_invalid_request_is_logged_without_text(
    upstream: FaultyUpstream, tmp_path: Path, lines: list[Any]
) -> None:
    """Bytes that are no request are logged with the client's address and none of their text."""
    proxy = LiveProxy(upstream.base_url, tmp_path, waits=False)
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(f"{SECRET}\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 400"
            peer = client.getsockname()
        until(lambda: of(lines, "request_refused"))
        [line] = of(lines, "request_refused")
        assert (line["reply"], line["log_level"]) == ("HTTP/1.1 400", "debug")
        assert tuple(line["client"]) == peer
    finally:
        proxy.stop()


async def test_failed_reply_is_logged_with_place(lines: list[Any]) -> None:
    """A reply that fails is logged with its place in the code and not ended as if whole."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError(SECRET)

    async def answer(_: Any) -> Reply:
        return Reply(200, [], broken())

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": "/v1/x", "query_string": b"", "headers": []}
    await Endpoint(answer, 100)(scope, receive, send)
    [line] = of(lines, "reply_broke_off")
    assert (line["path"], line["kind"]) == ("/v1/x", "ValueError")
    assert Path(__file__).name in line["at"]
    assert not any(each.get("more_body") is False for each in sent), "its end is not told"


def test_translation_failure_is_logged(lines: list[Any]) -> None:
    with pytest.raises(UpstreamError):
        error_reply(ValueError(SECRET))
    [line] = of(lines, "translation_failed")
    assert (line["kind"], line["log_level"]) == ("ValueError", "warning")


# --- our own faults ------------------------------------------------------------------------------


def test_failed_telemetry_is_counted_and_logged(lines: list[Any]) -> None:
    """Telemetry that fails is counted, and logged with the kind of the fault alone."""

    def fail(batch: list[str]) -> int:
        raise ValueError(batch)

    outbox = Outbox("nowhere", fail, gather_s=0)
    outbox.start()
    outbox.add(SECRET)
    until(lambda: outbox.drop_count)
    outbox.close()
    failed, dropped = lines
    assert (failed["event"], failed["to"], failed["kind"]) == (
        "telemetry_failed",
        "nowhere",
        "ValueError",
    )
    assert (dropped["event"], dropped["count"], dropped["reason"]) == (
        "nowhere_dropped",
        1,
        "ValueError",
    )


def test_a_message_of_a_worker_that_fails_ends_nothing(lines: list[Any]) -> None:
    """A message whose handler fails is logged without its text, and the next one is handled."""
    ours, theirs = socket.socketpair()
    peers, is_over, bodies = Peers(0, Board(1), Channel(theirs)), threading.Event(), []

    def take(body: str) -> None:
        bodies.append(body)
        raise ValueError(body)

    peers.on("decided", take)
    peers.start(is_over.set)
    for _ in range(2):
        ours.sendall(pack_message(Message("decided", 0, SECRET)))
    ours.close()
    assert is_over.wait(10)
    theirs.close()
    assert bodies == [SECRET] * 2
    fields = [(line["event"], line["message"], line["kind"]) for line in lines]
    assert fields == [("peer_message_failed", "decided", "ValueError")] * 2


def test_config_fault_is_logged_with_place(
    lines: list[Any],
) -> None:
    """A fault of ours in reading a configuration is logged with its place in the code."""

    def fail() -> Any:
        raise ValueError(SECRET)

    with pytest.raises(RefusedError, match="its log says where"):
        _Configuration(load_setup(None), fail).read()
    [line] = of(lines, "configuration_unreadable")
    assert line["kind"] == "ValueError"
    assert Path(__file__).name in line["at"]


# --- all of them ---------------------------------------------------------------------------------


NOT_PROVOKED: dict[str, str] = {}
"""Events that no test can bring about here, each with the reason."""


def events() -> set[str]:
    """Return the events that the code names where it logs or counts."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "proxy").rglob("*.py"))
    return set(LOGGED.findall(code))


def test_every_event_is_named_in_a_test() -> None:
    """Every event is named in a test, or has a reason here why no test can cause it."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    found = events()
    assert len(found) > 60
    assert {event for event in found if f'"{event}"' not in tests} == NOT_PROVOKED.keys()
