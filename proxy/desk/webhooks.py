"""Delivers events of held replies to webhooks, as signed JSON, from the outbox in the store.

Every second new events are put into the outbox, and messages that are due are sent, a few at a
time. A failure is retried after longer and longer waits, for most of a day. A redirect is a
failure, since it may lead anywhere. Of several proxies on one store each sends what no other has
claimed.

The signature follows Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, in base64, in the
headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import httpx
import structlog

from proxy.config.sections import Config
from proxy.config.settings.webhooks import WebhookConfig
from proxy.errors import StoreError
from proxy.http.public_addresses import AddressRefusedError, checked_address
from proxy.http.wire.http import place
from proxy.http.wire.json_splice import dumps, json_object
from proxy.store.queue import ReviewQueue
from proxy.store.reviews.events import ReviewEvent
from proxy.store.reviews.held_replies import AUDIT, RELEASED, HeldReply
from proxy.store.reviews.outbox import Delivery, DeliveryOutbox

log = structlog.get_logger(__name__)

T = TypeVar("T")

AT_ONCE: Final = 10
TIMEOUT_S: Final = 10.0
LEASE_S: Final = 60.0  # must be longer than an attempt
MOST_ATTEMPTS: Final = 9
FIRST_WAIT_S, FACTOR, MOST_WAIT_S = 5.0, 4, 6 * 3_600.0
MOST_DIGITS = 20  # digits of the seconds that a receiver asks to wait
TIDY_EVERY_S: Final = 3_600.0
GONE: Final = 410

_SECRET_PREFIX: Final = "whsec_"


class ChatMessages(Protocol):
    """Makes messages for chat channels, and addresses where one reviewer decides."""

    def body(self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None) -> bytes:
        """Return the message in the webhook's format; `held` is the reply as it is now."""

    def decide_url(
        self, webhook: WebhookConfig, event: ReviewEvent, held: HeldReply | None
    ) -> str | None:
        """Return the address where the webhook's reviewer decides, or None without one."""


