"""Replies that two people have to approve: never one person twice, never unseen, never early."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from policies import Decision, Facts, Hold, parse_policy, strictest, with_requested
from policies import decide as decide_by
from proxy.desk.decisions.desk import Desk, Verdict
from proxy.errors import DecidedError, NotAllowedError
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.approvals import approved_by, person_of, revision_of
from proxy.store.reviews.events import review_events
from proxy.store.reviews.held_replies import HELD, REJECTED, RELEASED, HeldReply, Store
from tests.conftest import StartProxy
from tests.proxy.desk.test_webhooks import config, running, soon
from tests.proxy.store.test_store import REPLY
from tests.running.desk_client import (
    API,
    DESK,
    code_of,
    decide,
    held_id,
    logged_in,
    make_key,
    scraped,
    value,
)
from tests.running.live_proxy import LiveProxy
from tests.servers.webhook_receiver import WebhookReceiver

TWO = "{version: 1, name: desk, default: {hold: {queue: refunds, approvals: 2}}}"
BODY = b'{"choices": [{"index": 0, "message": {"content": "old"}, "finish_reason": "stop"}]}'
HELD_REPLY = replace(REPLY, reply=BODY, path="/chat/completions", request_id="req_1", approvals=2)


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=TWO, **DESK)


@pytest.fixture(scope="module")
def keys(proxy: LiveProxy) -> dict[str, str]:
    """Make two keys of alice's, one of bob's, and one without a name."""
    named = {name: make_key(proxy, "reviewer", name) for name in ("alice", "Alice", "bob")}
    return named | {"": make_key(proxy, "reviewer", "")}


@contextmanager
def queues(url: str, count: int) -> Iterator[list[ReviewQueue]]:
    """Yield several connections to one store, as several proxies have."""
    found = [ReviewQueue(url) for _ in range(count)]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def desk(store_url: str) -> Iterator[Desk]:
    """Yield a desk with one reply that two people have to approve."""
    put(store_url, HELD_REPLY)
    with queues(store_url, 1) as [queue]:
        yield Desk(queue)


def put(url: str, *replies: HeldReply) -> None:
    async def hold() -> None:
        store = Store(url)
        await store.open()
        for reply in replies:
            await store.hold(reply)
        await store.aclose()

    asyncio.run(hold())


def events_of(queue: ReviewQueue, id: str) -> list[str]:
    query = sa.select(review_events.c.event).where(review_events.c.review_id == id)
    with queue.engine.connect() as connection:
        return list(connection.execute(query.order_by(review_events.c.id)).scalars())


# Races


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_no_person_counts_twice_and_nothing_goes_out_early(store_url: str, rounds: int) -> None:
    """Over four connections at once, in the slow test 200 times, alice's three tokens
    alone never release the reply; with bob's approval it is released once, by the two.
    """
    unheard = replace(HELD_REPLY, request_id=None)
    replies = [replace(unheard, id=f"chatcmpl-held-{n}") for n in range(rounds)]
    put(store_url, *replies)
    barrier = threading.Barrier(4)

    def race(queue: ReviewQueue, held: HeldReply, name: str) -> str | None:
        barrier.wait(30)
        after = queue.decide(held, RELEASED, name)
        return None if after is None else after.state

    with queues(store_url, 4) as each, ThreadPoolExecutor(4) as pool:
        for number, held in enumerate(replies):
            last = "bob" if number % 2 else "alice"
            names = ("alice", "Alice", " ALICE ", last)
            results = list(pool.map(race, each, [held] * 4, names))
            after = each[0].get(held.id)
            assert after is not None
            people = {one["by"].strip().casefold() for one in approved_by(after.approved)}
            assert len(approved_by(after.approved)) == len(people)
            if number % 2:
                assert (after.state, people) == (RELEASED, {"alice", "bob"})
                assert results.count(RELEASED) == 1
                assert events_of(each[0], held.id) == ["held", "approved", "released"]
            else:
                assert (after.state, people, results) == (HELD, {"alice"}, [HELD] * 4)
                assert events_of(each[0], held.id) == ["held", "approved"]


@pytest.mark.parametrize(
    "name",
    [
        *("BOB", " bob", "bob\u200b", "b\u00adob", "bob\u3164", "bob\u115f", "bo\uffa0b"),
        *("bob\u2800", "bo\u034fb", "bob\ufe0f", "bob\u2065", "\uff42ob", "bo\u0301b", "b\u00f3b"),
    ],
)
def test_a_name_that_looks_the_same_is_the_same_person(name: str) -> None:
    """A name that looks the same is the same person, whatever invisible signs it has."""
    assert person_of(name) == person_of("bob")
    assert person_of("rob") != person_of("bob")


def test_no_edit_goes_out_that_one_person_alone_has_seen(store_url: str) -> None:
    """Whoever approves the earlier text, over three connections at once, approves no edit."""
    replies = [replace(HELD_REPLY, id=f"chatcmpl-held-{n}", request_id=None) for n in range(20)]
    put(store_url, *replies)
    barrier = threading.Barrier(3)

    def race(queue: ReviewQueue, held: HeldReply, name: str, revised: bytes | None) -> None:
        barrier.wait(30)
        queue.decide(held, RELEASED, name, revised=revised)

    with queues(store_url, 3) as each, ThreadPoolExecutor(3) as pool:
        for held in replies:
            edits = (b"edited", None, None)
            list(pool.map(race, each, [held] * 3, ("alice", "bob", "carol"), edits))
            after = each[0].get(held.id)
            assert after is not None
            people = [one["by"] for one in approved_by(after.approved)]
            if after.state == RELEASED:
                assert (after.revised, sorted(people)) == (None, ["bob", "carol"])
            else:
                assert (after.proposed, people) == (b"edited", ["alice"])


# In sequence


def test_the_record_has_both_verdicts(desk: Desk) -> None:
    """The record has who approved and when, with label and note; each has a label of their own."""
    first = desk.decide(REPLY.id, Verdict("approve", True, note="checked"), "alice")
    assert (first["state"], first["decided_by"]) == ("open", None)
    assert [each["by"] for each in first["approvals"]["given"]] == ["alice"]
    again = desk.decide(REPLY.id, Verdict("approve", True, note="checked"), "ALICE")
    assert again["approvals"] == first["approvals"]
    done = desk.decide(REPLY.id, Verdict("approve", False), "bob")
    assert (done["state"], done["decided_by"]) == ("released", "bob")
    approvals = [(each["by"], each["correct"], each["note"]) for each in done["approvals"]["given"]]
    assert approvals == [("alice", True, "checked"), ("bob", False, None)]
    assert [(each["reviewer"], each["correct"]) for each in done["labels"]] == [
        ("alice", True),
        ("bob", False),
    ]
    assert [each["event"] for each in done["history"]] == ["held", "approved", "released"]
    assert desk.decide(REPLY.id, Verdict("approve", True, note="checked"), "alice") == done
    with pytest.raises(DecidedError):
        desk.decide(REPLY.id, Verdict("reject"), "alice")


@pytest.mark.parametrize("reviewer", ["alice", "bob"])
def test_one_rejection_ends_it(desk: Desk, reviewer: str) -> None:
    """One rejection is final, also by somebody who approved before."""
    desk.decide(REPLY.id, Verdict("approve"), "alice")
    assert desk.decide(REPLY.id, Verdict("reject"), reviewer)["state"] == REJECTED
    with pytest.raises(DecidedError):
        desk.decide(REPLY.id, Verdict("approve"), "carol")


def test_an_edit_needs_the_others_approval_again(desk: Desk) -> None:
    """An edit needs somebody else's approval, as nobody but its editor has read it."""
    desk.decide(REPLY.id, Verdict("approve"), "alice")
    edited = desk.decide(REPLY.id, Verdict("edit", content="new"), "bob")
    assert edited["state"] == "open"
    assert [each["by"] for each in edited["approvals"]["given"]] == ["bob"]
    assert edited["editable"]["texts"] == ["new"]
    for name in ("alice", "carol"):
        with pytest.raises(DecidedError, match="bob has edited") as caught:
            desk.decide(REPLY.id, Verdict("approve"), name)
        assert caught.value.machine_code == "review_edited"
    with pytest.raises(DecidedError):
        desk.decide(REPLY.id, Verdict("edit", content="newer"), "carol")
    revision = edited["revision"]
    done = desk.decide(REPLY.id, Verdict("approve", revision=revision), "alice")
    assert (done["state"], done["revised"]["choices"][0]["message"]["content"]) == (
        "released",
        "new",
    )


