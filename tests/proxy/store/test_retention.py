"""Exchanges, contents and undecided holds are removed when their time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from proxy.store.database.chain import KEY_VARIABLE, chain_key
from proxy.store.database.database import open_engine
from proxy.store.record.writer import Records
from proxy.store.retention import Retention
from proxy.store.reviews import held_replies
from proxy.store.reviews.held_replies import (
    AUDIT,
    EXPIRED,
    HELD,
    REJECTED,
    RELEASED,
    HeldReply,
    Store,
)
from proxy.store.verification import VerificationResult, verify
from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import decide, policy
from tests.proxy.store.test_records import row
from tests.proxy.store.test_store import REPLY
from tests.running.databases import execute
from tests.running.live_proxy import error_of, until

DAY_S = 86_400


@pytest.fixture(autouse=True)
def with_chain_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key of the tests")


@pytest.fixture
def retention(store_url: str) -> Iterator[Retention]:
    made = Retention(store_url, keep_days=30, keep_content_days=7)
    yield made
    made.close()


def id_of_age(days: float, end: str = "f") -> str:
    return f"req_{int((time.time() - days * DAY_S) * 1_000):012x}{end}"


def record(url: str, *ids: str) -> None:
    records = Records(url, every_s=0.01)
    records.open()
    for id in ids:
        records.add(row(id))
    records.close()


def verified(url: str) -> VerificationResult:
    key = chain_key(url)
    assert key is not None
    engine = open_engine(url)
    found = verify(engine, key)
    engine.dispose()
    return found


def test_old_exchanges_are_deleted(store_url: str, retention: Retention) -> None:
    """Exchanges older than `keep_days`, by their id, are deleted; the chain has the reason."""
    old = [id_of_age(31, f"{number:04}") for number in range(2_500)]  # more than one slice
    young = [id_of_age(29), id_of_age(0)]
    record(store_url, *old, *young)
    retention.forget()
    assert execute(store_url, "SELECT request_id FROM exchanges ORDER BY 1") == [
        (id,) for id in young
    ]
    found = verified(store_url)
    assert (found.is_intact, found.forgotten, found.rows) == (True, 2_500, {"exchanges": 2})
    retention.forget()
    assert verified(store_url).entries == found.entries, "nothing to delete is no entry"


def test_early_deletion_breaks_the_chain(store_url: str, retention: Retention) -> None:
    """A missing row is no break of the chain only if its time was over."""
    young = id_of_age(3)
    record(store_url, id_of_age(31), young, id_of_age(2))
    retention.forget()
    execute(store_url, "DELETE FROM exchanges WHERE request_id = :id", id=young)
    found = verified(store_url)
    assert [(each.what, each.id) for each in found.breaks] == [("row_missing", young)]


def test_lists_of_deleted_rows_are_emptied(
    store_url: str, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries whose exchanges are all deleted stay in the chain without their lists."""
    then = time.time() - 31 * DAY_S
    with monkeypatch.context() as patch:
        patch.setattr("proxy.store.database.chain.time.time", lambda: then)
        record(store_url, f"req_{int((then - 1) * 1_000):012x}")
    record(store_url, id_of_age(0))
    retention.forget()
    lists = execute(
        store_url, "SELECT covers FROM audit_chain WHERE \"of\" = 'exchanges' ORDER BY 1"
    )
    assert [bool(covers) for (covers,) in lists] == [False, True, True]
    found = verified(store_url)
    assert (found.is_intact, found.rows) == (True, {"exchanges": 1})


def test_without_days_exchanges_stay(store_url: str) -> None:
    """`keep_days: 0` records nothing and deletes nothing."""
    record(store_url, id_of_age(1_000))
    retention = Retention(store_url, keep_days=0, keep_content_days=7)
    retention.forget()
    retention.close()
    assert execute(store_url, "SELECT count(*) FROM exchanges") == [(1,)]