class Courier:
    """Delivers messages to the configured webhooks.

    `desk_url` is the desk's address, for links. Webhooks of chat channels and of reviewers need
    `chat`.
    """

    def __init__(
        self,
        config: Config,
        desk_url: str | None,
        chat: ChatMessages | None = None,
        *,
        every_s: float = 1.0,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._webhooks = {_target(each): each for each in config.webhooks}
        self._desk_url = desk_url
        self._chat = chat
        self._every_s = every_s
        self._first_wait_s = first_wait_s
        self._outbox = DeliveryOutbox(config.store)
        self._queue = ReviewQueue(config.store)
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        self._tidy_at = 0.0
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start delivering in a task of the running event loop."""
        self._running = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Stop delivering, and close the connections.

        A message on its way is retried after the next start, or by another proxy.
        """
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        await self._client.aclose()
        self._outbox.close()
        self._queue.close()

    async def _run(self) -> None:
        """Deliver forever, every `every_s` seconds; errors are logged, those of the store once."""
        is_logged = False
        while True:
            try:
                await self._turn()
                is_logged = False
            except StoreError as error:
                if not is_logged:
                    log.error("webhooks_paused", reason=error.message)
                is_logged = True
            except Exception as error:  # a bug must not stop all later deliveries
                log.error("internal_error", path="webhooks", **place(error))
            await asyncio.sleep(self._every_s)

    async def _turn(self) -> None:
        """Mark late replies as expired, announce new events, then send all messages that are due.

        Once in `TIDY_EVERY_S` old deliveries and events are deleted first.
        """
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_EVERY_S
            await _run_to_end(self._tidy)
        await _run_to_end(self._queue.expire)
        while await _run_to_end(self._outbox.announce, self._targets_of):
            pass
        while batch := await _run_to_end(self._outbox.claim, AT_ONCE, LEASE_S):
            await asyncio.gather(*map(self._deliver, batch))

    def _tidy(self) -> None:
        """Delete the deliveries that were given up, and events, when they are old."""
        self._outbox.forget()
        self._queue.forget_events()

    def _targets_of(self, event: ReviewEvent) -> Iterable[str]:
        """Return the ids of the webhooks that get an event, by its kind and queue.

        Audits have none.
        """
        if event.kind == AUDIT:
            return []
        return [
            target
            for target, each in self._webhooks.items()
            if event.event in each.events and (each.queues is None or event.queue in each.queues)
        ]

    async def _deliver(self, delivery: Delivery) -> None:
        """Send a message, and record its success, its next attempt, or that it is given up.

        The outcome is logged. A message is given up after `MOST_ATTEMPTS`, at a 410, and if the
        webhook is no longer configured.
        """
        webhook = self._webhooks.get(delivery.target)
        facts = {"review_id": delivery.event.review_id, "review_event": delivery.event.event}
        if webhook is None:  # an earlier configuration had it
            await _run_to_end(self._outbox.give_up, delivery.id)
            log.warning("webhook_given_up", **facts, reason="no longer configured")
            return
        facts["host"] = httpx.URL(webhook.url).host  # the rest of a URL may be a secret
        try:
            response = await self._send(webhook, delivery)
            reason, retry_s = _failure(response)
        except (httpx.HTTPError, httpx.InvalidURL, AddressRefusedError) as error:
            reason, retry_s = f"{type(error).__name__}: {error}"[:200], 0.0
            response = None
        if reason is None:
            await _run_to_end(self._outbox.delete_sent, delivery.id)
            log.info("webhook_sent", **facts, attempts=delivery.attempts)
        elif delivery.attempts >= MOST_ATTEMPTS or _is_gone(response):
            await _run_to_end(self._outbox.give_up, delivery.id)
            log.error("webhook_given_up", **facts, attempts=delivery.attempts, reason=reason)
        else:
            wait_s = max(retry_s, self._wait_s(delivery.attempts))
            await _run_to_end(self._outbox.postpone, delivery.id, wait_s)
            log.warning("webhook_failed", **facts, reason=reason, next_in_s=round(wait_s, 1))

    def _wait_s(self, attempts: int) -> float:
        """Return the seconds until the next attempt, after this number of attempts, at least 1.

        Each wait is four times the one before, at most `MOST_WAIT_S`, and then varied by up to 25 %
        either way so that not all messages retry at once.
        """
        wait_s: float = self._first_wait_s * FACTOR ** (attempts - 1)
        jitter: float = random.uniform(0.75, 1.25)
        return min(wait_s, MOST_WAIT_S) * jitter

    async def _send(self, webhook: WebhookConfig, delivery: Delivery) -> httpx.Response:
        """Send a message, signed if there is a secret.

        Return the response, with only its head read.

        The address is looked up first and must be public, unless private ones are allowed. Raises
        AddressRefusedError, and the errors of httpx.
        """
        url = httpx.URL(webhook.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        address = await checked_address(url.host, port, allow_private=webhook.allow_private)
        body = await self._body(webhook, delivery.event)
        now = int(time.time())
        headers = {
            "host": url.netloc.decode("ascii"),
            "content-type": "application/json",
            "user-agent": "pinocchio-proxy",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(now),
        }
        if secret := webhook.secret.get_secret_value():
            headers["webhook-signature"] = signature(secret, delivery.id, now, body)
        request = self._client.build_request(
            "POST",
            url.copy_with(host=address),
            headers=headers,
            content=body,
            extensions={"sni_hostname": url.host},
        )
        response = await self._client.send(request, stream=True)
        await response.aclose()
        return response

    async def _body(self, webhook: WebhookConfig, event: ReviewEvent) -> bytes:
        """Return the body of a message, about the reply as it is at this attempt."""
        return await _run_to_end(self._body_of, webhook, event)

    def _body_of(self, webhook: WebhookConfig, event: ReviewEvent) -> bytes:
        """Return the body of a message as `_body` does; waits for the store."""
        is_wanted = webhook.is_chat or webhook.reviewer is not None or webhook.include_reply
        held = self._queue.get(event.review_id) if is_wanted else None
        if webhook.is_chat and self._chat is not None:
            return self._chat.body(webhook, event, held)
        reply = held.released_bytes if held and webhook.include_reply else None
        decide_url = self._chat.decide_url(webhook, event, held) if self._chat else None
        is_released = event.event == RELEASED
        return as_json(event, self._desk_url, reply if is_released else None, decide_url)


async def _run_to_end(work: Callable[..., T], *args: Any) -> T:
    """Run store work on a thread and return its result.

    If cancelled, wait for its end first, since it holds a connection.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _target(webhook: WebhookConfig) -> str:
    """Return the id of a webhook in the outbox, a SHA-256, since its address may be a secret."""
    return hashlib.sha256(webhook.identity.encode()).hexdigest()


def _is_gone(response: httpx.Response | None) -> bool:
    """Return whether a response says that the webhook is gone for good (410)."""
    return response is not None and response.status_code == GONE


def _failure(response: httpx.Response) -> tuple[str | None, float]:
    """Return (why a response is a failure, the seconds it asks to wait).

    The reason is None for a success. The seconds, of `retry-after`, are `MOST_WAIT_S` at most.
    """
    if response.is_success:
        return None, 0.0
    retry_after = response.headers.get("retry-after", "")
    is_number = retry_after.isascii() and retry_after.isdigit() and len(retry_after) <= MOST_DIGITS
    wait_s = min(float(retry_after), MOST_WAIT_S) if is_number else 0.0
    return f"status {response.status_code}", wait_s


def as_json(
    event: ReviewEvent,
    desk_url: str | None,
    reply: bytes | None = None,
    decide_url: str | None = None,
) -> bytes:
    """Serialize an event's facts as the JSON of a webhook, without text unless `reply` is given.

    `decide_url` is the link where the webhook's reviewer decides; it is left out if None.
    """
    data: dict[str, Any] = {
        "review_id": event.review_id,
        "request_id": event.request_id,
        "queue": event.queue,
        "team": event.team,
        "model": event.model,
        "policy": event.policy,
        "confidence": event.confidence,
        "decided_by": event.by,
        "expires_at": event.expires_at,
        "url": link(event, desk_url),
    }
    if decide_url is not None:
        data["decide_url"] = decide_url
    if reply is not None:
        data["reply"] = json_object(reply)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at))
    return dumps({"type": f"review.{event.event}", "timestamp": at, "data": data})


def link(event: ReviewEvent, desk_url: str | None) -> str | None:
    """Return the address of a review's page at the desk, or None where the desk has no address."""
    if desk_url is None:
        return None
    return f"{desk_url.rstrip('/')}/console/reviews/{quote(event.review_id, safe='')}"


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature` for a message: `v1,` and an HMAC in base64.

    A secret that begins with `whsec_` is base64. `timestamp` is in seconds since the epoch.
    """
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
