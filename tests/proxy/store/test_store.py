"""Held replies are stored in the database, decided on once, and expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from proxy.errors import StoreError
from proxy.store.database.database import open_engine
from proxy.store.reviews.held_replies import EXPIRED, HELD, REJECTED, RELEASED, HeldReply, Store
from tests.running.databases import execute
from tests.running.postgres import PASSWORD
from tests.running.reviewing import decide, expire, listed

REPLY = HeldReply(
    id="chatcmpl-held-1",
    key_hash="0" * 64,
    queue="review",
    model="gpt",
    policy="desk/unsure@1",
    confidence=0.2,
    calibrator="words@1",
    question="why? ä🍋",
    reply=b'{"id": "x",\xff}',
    created_at=1_000.5,
    expires_at=4e9,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "held.db"


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, max_held=3)
    await store.open()
    yield store
    await store.aclose()


async def test_what_is_held_is_read_back(store: Store) -> None:
    """Every field and every byte of a held reply is read back unchanged."""
    await store.hold(REPLY)
    assert await store.get(REPLY.id) == REPLY
    assert await store.get("chatcmpl-held-2") is None


async def test_it_survives_the_process(store: Store, store_url: str) -> None:
    """A held reply is there for the next process that opens the database."""
    await store.hold(REPLY)
    await store.aclose()
    again = Store(store_url)
    await again.open()
    assert await again.get(REPLY.id) == REPLY
    await again.aclose()


@pytest.mark.parametrize("state", [RELEASED, REJECTED])
async def test_a_reply_is_decided_once(store: Store, state: str) -> None:
    """The first decision on a reply counts, whatever comes after it."""
    await store.hold(REPLY)
    before = time.time()
    assert decide(store.url, REPLY.id, state)
    assert not decide(store.url, REPLY.id, RELEASED)
    assert not decide(store.url, REPLY.id, REJECTED)
    decided = await store.get(REPLY.id)
    assert decided is not None
    assert decided.state == state
    assert decided.decided_at is not None
    assert before <= decided.decided_at <= time.time()


async def test_of_two_reviewers_one_decides(store: Store, store_url: str) -> None:
    """Of decisions at the same moment from two processes exactly one succeeds."""
    await store.hold(REPLY)
    decisions = await asyncio.gather(
        asyncio.to_thread(decide, store_url, REPLY.id, RELEASED),
        asyncio.to_thread(decide, store_url, REPLY.id, REJECTED),
    )
    assert sorted(decisions) == [False, True]


async def test_what_nobody_decides_expires(store: Store) -> None:
    """After `expires_at` a reply is expired and cannot be decided on."""
    await store.hold(replace(REPLY, expires_at=time.time() - 1))
    assert not decide(store.url, REPLY.id, RELEASED)
    expired = await store.get(REPLY.id)
    assert expired is not None
    assert expired.state == EXPIRED
    assert listed(store.url, EXPIRED) == [REPLY.id]


async def test_a_decided_reply_does_not_expire(store: Store) -> None:
    """A reply that was released in time stays released."""
    await store.hold(replace(REPLY, expires_at=time.time() + 60))
    assert decide(store.url, REPLY.id, RELEASED)
    execute(store.url, "UPDATE held_replies SET expires_at = 1")
    expire(store.url)
    assert listed(store.url, RELEASED) == [REPLY.id]


async def test_the_surest_errors_are_listed_first(store: Store) -> None:
    """Replies without a score are listed first, then by confidence, then by age."""
    for id, confidence, created in (("a", 0.4, 1.0), ("b", 0.1, 3.0), ("c", None, 2.0)):
        await store.hold(replace(REPLY, id=id, confidence=confidence, created_at=created))
    assert listed(store.url) == ["c", "b", "a"]
    assert listed(store.url, limit=1) == ["c"]
    decide(store.url, "b", RELEASED)
    assert listed(store.url, HELD) == ["c", "a"]
    assert listed(store.url, RELEASED) == ["b"]


async def test_only_so_many_are_held(store: Store) -> None:
    """Beyond `max_held` waiting replies none is taken until one is decided on."""
    for id in "abc":
        await store.hold(replace(REPLY, id=id))
    with pytest.raises(StoreError, match=r"limits\.max_held"):
        await store.hold(replace(REPLY, id="d"))
    decide(store.url, "a", REJECTED)
    await store.hold(replace(REPLY, id="d"))


async def test_replies_that_are_held_together(store: Store) -> None:
    """Replies that are held at the same moment are all stored."""
    await asyncio.gather(*(store.hold(replace(REPLY, id=id)) for id in "abc"))
    assert len(listed(store.url)) == 3


async def test_the_same_id_is_not_held_twice(store: Store) -> None:
    """A repeated id is an error, and never replaces a reply."""
    await store.hold(REPLY)
    with pytest.raises(StoreError):
        await store.hold(replace(REPLY, reply=b"other"))
    assert await store.get(REPLY.id) == REPLY


async def test_the_replies_of_a_request(store: Store) -> None:
    """Replies are found by their request and its key, the newest first."""
    for id, digest, created in (("a", "x", 1.0), ("b", "x", 2.0), ("c", "y", 3.0)):
        await store.hold(replace(REPLY, id=id, request_digest=digest, created_at=created))
    assert [held.id for held in await store.of_request("x", REPLY.key_hash)] == ["b", "a"]
    assert await store.of_request("x", "1" * 64) == []


async def test_most_requests_have_none(path: Path) -> None:
    """A request without held replies is known without
    a query; where that fails, it may have some.
    """
    store = Store(f"sqlite:///{path}")
    await store.open()
    assert not store.may_have("x")
    other = Store(f"sqlite:///{path}")
    await other.open()
    await other.hold(replace(REPLY, request_digest="x"))
    assert store.may_have("x")
    assert not store.may_have("y")
    await other.aclose()
    execute(f"sqlite:///{path}", "DROP TABLE held_replies")
    assert store.may_have("y")
    await store.aclose()


async def test_a_bound_reply_is_taken_once(store: Store) -> None:
    """A bound reply can be taken again for a while after the first time, and then no longer."""
    await store.hold(REPLY)
    assert [await store.take(REPLY.id, 60) for _ in range(2)] == [True] * 2
    await asyncio.sleep(0.3)
    assert await store.take(REPLY.id, 60)
    assert not await store.take(REPLY.id, 0.3)


async def test_which_are_undecided(store: Store) -> None:
    """Of the given ids, those that are still held are returned."""
    for id in "abc":
        await store.hold(replace(REPLY, id=id))
    decide(store.url, "a", RELEASED)
    decide(store.url, "b", REJECTED)
    assert await store.open_ids(["a", "b", "c", "unknown"]) == {"c"}


async def test_half_characters_are_stored(store: Store) -> None:
    """Text that a database cannot store, as JSON escapes can make it, is stored readably."""
    await store.hold(replace(REPLY, question="\ud83c", model="\udfff", team="a\0b"))
    held = await store.get(REPLY.id)
    assert held is not None
    assert (held.question, held.model, held.team) == ("\\ud83c", "\\udfff", "a\\x00b")


def test_what_was_decided_waits_for_the_disk(store_url: str) -> None:
    """Decisions wait for the disk, so that a loss of
    power loses at most the record's last moments.
    """
    url, query = store_url, "PRAGMA synchronous"
    if not url.startswith("sqlite"):  # where tests run, the server itself does not wait
        url, query = f"{url}?options=-csynchronous_commit%3Don", "SHOW synchronous_commit"
    found = []
    for is_durable in (True, False):
        engine = open_engine(url, is_durable=is_durable)
        with engine.connect() as connection:
            found.append(connection.execute(sa.text(query)).scalar())
        engine.dispose()
    assert found in ([2, 1], ["on", "off"])  # SQLite: FULL, NORMAL


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_is_no_database(path: Path, is_folder: bool) -> None:
    """A file that cannot be opened as a database is a StoreError with its path."""
    if is_folder:
        path.mkdir()
    else:
        path.write_bytes(b"this is no database " * 100)
    with pytest.raises(StoreError, match=r"held\.db"):
        asyncio.run(Store(f"sqlite:///{path}").open())


async def test_a_store_that_was_not_opened(store_url: str) -> None:
    """Work on a store that is not open is a StoreError, without its password."""
    with pytest.raises(StoreError, match="not open") as raised:
        await Store(store_url).hold(REPLY)
    assert PASSWORD not in str(raised.value)


async def test_a_database_that_breaks_later(store: Store, store_url: str) -> None:
    """Every method raises StoreError, and nothing else, where the database fails."""
    execute(store_url, "DROP TABLE held_replies")
    for work in (
        store.hold(REPLY),
        store.get(REPLY.id),
        store.of_request("x", "y"),
        store.open_ids(["a"]),
        store.take(REPLY.id, 1),
    ):
        with pytest.raises(StoreError):
            await work