def decided(id: str, state: str, days: float, **fields: object) -> HeldReply:
    """Return a reply that was decided on this many days ago."""
    at = time.time() - days * DAY_S
    fixed = {"decided_at": at, "expires_at": at + 60, "request": b"{}", "request_id": f"req_{id}"}
    return replace(REPLY, id=id, state=state, **(fixed | fields))  # type: ignore[arg-type]


KEPT = {
    "released": decided("released", RELEASED, 6),
    "fetchable": decided("fetchable", RELEASED, 8, expires_at=4e9),
    "waiting": replace(REPLY, id="waiting", request=b"{}", created_at=1.0),
}
GONE = {
    "old": decided("old", RELEASED, 8, revised=b'{"id": "new"}', note="why", decided_by="ada"),
    "rejected": decided("rejected", REJECTED, 8),
    "expired": decided("expired", EXPIRED, 8),
    "audited": decided("audited", RELEASED, 8, kind=AUDIT, share=0.1),
}


def test_content_is_deleted_once_it_is_over(store_url: str, retention: Retention) -> None:
    """Requests, replies and reviewers' texts are deleted `keep_content_days` after
    the decision. Facts stay, and so do replies that can still be fetched or wait.
    """

    async def held() -> dict[str, HeldReply]:
        store = Store(store_url)
        await store.open()
        for reply in () if held_before else (*KEPT.values(), *GONE.values()):
            await store.hold(reply)
        found = {id: await store.get(id) for id in (*KEPT, *GONE)}
        await store.aclose()
        return {id: reply for id, reply in found.items() if reply is not None}

    held_before: dict[str, HeldReply] = {}
    held_before = asyncio.run(held())
    retention.forget()
    after = asyncio.run(held())
    assert {id: after[id] for id in KEPT} == {id: held_before[id] for id in KEPT}
    for id in GONE:
        assert after[id].is_forgotten
        bare = {"question": "", "reply": b"", "request": None}
        revised = None if held_before[id].revised is None else b""
        assert after[id] == replace(held_before[id], **bare, revised=revised)
    kinds = execute(store_url, "SELECT kind FROM audit_chain WHERE kind = 'content_deleted'")
    assert len(kinds) == 1
    assert verified(store_url).is_intact


def test_what_nobody_decided_on_expires_by_itself(
    store_url: str, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undecided replies expire without anybody looking at the queue; decided ones stay."""
    monkeypatch.setattr(held_replies, "EXPIRED_AT_ONCE", 20)

    async def hold() -> None:
        store = Store(store_url)
        await store.open()
        for number in range(45):  # more than two slices
            await store.hold(replace(REPLY, id=f"late-{number}", expires_at=1.0))
        await store.hold(replace(REPLY, id="open"))
        await store.aclose()

    asyncio.run(hold())
    retention.expire()
    states = "SELECT state, count(*) FROM held_replies GROUP BY state ORDER BY state"
    assert execute(store_url, states) == [(EXPIRED, 45), (HELD, 1)]


def test_deleted_reply_is_a_404(start_proxy: StartProxy) -> None:
    """A released reply whose content was deleted is a 404 with a code of its own."""
    proxy = start_proxy(policy=policy("hold"))
    id = proxy.ask("p=0.1").json()["id"]
    assert decide(proxy, id, RELEASED)
    url = f"sqlite:///{proxy.store_path}"
    execute(url, f"UPDATE held_replies SET decided_at = 1, expires_at = 2 WHERE id = '{id}'")
    retention = Retention(url, keep_days=30, keep_content_days=7)
    assert proxy.http.get(f"/v1/chat/completions/{id}").status_code == 200
    retention.forget()
    retention.close()
    gone = proxy.http.get(f"/v1/chat/completions/{id}")
    assert (gone.status_code, error_of(gone)["code"]) == (404, "held_reply_forgotten")


def test_a_running_proxy_does_it(
    start_proxy: StartProxy, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the proxy removes what is over, first after a moment and then regularly."""
    monkeypatch.setattr("proxy.store.retention.FIRST_AFTER_S", 0.1)
    record(store_url, id_of_age(31))
    start_proxy(store=store_url)
    until(lambda: execute(store_url, "SELECT count(*) FROM exchanges") == [(0,)])
