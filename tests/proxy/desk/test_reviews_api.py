"""The API of the review desk: the queue in its order, one decision for each reply, labels."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proxy.desk.decisions.desk import Desk, Verdict
from proxy.desk.feed import MISSED, MOST_WAITING, MOST_WATCHERS, Feed
from proxy.errors import DecidedError, NotFoundError, RateLimitedError
from proxy.http.wire.caller import Caller
from proxy.store.database.chain import KEY_VARIABLE
from proxy.store.database.tables import all_tables
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.held_replies import AUDIT, EXPIRED, HELD, RELEASED, HeldReply, Store
from tests.conftest import StartProxy
from tests.proxy.store.test_store import REPLY
from tests.running import reviewing
from tests.running.desk_client import API, DESK, HOLD, TOKEN, code_of, decide, held_id, make_key
from tests.running.live_proxy import ROOT, LiveProxy, environment, question, until

WAIT = "{version: 1, name: desk, default: {hold: {reply: wait, wait: 20s}}}"


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


@pytest.fixture(scope="module")
def alice(proxy: LiveProxy) -> str:
    return make_key(proxy, "reviewer", "alice")


@pytest.fixture
def queue(store_url: str) -> Iterator[ReviewQueue]:
    """Yield a queue without a proxy, on both databases."""
    queue = ReviewQueue(store_url)
    yield queue
    queue.close()


def hold(queue: ReviewQueue, *replies: HeldReply) -> None:
    """Put replies into the queue, as a proxy does."""

    async def put() -> None:
        store = Store(queue.url)
        await store.open()
        for reply in replies:
            await store.hold(reply, Caller())
        await store.aclose()

    asyncio.run(put())


def listed(proxy: LiveProxy, **query: Any) -> Any:
    answer = proxy.desk.get(f"{API}/reviews", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


# The queue


def test_the_surest_errors_come_first_page_by_page(queue: ReviewQueue) -> None:
    """Replies without a score come first, then by confidence and age; pages do not overlap."""
    confidences = [None, 0.4, 0.1, None, 0.1, 0.9, 0.4, None]
    replies = [
        replace(REPLY, id=f"r{n}", confidence=c, created_at=1_000.0 + n // 2)
        for n, c in enumerate(confidences)
    ]
    hold(queue, *replies)
    desk, order = Desk(queue), ["r0", "r3", "r7", "r2", "r4", "r1", "r6", "r5"]
    for limit in (1, 2, 3, 8, 100):
        found: list[str] = []
        page = desk.page(limit=limit)
        found += [each.id for each in page.items]
        while page.next is not None:
            page = desk.page(limit=limit, after=page.next)
            found += [each.id for each in page.items]
        assert found == order, limit


def test_the_queue_is_narrowed(queue: ReviewQueue) -> None:
    """The queue can be filtered by state, queue, team and kind, alone and together."""
    hold(
        queue,
        replace(REPLY, id="a", queue="x", team="t"),
        replace(REPLY, id="b", queue="x", kind=AUDIT, share=0.1),
        replace(REPLY, id="c", queue="y", team="t"),
        replace(REPLY, id="d", expires_at=2.0),
    )
    desk = Desk(queue)

    def ids(*state: Any, **by: str) -> list[str]:
        return [each.id for each in desk.page(*state, **by).items]  # type: ignore[arg-type]

    assert ids() == ["a", "b", "c"]
    assert ids(queue="x") == ["a", "b"]
    assert ids(queue="x", team="t", kind="hold") == ["a"]
    assert ids(kind="audit") == ["b"]
    assert ids(queue="z") == []
    assert ids("expired") == ["d"]


def test_no_page_sorts_the_queue(tmp_path: Path) -> None:
    """Whatever the filter, SQLite reads a page along the index of the queue's
    order. Anything else would take half a second with 100,000 replies.
    """
    queue = ReviewQueue(f"sqlite:///{tmp_path}/held.db")
    statements: list[tuple[str, Any]] = []
    note = lambda *args: statements.append((args[2], args[3]))  # noqa: E731 - a listener
    sa.event.listen(queue.engine, "before_cursor_execute", note)
    for after in (None, (None, 1.0, "a"), (0.5, 1.0, "a")):
        for narrowed in ({}, {"queue": "x"}, {"team": "t", "kind": "hold"}):
            queue.page(HELD, 50, after, **narrowed)
            queue.page(RELEASED, 50, after, **narrowed)
    pages = [(text, values) for text, values in statements if "ORDER BY" in text]
    assert len(pages) >= 18
    with queue.engine.connect() as connection:
        for text, values in pages:
            plan = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all())
            assert "USING INDEX review_order" in plan, text
            assert "TEMP B-TREE" not in plan, text
    queue.close()


def test_the_list_is_paged_without_replies(proxy: LiveProxy) -> None:
    """A line has no reply in it; `next` leads to the next page and is null at the end."""
    id = held_id(proxy, "list me p=0.0")
    first = listed(proxy, limit=1)
    [item] = first["items"]
    assert (item["id"], item["state"], item["kind"]) == (id, "open", "hold")
    assert (item["confidence"], item["queue"], item["question"]) == (0, "seniors", "list me p=0.0")
    assert not {"reply", "request", "key_hash"} & set(item)
    held_id(proxy)
    assert listed(proxy, limit=1)["next"] is not None
    assert listed(proxy, limit=500)["next"] is None


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({"state": "lost"}, "query.state"),
        ({"limit": "0"}, "query.limit"),
        ({"limit": "501"}, "query.limit"),
        ({"kind": "x"}, "query.kind"),
    ],
)
def test_a_list_that_nobody_can_give(proxy: LiveProxy, query: Any, where: str) -> None:
    answer = proxy.desk.get(f"{API}/reviews", params=query)
    assert code_of(answer) == (422, "invalid_request")
    assert answer.json()["error"]["param"] == where


HUGE = [
    base64.urlsafe_b64encode(each).decode().rstrip("=")
    for each in (b"[1%b,1,1]" % (b"0" * 400), b"[" * 3_000 + b"]" * 3_000, b'[1,1,"\\ud800"]')
]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/reviews?cursor=x", "known here: state"),
        ("/reviews?limt=3", "did you mean 'limit'?"),
        ("/quality/second-opinions?day=3", "did you mean 'days'?"),
        ("/events?since=3", "known here: heard"),
        ("/stats?x=1", "there is no query parameter 'x'"),
    ],
)
def test_a_parameter_that_a_path_does_not_have(proxy: LiveProxy, path: str, hint: str) -> None:
    """An unknown parameter is refused; a misspelt cursor would read the first page for ever."""
    refused = proxy.desk.get(f"{API}{path}")
    assert code_of(refused) == (400, "unknown_parameter")
    assert hint in refused.text


def test_parameters_cannot_repeat(proxy: LiveProxy) -> None:
    """A repeated parameter is refused on both listeners, as one value would be ignored."""
    refused = proxy.desk.get(f"{API}/reviews?limit=5&limit=7")
    assert code_of(refused) == (400, "repeated_parameter")
    assert "'limit' is given 2 times" in refused.text
    refused = proxy.http.get(f"{API}/calls/none?wait_s=1&wait_s=2")
    assert code_of(refused) == (400, "repeated_parameter")


def test_clients_paths_have_the_parameters_that_they_have(proxy: LiveProxy) -> None:
    """The callers' listener checks its paths' parameters as well."""
    for path in ("results/none?wait=1", "calls/none?wait=1"):
        assert code_of(proxy.http.get(f"{API}/{path}")) == (400, "unknown_parameter")


@pytest.mark.parametrize("after", ["x", "e30", "W10", "WzEsMiwzLDRd", "%00", "ä", *HUGE])
def test_a_cursor_that_is_none(proxy: LiveProxy, after: str) -> None:
    answer = proxy.desk.get(f"{API}/reviews", params={"after": after})
    assert code_of(answer) == (400, "invalid_cursor")


@pytest.mark.parametrize("number", [2**63, 10**30])
def test_events_after_a_number_that_nobody_has(proxy: LiveProxy, number: int) -> None:
    """A client that names a later event than there is gets the next ones on an open stream."""
    query = {"heard": str(number)}
    with proxy.desk.stream("GET", f"{API}/events", params=query) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": ping"
        id = held_id(proxy, f"heard {number} p=0.1")
        assert any(id in line for line in lines)


def test_a_review_has_all_fields(proxy: LiveProxy) -> None:
    """A review has request, reply, editable parts, rules with their reasons, and its history."""
    id = held_id(proxy, "tell me p=0.2")
    until(lambda: proxy.desk.get(f"{API}/reviews/{id}").json()["why"])
    review = proxy.desk.get(f"{API}/reviews/{id}").json()
    assert review["request"]["messages"] == [{"role": "user", "content": "tell me p=0.2"}]
    assert review["reply"]["choices"][0]["message"]["content"] == "tell me p=0.2"
    part = {"kind": "text", "text": "tell me p=0.2", "name": ""}
    assert review["conversation"] == [{"role": "user", "parts": [part]}]
    assert review["answer"] == [{"role": "assistant", "parts": [part]}]
    assert review["editable"] == {"texts": ["tell me p=0.2"], "tool_calls": []}
    assert [rule["rule"] for rule in review["why"]] == ["default"]
    assert [each["event"] for each in review["history"]] == ["held"]
    assert (review["state"], review["labels"], review["revised"]) == ("open", [], None)


@pytest.mark.parametrize("id", ["chatcmpl-held-" + "0" * 32, "x", "%2e%2e", "' OR 1=1 --"])
def test_an_id_that_was_guessed(proxy: LiveProxy, id: str) -> None:
    assert code_of(proxy.desk.get(f"{API}/reviews/{id}")) == (404, "review_not_found")
    assert code_of(decide(proxy, id, verdict="approve")) == (404, "review_not_found")


# Decisions


def test_an_approved_reply_is_fetched_and_labelled(proxy: LiveProxy, alice: str) -> None:
    """The answer is the review with its reviewer; the client gets upstream's text."""
    id = held_id(proxy, "good p=0.1")
    done = decide(proxy, id, alice, verdict="approve", correct=True, note="checked")
    assert done.status_code == 200
    review = done.json()
    assert (review["state"], review["decided_by"], review["note"]) == (RELEASED, "alice", "checked")
    [label] = review["labels"]
    assert (label["reviewer"], label["correct"], label["note"]) == ("alice", True, "checked")
    fetched = proxy.openai.chat.completions.retrieve(id)
    assert fetched.choices[0].message.content == "good p=0.1"


