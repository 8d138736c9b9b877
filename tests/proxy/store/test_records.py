"""The record of exchanges: one row each, in the order of time, without delaying replies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.exchange.exchange import new_request_id
from proxy.store.record.writer import COLUMNS, Records, Row
from tests.conftest import StartProxy
from tests.running.databases import execute
from tests.running.live_proxy import LiveProxy, until
from tests.servers.faulty_upstream import FaultyUpstream


def row(id: str, **values: Any) -> Row:
    fields = {
        "request_id": id,
        "started_at": time.time(),
        "key_hash": "",
        "path": "/v1/chat/completions",
        "is_stream": False,
        "status": 200,
        "total_ms": 1.0,
        "overhead_ms": 0.5,
    } | values
    return tuple(fields.get(name) for name in COLUMNS)


def recorded(url: str, what: str = "*") -> list[Any]:
    return execute(url, f"SELECT {what} FROM exchanges ORDER BY request_id")


@pytest.fixture
def records(store_url: str) -> Iterator[Records]:
    made = Records(store_url, every_s=0.01)
    made.open()
    yield made
    made.close()


def test_every_row_is_written(records: Records, store_url: str) -> None:
    """More rows than fit into one statement or transaction are written in their order."""
    ids = [f"req_f{number:06}" for number in range(4_321)]
    for id in ids:
        records.add(row(id))
    records.close()
    assert [found for (found,) in recorded(store_url, "request_id")] == ids
    assert records.shed == 0


def test_close_writes_what_is_queued(store_url: str) -> None:
    """What is recorded when the proxy stops is not lost."""
    records = Records(store_url, every_s=60)
    records.open()
    records.add(row("req_f1"))
    records.close()
    assert recorded(store_url, "request_id") == [("req_f1",)]


def test_a_row_that_cannot_be_written_is_lost_alone(records: Records, store_url: str) -> None:
    """A repeated id loses only its own row, and half a surrogate pair is escaped."""
    for id, model in (("req_f1", "a"), ("req_f2", "\ud800"), ("req_f1", "b"), ("req_f3", "c")):
        records.add(row(id, model=model))
    records.close()
    kept = [("req_f1", "a"), ("req_f2", "\\ud800"), ("req_f3", "c")]
    assert recorded(store_url, "request_id, model") == kept
    assert records.shed == 1


def test_rows_beyond_the_queue_are_shed(store_url: str) -> None:
    """Rows beyond the queue of a slow database are dropped and counted."""
    records = Records(store_url, max_queue=5, every_s=60)
    for number in range(8):
        records.add(row(f"req_f{number}"))
    assert records.shed == 3
    records.open()
    records.close()
    assert len(recorded(store_url)) == 5


def test_request_ids_are_ordered_and_unguessable() -> None:
    """A later id is greater, so that the record grows at its end, and all ids differ."""
    first = new_request_id()
    time.sleep(0.002)
    ids = [new_request_id() for _ in range(2_000)]
    assert len({id[16:] for id in ids}) == len(ids)
    assert all(id > first for id in ids)
    assert {len(id) for id in ids} == {36}


def test_exchange_is_recorded_as_client_saw_it(
    start_proxy: StartProxy, upstream: FaultyUpstream, store_url: str
) -> None:
    """Replies, streams, errors and other surfaces have a row each, without text and keys."""
    proxy = start_proxy(store=store_url)
    headers = proxy.ask("secret p=0.2").headers
    proxy.ask("p=0.9", stream=True)
    proxy.ask("x", "status-429")
    proxy.ask("x", "hang-up")
    proxy.http.post("/v1/embeddings", json={"model": "ok"})
    wanted = "path, model, is_stream, status, error, confidence, "
    wanted += "confidence_status, action"
    until(lambda: len(recorded(store_url)) == 5)
    chat = "/v1/chat/completions"
    rows = [
        (*row[:5], row[5] and round(row[5], 4), *row[6:]) for row in recorded(store_url, wanted)
    ]
    assert sorted(rows, key=str) == sorted(
        [
            (chat, "ok", False, 200, None, 0.2, "scored", "deliver"),
            (chat, "ok", True, 200, None, 0.9, "scored", "deliver"),
            (chat, "status-429", 0, 429, None, None, "skipped", "deliver"),
            (chat, "hang-up", 0, 502, "upstream_broke_off", None, None, None),
            ("/v1/embeddings", None, 0, 200, None, None, "not_supported", "deliver"),
        ],
        key=str,
    )
    [(would, policy)] = [
        (would, policy)
        for id, would, policy in recorded(store_url, "request_id, would_action, policy")
        if id == headers["x-pinocchio-request-id"]
    ]
    assert (would, policy) == ("hold", headers["x-pinocchio-policy"])
    assert "secret" not in str(recorded(store_url))


def test_records_can_be_switched_off(start_proxy: StartProxy, store_url: str) -> None:
    """With `records: {keep_days: 0}` nothing is recorded."""
    proxy: LiveProxy = start_proxy(records={"keep_days": 0}, store=store_url)
    assert proxy.ask("p=0.9").status_code == 200
    time.sleep(0.5)
    assert recorded(store_url) == []
