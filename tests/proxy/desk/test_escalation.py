"""Replies without a decision in time move to another queue, once, and only while they wait."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies import Hold, InvalidDocumentError, parse_policy
from proxy.config.policy_book import PolicyBook
from proxy.holds.binding import Approvals
from proxy.store.queue import ReviewQueue
from proxy.store.retention import Retention
from proxy.store.reviews.held_replies import HELD, RELEASED, HeldReply, Store
from tests.conftest import StartProxy
from tests.proxy.desk.test_approvals import HELD_REPLY, events_of, put, queues
from tests.proxy.desk.test_webhooks import config, running, soon
from tests.running.desk_client import API, DESK, bearer, decide, make_key, scraped, value
from tests.running.live_proxy import LiveProxy, error_of, until
from tests.servers.webhook_receiver import WebhookReceiver
from tests.sharing.captured_logs import capture_logs

MOVES = (
    "{version: 1, name: desk, default: {hold: "
    "{queue: seniors, approvals: 2, escalate: {after: 1h, to: leads}}}}"
)
CALL = {"call": {"id": "a", "name": "f", "arguments": {}}, "messages": []}

OF_SCHEMA_10 = "05422820d99a5002718cc8c715eb451b38fe068b7790bdf4b69f6cca50d97f0d"


def due(id: str, **changed: Any) -> HeldReply:
    """Return a reply that should have moved to the leads a minute ago."""
    past = {"escalate_at": time.time() - 60, "escalate_to": "leads"}
    return replace(HELD_REPLY, id=id, created_at=time.time() - 120, **{**past, **changed})


def test_each_goes_once_whoever_moves_it(store_url: str) -> None:
    """Over four connections at once, as several workers and
    proxies have, each reply moves once and is logged once.
    """
    ids = [f"chatcmpl-held-{number}" for number in range(30)]
    put(store_url, *map(due, ids))
    barrier = threading.Barrier(4)

    def move(queue: ReviewQueue) -> None:
        barrier.wait(30)
        queue.expire()

    with capture_logs() as lines, queues(store_url, 4) as each:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(move, each))
        each[0].expire()  # what the others had locked meanwhile
        for id in ids:
            held = each[0].get(id)
            assert held is not None
            assert (held.queue, held.state, held.escalate_at) == ("leads", HELD, None)
            assert events_of(each[0], id).count("escalated") == 1
    moved = [line for line in lines if line["event"] == "reviews_escalated"]
    assert sum(line["reviews"] for line in moved) == 30


def test_only_what_waits_goes(store_url: str) -> None:
    """A reply moves not before its time, nor after a decision
    or its expiry; its approvals and the remaining time stay.
    """
    later, over = due("later", escalate_at=time.time() + 60), due("over", expires_at=1.0)
    put(store_url, due("moved"), later, over, due("decided"), replace(HELD_REPLY, id="stays"))
    with queues(store_url, 1) as [queue]:
        for id in ("moved", "decided"):
            held = queue.get(id)
            assert held is not None
            first = queue.decide(held, RELEASED, "alice")
            assert first is not None
        assert queue.decide(first, RELEASED, "bob") is not None
        before = queue.get("moved")
        retention = Retention(store_url, keep_days=0, keep_content_days=30)
        retention.expire()
        retention.close()
        found = {id: queue.get(id) for id in ("moved", "later", "over", "decided", "stays")}
        queues_now = {id: held.queue for id, held in found.items() if held is not None}
        moved = found["moved"]
        assert moved is not None
        assert before is not None
        assert (moved.approved, moved.expires_at) == (before.approved, before.expires_at)
        assert queue.decide(moved, RELEASED, "bob") is not None
        last = queue.get("moved")
        assert last is not None
    assert queues_now == {"moved": "leads"} | dict.fromkeys(
        ("later", "over", "decided", "stays"), HELD_REPLY.queue
    )
    assert last.state == RELEASED


async def test_webhooks_hear_of_it(store_url: str) -> None:
    """A webhook names the new queue, also where the move was due while no proxy ran."""
    with WebhookReceiver() as receiver:
        store = Store(store_url)
        await store.open()
        await store.hold(due("chatcmpl-held-1"))
        await store.aclose()
        async with running(config(store_url, receiver.url, events=["escalated"])):
            await soon(lambda: receiver.received)
            await asyncio.sleep(0.1)
    [event] = [each.json for each in receiver.received]
    assert (event["type"], event["data"]["queue"]) == ("review.escalated", "leads")


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=MOVES, **DESK)


def make_due(proxy: LiveProxy) -> None:
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        connection.execute("UPDATE held_replies SET escalate_at = 1 WHERE escalate_at > 0")
    with queues(proxy.config.store, 1) as [queue]:
        queue.expire()


def test_reviewers_of_the_other_queue_decide(proxy: LiveProxy) -> None:
    """A reply belongs to the second queue's reviewers only after it moved,
    and then not to the first's; API, page and metric name both queues.
    """
    keys = {
        name: make_key(proxy, "reviewer", name, queues=queue)
        for name, queue in (("sen", "seniors"), ("lea", "leads"), ("lee", "leads"))
    }

    def seen(name: str) -> int:
        return proxy.desk.get(f"{API}/reviews/{id}", headers=bearer(keys[name])).status_code

    id = proxy.ask("p=0.1").headers["x-pinocchio-review-id"]
    planned = proxy.desk.get(f"{API}/reviews/{id}").json()["escalation"]
    assert planned["to"] == "leads"
    assert 3_500 < planned["at"] - time.time() <= 3_600
    page = proxy.desk.get(f"/console/reviews/{id}").text
    assert re.search("<dt>Goes on</dt><dd>to leads, <time [^>]*>1 h left<", page)
    assert (seen("sen"), seen("lea")) == (200, 404)
    make_due(proxy)
    assert (seen("sen"), seen("lea")) == (404, 200)
    review = proxy.desk.get(f"{API}/reviews/{id}").json()
    assert (review["queue"], review["escalation"]) == ("leads", {"at": None, "to": "leads"})
    assert [each["event"] for each in review["history"]] == ["held", "escalated"]
    assert "Goes on" not in proxy.desk.get(f"/console/reviews/{id}").text

    def counted() -> float:
        return value(scraped(proxy.desk), "pinocchio_held_escalated", queue="leads", kind="hold")

    until(lambda: counted() == 1)
    for name in ("lea", "lee"):
        answer = decide(proxy, id, keys[name], verdict="approve")
    assert answer.json()["state"] == "released"
    completion = proxy.http.get(f"/v1/chat/completions/{id}").json()
    assert completion["choices"][0]["message"]["content"] == "p=0.1"


def test_calls_of_frameworks_go_too(proxy: LiveProxy) -> None:
    """`POST /pinocchio/v1/calls` accepts the seconds until the move, and refuses invalid ones."""
    for escalate, param in (
        ({"after_s": 60}, "escalate.to"),
        ({"to": "leads"}, "escalate.after_s"),
        ({"after_s": 0, "to": "leads"}, "escalate.after_s"),
        ({"after_s": 60, "to": "leads", "x": 1}, "escalate.x"),
        ({"after_s": 60, "to": "first"}, "escalate.to"),
        ({"after_s": 100, "to": "leads"}, "escalate.after_s"),
        ("leads", "escalate"),
    ):
        body = {**CALL, "queue": "first", "expires_s": 100, "escalate": escalate}
        refused = proxy.http.post("/pinocchio/v1/calls", json=body)
        assert (refused.status_code, error_of(refused)["param"]) == (400, param)
    body = {**CALL, "queue": "first", "escalate": {"after_s": 60, "to": "leads"}}
    answer = proxy.http.post("/pinocchio/v1/calls", json=body).json()
    make_due(proxy)
    review = proxy.desk.get(f"{API}/reviews/{answer['review_id']}").json()
    assert (review["queue"], review["state"]) == ("leads", "open")
    assert decide(proxy, answer["review_id"], verdict="approve").json()["state"] == "released"


@pytest.mark.parametrize(
    ("escalate", "sentence"),
    [
        ("{after: 10m}", "needs both"),
        ("{to: leads}", "needs both"),
        ("{after: 10m, to: seniors}", "leads to its own queue 'seniors'"),
        ("{after: 1h, to: leads}", "comes after 3600s, and the hold expires after 3600s"),
        ("{after: soon, to: leads}", "must be a duration"),
        ("{after: 10m, to: leads, too: x}", "unknown key 'too' in default.hold.escalate"),
    ],
)
def test_what_cannot_be_is_refused(escalate: str, sentence: str) -> None:
    text = f"default: {{hold: {{queue: seniors, expires: 1h, escalate: {escalate}}}}}"
    with pytest.raises(InvalidDocumentError, match=sentence):
        parse_policy(f"version: 1\nname: a\n{text}\n", "a.yaml")


def test_what_was_bound_before_stays_bound(tmp_path: Path) -> None:
    """A hold without an escalation has the same digest as before there was
    any; with one it is another rule, for which nothing is approved yet.
    """

    def digest(more: str) -> str:
        rule = f"{{name: r, when: {{n: 1}}, then: {{hold: {{queue: q{more}}}}}}}"
        text = f"{{version: 1, name: a, default: deliver, rules: [{rule}]}}"
        book = PolicyBook(parse_policy(text, "a.yaml"))
        approvals = Approvals([*book], Store(f"sqlite:///{tmp_path}/held.db"))
        return approvals._digests["a", "r"]

    assert "escalate" not in repr(Hold(escalate_s=1.0, escalate_to="leads"))
    assert digest("") == OF_SCHEMA_10
    kinds = ["", ", escalate: {after: 1m, to: b}", ", escalate: {after: 2m, to: b}"]
    assert len({*map(digest, [*kinds, ", escalate: {after: 1m, to: c}"])}) == 4