def test_the_same_verdict_again_is_the_same_answer(proxy: LiveProxy, alice: str) -> None:
    """The same verdict again gets the same answer, for a client that lost
    it; another verdict, or another reviewer, gets a 409 with the review.
    """
    id = held_id(proxy)
    verdict = {"verdict": "edit", "content": "better", "correct": False}
    first = decide(proxy, id, alice, **verdict)
    again = decide(proxy, id, alice, **verdict)
    assert (again.status_code, again.json()) == (200, first.json())
    for secret, other in (
        (TOKEN, verdict),
        (alice, verdict | {"content": "best"}),
        (alice, verdict | {"correct": True}),
        (alice, verdict | {"note": "x"}),
        (alice, {"verdict": "approve"}),
        (alice, {"verdict": "reject", "correct": False}),
    ):
        refused = decide(proxy, id, secret, **other)
        assert code_of(refused) == (409, "review_decided")
        assert refused.json()["review"] == first.json()


def test_no_label_is_stored_if_none_is_given(proxy: LiveProxy) -> None:
    assert decide(proxy, held_id(proxy), verdict="reject").json()["labels"] == []


def test_several_reviewers_label_the_same_reply(proxy: LiveProxy, alice: str) -> None:
    """Each reviewer has one label of a reply, which their next one replaces at any time."""
    id = held_id(proxy)
    decide(proxy, id, alice, verdict="approve", correct=True)
    url = f"{API}/reviews/{id}/label"
    proxy.desk.post(url, json={"correct": False})
    labels = proxy.desk.post(url, json={"correct": False, "note": "wrong year"}).json()["labels"]
    assert [(each["reviewer"], each["correct"]) for each in labels] == [
        ("alice", True),
        ("admin", False),
    ]
    assert labels[1]["note"] == "wrong year"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_waiting_client_gets_the_edited_reply_at_once(
    start_proxy: StartProxy, is_stream: bool
) -> None:
    """A client that waits gets the edited reply at once, without a query to the store."""
    proxy = start_proxy(policy=WAIT, **DESK)
    text = f"wait {is_stream} p=0.1"
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(proxy.ask, text, stream=is_stream)

        def waiting() -> list[str]:
            return [each["id"] for each in listed(proxy)["items"] if each["question"] == text]

        until(waiting)
        [id] = waiting()
        assert decide(proxy, id, verdict="edit", content="a better one").status_code == 200
        answer = asking.result(10)
    assert "a better one" in answer.text
    assert text not in answer.text
    assert answer.headers["x-pinocchio-action"] == "deliver"