def test_an_edit_that_expires_unapproved_goes_nowhere(store_url: str) -> None:
    """With `on_expiry: deliver` an unapproved edit expires, and upstream's reply is delivered."""
    late = replace(HELD_REPLY, on_expiry="deliver", expires_at=1.0, proposed=b"edited by one")
    assert (late.current_state, late.released_bytes) == (RELEASED, BODY)
    assert revision_of(None) is None


def test_who_has_no_name_is_nobody_of_two(desk: Desk) -> None:
    """A key without a name may reject but not approve, as it could be the same person's."""
    with pytest.raises(NotAllowedError):
        desk.decide(REPLY.id, Verdict("approve"), "key_1", is_named=False)
    assert desk.decide(REPLY.id, Verdict("reject"), "key_1", is_named=False)["state"] == REJECTED


# Over HTTP, with a client that waits


def test_api_and_console_show_who_approved(proxy: LiveProxy, keys: dict[str, str]) -> None:
    """API and console say `1 of 2 approved` and by whom; a second token adds no approval."""
    id = held_id(proxy)
    before = value(scraped(proxy.desk), "pinocchio_first_approvals_total", queue="refunds")
    for name in ("alice", "Alice"):
        review = decide(proxy, id, keys[name], verdict="approve").json()
        assert review["state"] == "open"
        assert [each["by"] for each in review["approvals"]["given"]] == ["alice"]
    assert fetched(proxy, id)["choices"][0]["finish_reason"] == "content_filter"
    now = value(scraped(proxy.desk), "pinocchio_first_approvals_total", queue="refunds")
    assert now == before + 1
    assert code_of(decide(proxy, id, keys[""], verdict="approve")) == (403, "reviewer_unnamed")
    with logged_in(proxy, keys["bob"]) as browser:
        page = browser.get(f"/console/reviews/{id}").text
        assert "1 of 2 approved</strong>: by <bdi>alice</bdi>" in page
        assert "1 of 2 approved" in browser.get("/console/reviews").text
    assert decide(proxy, id, keys["bob"], verdict="approve").json()["state"] == "released"
    assert fetched(proxy, id)["choices"][0]["finish_reason"] == "stop"


