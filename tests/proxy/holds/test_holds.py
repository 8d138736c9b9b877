"""Holds with a waiting client, holds that are fetched later, and holds that expire."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import APIError, NotFoundError, OpenAI, UnprocessableEntityError

from proxy.holds.waiting import Verdicts
from proxy.store.reviews.held_replies import EXPIRED, HELD, REJECTED, RELEASED, HeldReply, Store
from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import ACTION, SCHEMA, WEATHER, decide, held_rows, policy
from tests.proxy.store.test_store import REPLY
from tests.running import messages_client, reviewing
from tests.running.live_proxy import (
    LiveProxy,
    error_of,
    events_in,
    left_behind,
    post_raw,
    question,
    text_in,
    until,
    without_member,
)
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream

REVIEW_ID = "x-pinocchio-review-id"
ASYNC = {"prefer": "respond-async"}
WAIT = policy("{hold: {reply: wait, wait: 20s}}")


@contextmanager
def verdict(proxy: LiveProxy, text: str, state: str) -> Iterator[Callable[[], str]]:
    """Decide on the reply to `text` as soon as it is held; yield a function that returns its id."""
    ids: list[str] = []

    def review() -> None:
        def waiting() -> list[str]:
            rows = held_rows(proxy)
            return [r["id"] for r in rows if (r["question"], r["state"]) == (text, HELD)]

        until(waiting)
        ids.extend(waiting())
        assert decide(proxy, ids[0], state)

    reviewer = threading.Thread(target=review)
    reviewer.start()
    yield lambda: ids[0]
    reviewer.join()


# Waiting


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_release_during_the_wait_delivers_the_reply(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """A client that waits gets upstream's bytes, action `deliver` and the review id."""
    proxy = start_proxy(policy=WAIT)
    asked = question(f"wait {is_stream} p=0.1", stream=is_stream)
    with verdict(proxy, f"wait {is_stream} p=0.1", RELEASED) as id:
        got = proxy.post_raw(asked)
    assert len(upstream.requests) == 1
    direct = post_raw(f"{upstream.base_url}/chat/completions", asked)
    assert (got.status, without_member(got.body)) == (200, direct.body)
    assert (got.headers[ACTION], got.headers[REVIEW_ID]) == ("deliver", id())


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_rejection_during_the_wait_is_an_error(start_proxy: StartProxy, is_stream: bool) -> None:
    """A client that waits for a reply that is rejected gets a 422, and nothing of the reply."""
    proxy = start_proxy(policy=WAIT)
    text = f"secret {is_stream} p=0.1"
    with (
        verdict(proxy, text, REJECTED) as id,
        pytest.raises(UnprocessableEntityError) as caught,
    ):
        proxy.openai.chat.completions.create(**question(text, stream=is_stream))
    assert caught.value.code == "held_reply_rejected"
    assert caught.value.response.headers[REVIEW_ID] == id()
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "secret" not in caught.value.response.text