def test_an_edited_call_goes_out_once(proxy: LiveProxy) -> None:
    """An agent that asks again gets the call as the
    reviewer wrote it, and no second call goes upstream.
    """
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    asked = question("edit this call p=0.1", "tools", tools=[tool])
    first = proxy.http.post("/v1/chat/completions", json=asked)
    assert code_of(first) == (422, "held_for_review")
    id = first.headers["x-pinocchio-review-id"]
    broken = decide(proxy, id, verdict="edit", content={"arguments": {"city": 5}})
    assert code_of(broken) == (422, "unusable_edit")
    assert broken.json()["error"]["param"] == "content[0].arguments"
    done = decide(proxy, id, verdict="edit", content={"arguments": {"city": "Oslo"}})
    assert done.status_code == 200
    again = proxy.http.post("/v1/chat/completions", json=asked)
    [call] = again.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert again.headers["x-pinocchio-review-id"] == id
    assert proxy.desk.get(f"{API}/reviews/{id}").json()["taken_at"] is not None


def test_an_audit_is_closed_by_any_verdict(queue: ReviewQueue) -> None:
    """An approved audit is released and a rejected one rejected, and both have their label."""
    for n, verdict in enumerate(("approve", "reject")):
        audit = replace(
            REPLY, id=f"audit_{n}", kind=AUDIT, share=0.1, request_id=f"req_{n}", path=None
        )
        hold(queue, audit)
        review = Desk(queue).decide(
            audit.id,
            Verdict(verdict, correct=n == 0),
            "alice",  # type: ignore[arg-type]
        )
        assert review["state"] == ("released", "rejected")[n]
        assert [each["correct"] for each in review["labels"]] == [n == 0]