def test_the_console_sends_the_revision_that_it_shows(
    proxy: LiveProxy, keys: dict[str, str]
) -> None:
    """A page from before an edit approves nothing; the page that shows the edit does."""
    id = held_id(proxy)
    decide(proxy, id, keys["bob"], verdict="edit", content="as bob has it")
    with logged_in(proxy, keys["alice"]) as browser:
        csrf = browser.get(f"{API}/me").json()["csrf"]
        form = {"csrf": csrf, "opened": "1", "verdict": "approve", "confirmed": "yes"}
        there = f"/console/reviews/{id}"
        stale = browser.post(f"{there}/verdict", data=form)
        assert stale.status_code == 409
        assert "bob has edited" in stale.text
        page = browser.get(there).text
        assert "as bob has it" in page
        revision = proxy.desk.get(f"{API}/reviews/{id}").json()["revision"]
        assert f'name="revision" value="{revision}"' in page
        done = browser.post(f"{there}/verdict", data=form | {"revision": revision})
        assert done.status_code == 303
    assert fetched(proxy, id)["choices"][0]["message"]["content"] == "as bob has it"


def fetched(proxy: LiveProxy, id: str) -> Any:
    return proxy.http.get(f"/v1/chat/completions/{id}").json()


# Policies


def test_a_missing_score_spares_no_approval() -> None:
    """Where `on_score_error` is not set, its hold needs as many approvals as the rules ask for."""
    policy = parse_policy(
        "{version: 1, name: p, rules: [{name: low, when: {confidence: {below: 0.5}}, "
        "then: {hold: {approvals: 2}}}], default: deliver}",
        "p.yaml",
    )
    assert policy.on_score_error == Hold(approvals=2)


def test_of_two_holds_the_one_with_more_approvals_counts() -> None:
    """Of two holds, by two calls or by a requested policy, the one with more approvals counts."""

    def holding(approvals: int, on_expiry: str = "reject") -> Decision:
        text = f"{{hold: {{approvals: {approvals}, on_expiry: {on_expiry}}}}}"
        policy = parse_policy(f"{{version: 1, name: p{approvals}, default: {text}}}", "p.yaml")
        return decide_by(policy, Facts(confidence=0.5, model="gpt"))

    one, two = holding(1), holding(2)
    assert strictest((one, two)) is strictest((two, one)) is two
    assert with_requested(two, one) is two
    action = with_requested(one, holding(2, "deliver")).action
    assert isinstance(action, Hold)
    assert (action.approvals, action.on_expiry) == (2, "reject")


def test_what_was_bound_before_stays_bound() -> None:
    """A hold's text has no `approvals`, so the digests of earlier rules stay the same."""
    assert repr(Hold()) == repr(Hold(approvals=2))
    assert "approvals" not in repr(Hold())


async def test_the_first_approval_sends_a_webhook(store_url: str) -> None:
    """The first approval is a webhook event of its own, for receivers that want it."""
    await asyncio.to_thread(put, store_url, replace(HELD_REPLY, created_at=time.time()))
    with queues(store_url, 1) as [queue], WebhookReceiver() as receiver:
        await asyncio.to_thread(queue.decide, HELD_REPLY, RELEASED, "alice")
        async with running(config(store_url, receiver.url, events=["approved", "released"])):
            await soon(lambda: receiver.received)
            await asyncio.to_thread(queue.decide, HELD_REPLY, RELEASED, "bob")
            await soon(lambda: len(receiver.received) == 2)
        events = [
            (each.json["type"], each.json["data"]["decided_by"]) for each in receiver.received
        ]
    assert events == [("review.approved", "alice"), ("review.released", "bob")]
