"""Webhooks: signed, retried, sent to public addresses only, and not lost by a restart."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies import InvalidDocumentError
from proxy.config.sections import Config, load_config
from proxy.desk.decisions.desk import Desk, Verdict
from proxy.desk.webhooks import MOST_ATTEMPTS, Courier, link, signature
from proxy.optional.chat.chat import Chat
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.events import ReviewEvent
from proxy.store.reviews.held_replies import AUDIT, HeldReply, Store
from proxy.store.reviews.outbox import delivery_counts
from tests.conftest import StartProxy
from tests.proxy.store.test_store import REPLY
from tests.running.databases import execute
from tests.running.desk_client import DESK, HOLD, decide, held_id
from tests.running.live_proxy import until
from tests.servers.webhook_receiver import WebhookReceiver
from tests.sharing.captured_logs import capture_logs

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes or so").decode()
DESK_URL = "https://desk.example/"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


def config(store_url: str, url: str, **webhook: Any) -> Config:
    hook = {"url": url, "secret": SECRET, "allow_private": True, **webhook}
    return Config.model_validate({"store": store_url, "webhooks": [hook]})


@asynccontextmanager
async def running(config: Config, **options: float) -> AsyncIterator[None]:
    """Run a courier with short waits within this context."""
    settings = {"every_s": 0.02, "first_wait_s": 0.01, **options}
    courier = Courier(config, DESK_URL, Chat(config.admin, DESK_URL), **settings)
    courier.start()
    yield
    await courier.aclose()


async def hold(store_url: str, *replies: HeldReply) -> None:
    store = Store(store_url)
    await store.open()
    for reply in replies:
        await store.hold(reply)
    await store.aclose()


def fresh(id: str = "chatcmpl-held-1", **changed: Any) -> HeldReply:
    return replace(REPLY, id=id, created_at=time.time(), **changed)


async def soon(check: Any, within_s: float = 15) -> None:
    async with asyncio.timeout(within_s):
        while not check():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.02)


def waiting(store_url: str) -> dict[str, int]:
    queue = ReviewQueue(store_url)
    try:
        return delivery_counts(queue.engine)
    finally:
        queue.close()


def test_a_proxy_sends_events_for_a_held_reply(
    start_proxy: StartProxy, receiver: WebhookReceiver
) -> None:
    """The events `held` and `released` have ids, facts, a
    link and a valid signature, and no text of the exchange.
    """
    hook = {"url": receiver.url, "secret": SECRET, "allow_private": True}
    proxy = start_proxy(policy=HOLD, webhooks=[hook], **DESK)
    id = held_id(proxy, "a canary p=0.1")
    until(lambda: len(receiver.received) == 1)
    decide(proxy, id, verdict="approve", note="a canary")
    until(lambda: len(receiver.received) == 2)
    held, released = receiver.received
    assert [held.json["type"], released.json["type"]] == ["review.held", "review.released"]
    data = released.json["data"]
    assert (data["review_id"], data["queue"], data["confidence"]) == (id, "seniors", 0.1)
    assert data["decided_by"] == "admin"
    assert proxy.admin is not None
    assert data["url"] == f"{proxy.admin.url}/console/reviews/{id}"
    assert b"canary" not in held.body + released.body
    assert "reply" not in data
    assert held.headers["host"] == receiver.url.split("/")[2]

    message_id, at = held.headers["webhook-id"], held.headers["webhook-timestamp"]
    assert abs(int(at) - time.time()) < 60
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{message_id}.{at}.".encode() + held.body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    assert held.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert message_id != released.headers["webhook-id"]


async def test_a_released_reply_can_come_along(store_url: str, receiver: WebhookReceiver) -> None:
    """With `include_reply` a message has the reply as the client gets it, edits included."""
    reply = b'{"choices": [{"index": 0, "message": {"content": "old"}, "finish_reason": "stop"}]}'
    await hold(store_url, fresh(reply=reply, path="/chat/completions"))
    queue = ReviewQueue(store_url)
    edit = Verdict("edit", content="new")
    await asyncio.to_thread(Desk(queue).decide, REPLY.id, edit, "alice")
    queue.close()
    async with running(config(store_url, receiver.url, include_reply=True, events=["released"])):
        await soon(lambda: receiver.received)
    [released] = receiver.received
    assert released.json["data"]["reply"]["choices"][0]["message"]["content"] == "new"


async def test_a_failure_is_tried_again(store_url: str, receiver: WebhookReceiver) -> None:
    """Errors and redirects count as failures; a retry has the same id, and success ends it."""
    receiver.answers = [(500, {}), (302, {"location": receiver.url}), (503, {"retry-after": "1"})]
    await hold(store_url, fresh())
    with capture_logs() as lines:
        await _tried_until_it_arrives(store_url, receiver)
    events = [each["event"] for each in lines if each["event"].startswith("webhook_")]
    assert events == ["webhook_failed"] * 3 + ["webhook_sent"]


async def _tried_until_it_arrives(store_url: str, receiver: WebhookReceiver) -> None:
    async with running(config(store_url, receiver.url)):
        await soon(lambda: len(receiver.received) == 3)
        third = time.monotonic()
        await soon(lambda: len(receiver.received) == 4)
        assert time.monotonic() - third > 0.9, "the receiver asked for a second"
        await soon(lambda: waiting(store_url)["waiting"] == 0)
        await asyncio.sleep(0.1)
    assert len({each.headers["webhook-id"] for each in receiver.received}) == 1
    assert len(receiver.received) == 4


@pytest.mark.parametrize("is_gone", [False, True])
async def test_undelivered_events_are_dropped(
    tmp_path: Path, receiver: WebhookReceiver, is_gone: bool
) -> None:
    """After the last attempt, or a 410, a message is counted as given up and not sent again."""
    store_url = f"sqlite:///{tmp_path}/held.db"
    receiver.answers = [(410 if is_gone else 500, {})] * 20
    await hold(store_url, fresh())
    if not is_gone:
        async with running(config(store_url, receiver.url), first_wait_s=60):
            await soon(lambda: receiver.received)
        last = MOST_ATTEMPTS - 1
        execute(store_url, f"UPDATE webhook_deliveries SET due_at = 0, attempts = {last}")
    with capture_logs() as lines:
        async with running(config(store_url, receiver.url)):
            await soon(lambda: waiting(store_url) == {"waiting": 0, "given_up": 1})
            await asyncio.sleep(0.1)
    assert "webhook_given_up" in [each["event"] for each in lines]
    assert len(receiver.received) == (1 if is_gone else 2)


async def test_a_restart_loses_nothing(tmp_path: Path, receiver: WebhookReceiver) -> None:
    """A message that an ended courier had claimed is sent by the next one, after its lease."""
    store_url = f"sqlite:///{tmp_path}/held.db"
    receiver.answers = [(500, {})]
    await hold(store_url, fresh())
    async with running(config(store_url, receiver.url), first_wait_s=3_600):
        await soon(lambda: receiver.received)
    assert waiting(store_url)["waiting"] == 1
    execute(store_url, "UPDATE webhook_deliveries SET due_at = 0")
    async with running(config(store_url, receiver.url)):
        await soon(lambda: len(receiver.received) == 2)
    assert len({each.headers["webhook-id"] for each in receiver.received}) == 1


async def test_two_proxies_send_each_event_once(store_url: str, receiver: WebhookReceiver) -> None:
    """Couriers on one store take only what no other one has claimed."""
    await hold(store_url, *(fresh(f"chatcmpl-held-{n}") for n in range(40)))
    hooked = config(store_url, receiver.url)
    async with running(hooked), running(hooked), running(hooked):
        await soon(lambda: len(receiver.received) >= 40)
        await asyncio.sleep(0.2)
    ids_received = [each.json["data"]["review_id"] for each in receiver.received]
    assert sorted(ids_received) == sorted(f"chatcmpl-held-{n}" for n in range(40))


async def test_only_chosen_events_are_sent(tmp_path: Path, receiver: WebhookReceiver) -> None:
    """Only the chosen events are sent, no audits and nothing old; an expiry is noticed."""
    store_url = f"sqlite:///{tmp_path}/held.db"
    await hold(
        store_url,
        fresh("late", expires_at=time.time() + 0.3),
        fresh("audit_1", kind=AUDIT, share=0.1, expires_at=time.time() + 0.3),
        replace(REPLY, id="old", expires_at=2.0),
    )
    async with running(config(store_url, receiver.url, events=["expired"])):
        await soon(lambda: len(receiver.received) == 2)
        await asyncio.sleep(0.2)
    types = {each.json["data"]["review_id"]: each.json["type"] for each in receiver.received}
    assert types == {"late": "review.expired", "old": "review.expired"}


# Addresses


async def test_nothing_is_sent_into_the_own_network(
    tmp_path: Path, receiver: WebhookReceiver
) -> None:
    """A name that leads to loopback is refused where that is not allowed, and tried again later."""
    store_url = f"sqlite:///{tmp_path}/held.db"
    port = receiver.url.split(":")[2].split("/")[0]
    await hold(store_url, fresh())
    refused = config(store_url, f"https://localhost:{port}/hook", allow_private=False)
    async with running(refused, first_wait_s=60):
        await soon(lambda: execute(store_url, "SELECT attempts FROM webhook_deliveries") == [(1,)])
        await asyncio.sleep(0.1)
    assert receiver.received == []
    assert waiting(store_url)["waiting"] == 1


# Configuration errors


EVENT = ReviewEvent(
    *(1, "chatcmpl-held-1", "held", 1.0, None, "hold", "seniors", None),
    *("gpt", "desk/r@1", 0.123, None, 2.0),
)


def test_without_a_desk_there_is_no_link() -> None:
    assert link(EVENT, None) is None
    assert link(EVENT, DESK_URL) == f"{DESK_URL}console/reviews/chatcmpl-held-1"


def test_a_plain_secret_signs_too() -> None:
    digest = hmac.new(b"plain", b"msg_1.5.{}", hashlib.sha256).digest()
    assert signature("plain", "msg_1", 5, b"{}") == "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize(
    ("webhook", "message"),
    [
        ("{url: 'http://a.example', secret: x}", "url must begin with https://"),
        ("{url: 'https://me@a.example', secret: x}", "url must begin with https://"),
        ("{url: 'https://a.example'}", "a secret is needed"),
        ("{url: 'https://a.example', secret: whsec_%}", "base64"),
        ("{url: 'https://a.example', secret: x, events: []}", "at least 1 item"),
        ("{url: 'https://a.example', secret: x, events: [hold]}", "'held'"),
        ("{url: 'https://a.example', secret: x, event: [held]}", "did you mean 'events'?"),
        ("{url: 'https://a.example', secret: x, shows: calls}", "json has include_reply"),
        ("{url: 'https://a.example', format: slack, reviewer: ' '}", "a reviewer has a name"),
        ("{url: 'https://a.example', format: slack, queues: []}", "at least 1 item"),
    ],
)
def test_a_webhook_that_could_not_work(tmp_path: Path, webhook: str, message: str) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(f"webhooks: [{webhook}]\n")
    with pytest.raises(InvalidDocumentError, match="webhooks") as caught:
        load_config(path, {})
    assert message in str(caught.value)