def test_what_has_expired_is_not_decided(queue: ReviewQueue) -> None:
    """A verdict after the expiry gets a 409 of its own, and changes nothing."""
    hold(queue, replace(REPLY, expires_at=2.0, on_expiry="deliver"))
    with pytest.raises(DecidedError) as caught:
        Desk(queue).decide(REPLY.id, Verdict("reject", correct=False), "alice")
    assert caught.value.machine_code == "review_expired"
    review = caught.value.review
    assert (review["state"], review["on_expiry"]) == (EXPIRED, "deliver")
    assert "standing" not in review, "a state has one name"
    assert [each["event"] for each in caught.value.review["history"]] == ["held", "expired"]


def test_a_rehearsal_leaves_nothing_behind(queue: ReviewQueue, monkeypatch: Any) -> None:
    """A rehearsal leaves no reply, event, label or entry in
    the chain, and raises nothing while the database is away.
    """
    monkeypatch.setenv(KEY_VARIABLE, "a key")
    hold(queue, REPLY)

    def counts() -> dict[str, int]:
        with queue.engine.connect() as connection:
            count = sa.select(sa.func.count())
            return {
                name: connection.execute(count.select_from(table)).scalar_one()
                for name, table in all_tables().tables.items()
            }

    before = counts()
    queue.rehearse()
    assert counts() == before
    assert before["held_replies"] == before["review_events"] == 1
    ReviewQueue("postgresql://nobody:x@127.0.0.1:1/none").rehearse()