@pytest.mark.parametrize(
    ("fields", "otherwise", "status"),
    [
        ({}, "", 200),
        ({"response_format": SCHEMA}, "", 422),
        ({"model": "tools", "tools": [WEATHER]}, "", 422),
        ({}, ", otherwise: error", 422),
        ({"response_format": SCHEMA}, ", otherwise: placeholder", 200),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_timeout_returns_placeholder_or_error(
    start_proxy: StartProxy, fields: Any, otherwise: str, status: int, is_stream: bool
) -> None:
    """Without a verdict in time the client gets the placeholder or the error, by kind or as set."""
    proxy = start_proxy(policy=policy(f"{{hold: {{reply: wait, wait: 1s{otherwise}}}}}"))
    started = time.monotonic()
    response = proxy.ask(f"p=0.1 {is_stream}", stream=is_stream, **fields)
    assert 1 <= time.monotonic() - started < 20
    assert (response.status_code, response.headers[ACTION]) == (status, "hold")
    if status == 422:
        assert error_of(response)["code"] == "held_for_review"
    else:
        assert response.headers[REVIEW_ID] in response.text


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("state", [RELEASED, REJECTED])
def test_the_status_goes_out_while_a_reviewer_is_waited_for(
    start_proxy: StartProxy, is_stream: bool, state: str
) -> None:
    """After `commit_after_s` pings keep the connection alive, and the body has the outcome."""
    proxy = start_proxy(policy=WAIT, limits={"commit_after_s": 0.05})
    text = f"late {is_stream} {state} p=0.1"
    with verdict(proxy, text, state):
        got = proxy.post_raw(question(text, stream=is_stream))
    assert (got.status, got.headers["x-pinocchio-confidence-status"]) == (200, "pending")
    assert got.body.startswith(b": ping\n\n" if is_stream else b" ")
    if state == RELEASED:
        content = text_in(got.body) if is_stream else json.loads(got.body)["choices"][0]["message"]
        assert text in str(content)
    elif is_stream:
        assert events_in(got.body)[-1]["error"]["code"] == "held_reply_rejected"
    else:
        [choice] = json.loads(got.body)["choices"]
        assert choice["finish_reason"] == "content_filter"
        assert "rejected" in choice["message"]["content"]


def test_official_clients_wait(start_proxy: StartProxy) -> None:
    """An openai client that iterates over a stream gets the released one after the pings."""
    proxy = start_proxy(policy=WAIT, limits={"commit_after_s": 0.05})
    with verdict(proxy, "iterated p=0.1", RELEASED):
        stream = proxy.openai.chat.completions.create(**question("iterated p=0.1"), stream=True)
        chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(c.delta.content or "" for c in chunks) == "iterated p=0.1"


def test_calls_that_a_live_stream_withholds_are_waited_for(start_proxy: StartProxy) -> None:
    """In a stream whose text is out, the withheld call follows once it is released."""
    when = "{tools: any, confidence: {below: 0.3}}"
    rule = f"{{name: calls, when: {when}, then: {{hold: {{reply: wait, wait: 20s}}}}}}"
    proxy = start_proxy(
        policy=f"version: 1\nname: desk\non_score_error: deliver\nrules: [{rule}]\ndefault: deliver"
    )
    asked = question("called p=0.1", "tools", tools=[WEATHER])
    with verdict(proxy, "called p=0.1", RELEASED):
        stream = proxy.openai.chat.completions.create(**asked, stream=True)
        deltas = [chunk.choices[0].delta for chunk in stream]
    parts = [call.function for delta in deltas for call in delta.tool_calls or []]
    arguments = "".join(part.arguments or "" for part in parts if part)
    assert json.loads(arguments) == {"city": "called p=0.1", "number": 0}
    asked = question("again p=0.1", "tools", tools=[WEATHER])
    with verdict(proxy, "again p=0.1", REJECTED):
        stream = proxy.openai.chat.completions.create(**asked, stream=True)
        with pytest.raises(APIError) as caught:
            list(stream)
    assert caught.value.code == "held_reply_rejected"


def test_who_leaves_is_not_waited_for(start_proxy: StartProxy) -> None:
    """A client that leaves during the wait leaves its reply held."""
    proxy = start_proxy(policy=WAIT)

    def left() -> list[Any]:
        return [row for row in held_rows(proxy) if row["question"] == "left p=0.1"]

    with left_behind(proxy.port, question("left p=0.1")):
        until(left)
        time.sleep(0.2)  # the reviewer is waited for by then
    [row] = left()
    assert row["state"] == HELD

    def recorded() -> list[Any]:
        query = "SELECT error, action FROM exchanges WHERE review_id = ?"
        with sqlite3.connect(proxy.store_path) as database:
            rows = list(database.execute(query, (row["id"],)))
        database.close()
        return rows

    until(recorded)
    assert recorded() == [("client_left", "hold")]


async def test_one_query_asks_for_all_who_wait(tmp_path: Any) -> None:
    """The store is asked once in each interval for all who wait, and never without one."""
    queries: list[int] = []
    third = asyncio.Event()

    class Counted(Store):
        async def open_ids(self, ids: Any) -> set[str]:
            queries.append(len(ids))
            if len(queries) == 3:
                third.set()
            return await super().open_ids(ids)

    store = Counted(f"sqlite:///{tmp_path}/held.db")
    await store.open()
    verdicts = Verdicts(store, every_s=0.1)
    replies = [HeldReply(**{**_fields(REPLY), "id": f"r{n}"}) for n in range(50)]
    for reply in replies:
        await store.hold(reply)
    started = time.monotonic()
    waiting = [asyncio.create_task(verdicts.wait(reply, 60)) for reply in replies]
    await asyncio.wait_for(third.wait(), 30)
    assert len(queries) <= (time.monotonic() - started) / 0.1
    assert set(queries) == {50}
    for reply in replies:
        reviewing.decide(store.url, reply.id, RELEASED)
    assert set(await asyncio.gather(*waiting)) == {RELEASED}
    await verdicts.aclose()
    count_before = len(queries)
    await asyncio.sleep(0.25)
    assert len(queries) == count_before
    await store.aclose()


def _fields(reply: HeldReply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in HeldReply.__dataclass_fields__}


async def test_a_store_that_fails_meanwhile_ends_no_wait(tmp_path: Any) -> None:
    """Where the store is away for a while, the verdict arrives once it is back."""
    path = tmp_path / "held.db"
    store = Store(f"sqlite:///{path}")
    await store.open()
    await store.hold(REPLY)
    verdicts = Verdicts(store, every_s=0.05)
    waiting = asyncio.create_task(verdicts.wait(REPLY, 10))
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE held_replies RENAME TO elsewhere")
        database.commit()
        await asyncio.sleep(0.2)
        assert not waiting.done()
        database.execute("ALTER TABLE elsewhere RENAME TO held_replies")
        database.commit()
    database.close()
    reviewing.decide(store.url, REPLY.id, RELEASED)
    assert await waiting == RELEASED
    await verdicts.aclose()
    await store.aclose()


# Fetching later


@pytest.fixture
def later(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=policy("{hold: {reply: async}}"))


def test_respond_async_returns_202_and_a_location(later: LiveProxy) -> None:
    """With `Prefer: respond-async` the client gets 202 and a Location, with 202 until a verdict."""
    first = later.ask("secret p=0.1", headers={"prefer": "wait=5, Respond-Async"})
    assert (first.status_code, first.headers["preference-applied"]) == (202, "respond-async")
    id = first.headers[REVIEW_ID]
    place = first.headers["location"]
    assert place == f"/v1/chat/completions/{id}"
    assert (first.json()["id"], first.headers[ACTION]) == (id, "hold")
    assert "secret" not in first.text
    waiting = later.http.get(place, headers=ASYNC)
    assert (waiting.status_code, waiting.headers["location"]) == (202, place)
    plain = later.http.get(place)
    assert (plain.status_code, plain.json()["id"]) == (200, id)
    decide(later, id, RELEASED)
    released = later.http.get(place, headers=ASYNC)
    assert (released.status_code, "preference-applied" in released.headers) == (200, False)
    assert released.json()["choices"][0]["message"]["content"] == "secret p=0.1"


def test_official_clients_poll(later: LiveProxy) -> None:
    """The openai client reads the 202 as a completion, and later retrieves the released one."""
    client = later.openai.with_options(default_headers=ASYNC)
    id = client.chat.completions.create(**question("polled p=0.1")).id
    assert client.chat.completions.retrieve(id).choices[0].finish_reason == "content_filter"
    decide(later, id, RELEASED)
    content = client.chat.completions.retrieve(id).choices[0].message.content
    assert content == "polled p=0.1"


def test_held_calls_come_later_too(later: LiveProxy) -> None:
    """With the preference a held tool call is a 202, also for a repeated request."""
    fields = question("called p=0.1", "tools", tools=[WEATHER])
    replies = [
        later.http.post("/v1/chat/completions", json=fields, headers=ASYNC) for _ in range(2)
    ]
    assert [reply.status_code for reply in replies] == [202, 202]
    assert len({reply.headers["location"] for reply in replies}) == 1
    decide(later, replies[0].headers[REVIEW_ID], RELEASED)
    released = later.http.get(replies[0].headers["location"], headers=ASYNC).json()
    assert released["choices"][0]["message"]["tool_calls"][0]["id"] == "call_0"


def test_an_unrequested_stream_becomes_an_object(later: LiveProxy) -> None:
    """Where upstream streams unasked, the 202 is an object."""
    response = later.ask("p=0.1", "always-stream", headers=ASYNC)
    assert (response.status_code, response.json()["object"]) == (202, "chat.completion")


@pytest.mark.parametrize(
    ("headers", "fields"),
    [({}, {}), ({"prefer": "respond-asynchronously"}, {}), (ASYNC, {"stream": True})],
)
def test_nobody_else_gets_a_202(later: LiveProxy, headers: Any, fields: Any) -> None:
    """Without the preference, and in streams, a hold is answered as usual."""
    response = later.ask("p=0.1", headers=headers, **fields)
    assert response.status_code == 200
    assert "content_filter" in response.text
    assert "location" not in response.headers
    error = later.ask("p=0.1", response_format=SCHEMA, headers=headers, **fields)
    assert error_of(error)["code"] == "held_for_review"


def test_a_202_comes_too_late_once_the_status_is_out(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """After `commit_after_s` the placeholder is in the body, as it is too late for a 202."""
    proxy = start_proxy(policy=policy("{hold: {reply: async}}"), limits={"commit_after_s": 0.05})
    timer = threading.Timer(0.5, lambda: upstream.wait_for_request().proceed())
    timer.start()
    response = proxy.ask("p=0.1", "gated", headers=ASYNC)
    timer.join()
    assert response.status_code == 200
    assert response.json()["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.parametrize("path", ["responses", "completions"])
def test_each_surface_has_its_location(start_responses: StartProxy, path: str) -> None:
    """The Location has the path at which that surface's held replies are fetched."""
    proxy = start_responses(policy=policy("{hold: {reply: async}}"))
    text = {"responses": "input", "completions": "prompt"}[path]
    body = {"model": "ok", text: "p=0.1"}
    first = proxy.http.post(f"/v1/{path}", json=body, headers=ASYNC)
    assert first.status_code == 202
    place = first.headers["location"]
    waiting = proxy.http.get(place, headers=ASYNC)
    assert (waiting.status_code, waiting.json()["id"]) == (202, first.json()["id"])
    decide(proxy, first.json()["id"], RELEASED)
    assert proxy.http.get(place).status_code == 200


def test_messages_have_a_location(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The Location of `/v1/messages` is a path that Anthropic's API does not have."""
    with (
        MessagesUpstream() as anthropic,
        messages_client.proxies_before(anthropic, tmp_path_factory) as start,
    ):
        proxy = start(policy=policy("{hold: {reply: async}}"))
        headers = messages_client.HEADERS | ASYNC
        body = messages_client.asked("p=0.1")
        first = proxy.http.post("/v1/messages", json=body, headers=headers)
        assert first.status_code == 202
        assert first.headers["location"] == f"/v1/messages/{first.json()['id']}"
        assert proxy.http.get(first.headers["location"], headers=headers).status_code == 202


# Expiry


def expired(start_proxy: StartProxy, on_expiry: str, **fields: Any) -> tuple[LiveProxy, str]:
    """Return a proxy, and the id of a reply to `expired p=0.1` that has expired."""
    proxy = start_proxy(policy=policy(f"{{hold: {{expires: 1h, on_expiry: {on_expiry}}}}}"))
    id = proxy.ask("expired p=0.1", **fields).headers[REVIEW_ID]
    make_late(proxy, id)
    return proxy, id


def make_late(proxy: LiveProxy, id: str) -> None:
    with sqlite3.connect(proxy.store_path) as database:
        late = time.time() - 1
        database.execute("UPDATE held_replies SET expires_at = ? WHERE id = ?", (late, id))
    database.close()


@pytest.mark.parametrize("is_marked", [False, True])
def test_on_expiry_reject(start_proxy: StartProxy, is_marked: bool) -> None:
    """An expired reply that is rejected is 404 with its own code, marked as expired or not yet."""
    proxy, id = expired(start_proxy, "reject")
    if is_marked:
        assert not decide(proxy, id, RELEASED)
    with pytest.raises(NotFoundError) as caught:
        proxy.openai.chat.completions.retrieve(id)
    assert caught.value.code == "held_reply_expired"


@pytest.mark.parametrize("is_marked", [False, True])
def test_on_expiry_deliver(start_proxy: StartProxy, is_marked: bool) -> None:
    """An expired reply that is delivered is fetched like a released one."""
    proxy, id = expired(start_proxy, "deliver")
    if is_marked:
        assert not decide(proxy, id, REJECTED)
    released = proxy.openai.chat.completions.retrieve(id)
    assert released.choices[0].message.content == "expired p=0.1"
    member = (released.model_extra or {})["pinocchio"]
    assert member["choices"] == [
        {"index": 0, "confidence": 0.1, "status": "scored", "basis": ["likeness"]}
    ]


@pytest.mark.parametrize("is_marked", [False, True])
def test_on_expiry_block(start_proxy: StartProxy, is_marked: bool) -> None:
    """An expired reply that is blocked is the error of any block."""
    proxy, id = expired(start_proxy, "block")
    if is_marked:
        assert not decide(proxy, id, RELEASED)
    with pytest.raises(UnprocessableEntityError) as caught:
        proxy.openai.chat.completions.retrieve(id)
    assert caught.value.code == "blocked_by_policy"


@pytest.mark.parametrize(
    ("on_expiry", "status", "code"),
    [
        ("reject", 422, "held_reply_expired"),
        ("deliver", 200, None),
        ("block", 422, "blocked_by_policy"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_expires_during_the_wait(
    start_proxy: StartProxy, on_expiry: str, status: int, code: str | None, is_stream: bool
) -> None:
    """A wait ends when the reply expires, with what the policy says for that."""
    hold = f"{{reply: wait, wait: 1s, expires: 1s, on_expiry: {on_expiry}}}"
    proxy = start_proxy(policy=policy(f"{{hold: {hold}}}"))
    response = proxy.ask("expiring p=0.1", stream=is_stream)
    assert response.status_code == status
    assert response.headers[ACTION] == {"reject": "hold"}.get(on_expiry, on_expiry)
    if code:
        assert error_of(response)["code"] == code
    else:
        text = text_in(response.content) if is_stream else response.text
        assert "expiring p=0.1" in text


async def test_reviewers_see_what_comes_of_an_expired_reply(tmp_path: Any) -> None:
    """An expired reply is listed as expired, whatever the policy does, and cannot be decided on."""
    store = Store(f"sqlite:///{tmp_path}/held.db")
    await store.open()
    for on_expiry in ("reject", "deliver", "block"):
        late = {"id": on_expiry, "on_expiry": on_expiry, "expires_at": time.time() - 1}
        await store.hold(HeldReply(**{**_fields(REPLY), **late}))
    reviewing.expire(store.url)
    found = [await store.get(id) for id in reviewing.listed(store.url, EXPIRED)]
    comes_to = {each.on_expiry: each.current_state for each in found if each}
    assert comes_to == {"reject": EXPIRED, "deliver": RELEASED, "block": "blocked"}
    assert not reviewing.decide(store.url, "deliver", REJECTED)
    await store.aclose()


def test_clients_of_other_keys_see_nothing(later: LiveProxy) -> None:
    """A reply held for one key is not found by another, whatever it prefers."""
    place = later.ask("p=0.1", headers=ASYNC).headers["location"]
    other = OpenAI(base_url=later.base_url, api_key="sk-other", max_retries=0)
    with pytest.raises(NotFoundError) as caught:
        other.chat.completions.retrieve(place.rsplit("/", 1)[-1])
    assert caught.value.code == "held_reply_not_found"
    other.close()