BESIDE = """
import sys, threading
from proxy.desk.decisions.desk import Desk, Verdict
from proxy.errors import DecidedError
from proxy.store.queue import ReviewQueue

url, id = sys.argv[1:]
desk, barrier, won = Desk(ReviewQueue(url)), threading.Barrier(25), []

def decide(number):
    barrier.wait()
    try:
        desk.decide(id, Verdict("approve"), f"r{number}")
        won.append(number)
    except DecidedError:
        pass

threads = [threading.Thread(target=decide, args=(number,)) for number in range(25)]
desk.find_reply(id)
print("ready", flush=True)
sys.stdin.readline()
for each in threads: each.start()
for each in threads: each.join()
print(len(won), flush=True)
"""


def test_fifty_at_once_in_two_processes_have_one_winner(start_proxy: StartProxy) -> None:
    """Of fifty verdicts at once, half over the API and half
    by another process, one is kept, and nobody else gets 200.
    """
    proxy = start_proxy(policy=HOLD, **DESK)
    id = held_id(proxy, "contended p=0.1")

    def over_http(number: int) -> bool:
        verdict = "approve" if number % 2 else "reject"
        return decide(proxy, id, verdict=verdict, note=str(number)).status_code == 200

    command = [sys.executable, "-c", BESIDE, proxy.config.store, id]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with ThreadPoolExecutor(25) as pool:
            won = [pool.submit(over_http, number) for number in range(25)]
            beside, _ = other.communicate("go\n", timeout=30)
            assert sum(each.result() for each in won) + int(beside) == 1
    history = proxy.desk.get(f"{API}/reviews/{id}").json()["history"]
    assert (history[0]["event"], len(history)) == ("held", 2)


# Events


@contextmanager
def watching(proxy: LiveProxy, **ask: Any) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the events of the desk's stream, each as its name and its data."""

    def read(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    with proxy.desk.stream("GET", f"{API}/events", **ask) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield read(response.iter_lines())


def test_who_watches_hears_of_every_turn(proxy: LiveProxy) -> None:
    """The stream has events of this process and of others, and the amount of traffic."""
    with watching(proxy) as events:
        id = held_id(proxy, "watched p=0.1")
        other = Desk(ReviewQueue(proxy.config.store))
        seen: list[Any] = []
        traffic: list[Any] = []
        for name, data in events:
            (seen if name == "review" else traffic).append(data)
            if [each["event"] for each in seen if each["review_id"] == id] == ["held"]:
                other.decide(id, Verdict("reject"), "bob")
            if any(each["by"] == "bob" for each in seen) and any(t["count"] for t in traffic):
                break
        other.queue.close()
    mine = [each for each in seen if each["review_id"] == id]
    assert [(each["event"], each["by"]) for each in mine] == [("held", None), ("rejected", "bob")]
    assert set(traffic[-1]["actions"]) <= {"hold", "none", "deliver"}
    assert 0 <= traffic[-1]["confidence"] <= 1


def test_who_comes_late_hears_what_they_missed(proxy: LiveProxy) -> None:
    """A reader that names its last event gets all later ones, by query or by header."""
    last = Desk(ReviewQueue(proxy.config.store)).queue.last_event()
    ids = [held_id(proxy, f"missed {n} p=0.1") for n in range(2)]
    for ask in ({"params": {"heard": last}}, {"headers": {"Last-Event-ID": str(last)}}):
        with watching(proxy, **ask) as events:
            ids_seen = [next(events)[1] for _ in ids]
        assert [each["review_id"] for each in ids_seen] == ids
        assert [each["number"] for each in ids_seen] == [last + 1, last + 2]
    assert proxy.desk.get(f"{API}/events", params={"heard": "x"}).status_code == 422


async def test_every_decision_is_published(queue: ReviewQueue) -> None:
    """Watchers and webhooks get every decision and expiry that the store makes."""
    store = Store(queue.url)
    await store.open()
    for id, expires_at in (("a", 4e9), ("b", 2.0), ("c", 2.0)):
        await store.hold(replace(REPLY, id=id, expires_at=expires_at))
    assert reviewing.decide(store.url, "a", RELEASED)
    assert not reviewing.decide(store.url, "b", RELEASED)
    reviewing.expire(store.url)
    await store.aclose()
    events = await asyncio.to_thread(queue.events_after, 0)
    pairs = {(each.review_id, each.event) for each in events if each.event != "held"}
    assert pairs == {("a", RELEASED), ("b", EXPIRED), ("c", EXPIRED)}


async def test_slow_readers_are_notified(
    queue: ReviewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is too slow loses messages, and is told that there were some."""
    assert MOST_WAITING >= 50, "or short breaks would miss some"
    monkeypatch.setattr("proxy.desk.feed.MOST_WAITING", 20)
    feed = Feed(queue, every_s=0.02)
    slow = await feed.watch()
    assert (await anext(slow)).startswith(b":")
    replies = [replace(REPLY, id=f"r{n}") for n in range(30)]
    for some in (replies[:12], replies[12:]):
        await asyncio.to_thread(hold, queue, *some)
        last = await asyncio.to_thread(queue.last_event)
        async with asyncio.timeout(30):
            while feed._last < last:  # noqa: ASYNC110 - what the feed has handed on
                await asyncio.sleep(0.01)
    assert await anext(slow) == MISSED
    assert b"event: review" in await anext(slow)
    await slow.aclose()  # type: ignore[attr-defined]
    await feed.aclose()


async def test_watchers_are_few(queue: ReviewQueue) -> None:
    """Watchers beyond the limit are refused until one leaves; stopping ends all of them."""
    feed = Feed(queue)
    streams = [await feed.watch() for _ in range(MOST_WATCHERS)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(RateLimitedError):
        await feed.watch()
    await streams.pop().aclose()  # type: ignore[attr-defined]
    assert await feed.watch()
    await feed.aclose()
    for stream in streams:
        assert [message async for message in stream] == []


# Bad input


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "verdict"),
        ({"verdict": "release"}, "verdict"),
        ({"verdict": "approve", "correct": 1}, "correct"),
        ({"verdict": "approve", "correct": "yes"}, "correct"),
        ({"verdict": "approve", "note": ["x"]}, "note"),
        ({"verdict": "approve", "note": "x" * 10_001}, "note"),
        ({"verdict": "approve", "by": "bob"}, "by"),
        ([], None),
    ],
)
def test_a_verdict_that_is_none(proxy: LiveProxy, body: Any, where: str | None) -> None:
    """An invalid verdict is refused with the place of the mistake, and the reply stays open."""
    id = held_id(proxy)
    answer = proxy.desk.post(f"{API}/reviews/{id}/verdict", json=body)
    assert code_of(answer) == (422, "invalid_request")
    assert answer.json()["error"]["param"] == where
    assert proxy.desk.get(f"{API}/reviews/{id}").json()["state"] == "open"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{", "line 1, column 2"),
        (b"\xff\xfe", "line 1, column 1"),
        (b'{"verdict":\n"approve"', "line 2, column 10"),
    ],
)
def test_a_body_that_is_no_json(proxy: LiveProxy, body: bytes, place: str) -> None:
    """A body that is no JSON gets the proxy's usual error, with the place and no field."""
    url = f"{API}/reviews/{held_id(proxy)}/verdict"
    answer = proxy.desk.post(url, content=body, headers={"content-type": "application/json"})
    assert code_of(answer) == (400, "invalid_json")
    error = answer.json()["error"]
    assert error["message"].startswith("the body is not JSON: ")
    assert (error["message"].endswith(place), error["param"]) == (True, None)


@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_body_that_says_nothing(proxy: LiveProxy, body: bytes) -> None:
    url = f"{API}/reviews/{held_id(proxy)}/verdict"
    answer = proxy.desk.post(url, content=body, headers={"content-type": "application/json"})
    assert code_of(answer) == (422, "invalid_request")


@pytest.mark.parametrize("edit", [{"verdict": "edit"}, {"verdict": "approve", "content": "x"}])
def test_content_belongs_to_edits(proxy: LiveProxy, edit: Any) -> None:
    answer = decide(proxy, held_id(proxy), **edit)
    assert code_of(answer) == (400, "invalid_request")
    assert answer.json()["error"]["param"] == "content"


def test_a_huge_body_and_a_wrong_method(start_proxy: StartProxy) -> None:
    """A body beyond `limits.max_body` gets 413; a method that a path lacks gets 405."""
    proxy = start_proxy(policy=HOLD, limits={"max_body": "10KB"}, **DESK)
    url = f"{API}/reviews/{held_id(proxy)}/verdict"
    huge = {"verdict": "edit", "content": "x" * 20_000}
    assert code_of(proxy.desk.post(url, json=huge)) == (413, "body_too_large")
    assert code_of(proxy.desk.get(url)) == (405, "method_not_allowed")
    assert code_of(proxy.desk.delete(f"{API}/stats")) == (405, "method_not_allowed")


def test_the_api_is_described(proxy: LiveProxy) -> None:
    """OpenAPI describes every path with its methods."""
    paths = proxy.desk.get(f"{API}/openapi.json").json()["paths"]
    assert {(path, method) for path, methods in paths.items() for method in methods} >= {
        (f"{API}/reviews", "get"),
        (f"{API}/reviews/{{id}}", "get"),
        (f"{API}/reviews/{{id}}/verdict", "post"),
        (f"{API}/reviews/{{id}}/label", "post"),
        (f"{API}/stats", "get"),
    }


def test_characters_that_a_database_cannot_keep(queue: ReviewQueue) -> None:
    """Characters that a database cannot store are escaped in notes, and match nothing."""
    hold(queue, replace(REPLY, request_id="req_1"))
    desk = Desk(queue)
    assert desk.page(queue="\0").items == []
    with pytest.raises(NotFoundError):
        desk.review("\0")
    verdict = Verdict("approve", correct=True, note="a\0b")
    review = desk.decide(REPLY.id, verdict, "alice")
    assert (review["note"], review["labels"][0]["note"]) == ("a\\x00b", "a\\x00b")
    assert desk.decide(REPLY.id, verdict, "alice") == review


def test_what_waits_is_counted(queue: ReviewQueue) -> None:
    """Waiting replies are counted by queue and kind, decisions by day and name."""
    hold(
        queue,
        replace(REPLY, id="a", queue="x", confidence=0.2, created_at=5.0),
        replace(REPLY, id="b", queue="x", confidence=0.4, created_at=9.0),
        replace(REPLY, id="c", queue="y", kind=AUDIT),
    )
    Desk(queue).decide("c", Verdict("approve"), "alice")
    stats = Desk(queue).stats()
    assert (stats["open"], stats["oldest_at"]) == (2, 5.0)
    [waiting] = stats["queues"]
    assert waiting == {
        "queue": "x",
        "kind": "hold",
        "count": 2,
        "oldest_at": 5.0,
        "confidence": pytest.approx(0.3),
        "time_used": pytest.approx((time.time() - 9) / (REPLY.expires_at - 9), rel=1e-3),
        "escalated": 0,
    }
    [decided] = stats["decided"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert (decided["day"], decided["decided_by"], decided["count"]) == (today, "alice", 1)
