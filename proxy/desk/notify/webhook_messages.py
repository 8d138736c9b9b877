"""The content of a webhook's message: an event of the desk as JSON, signed.

`chat.py` composes messages for chats. The signature follows Standard Webhooks: HMAC-SHA256 over
`id.timestamp.body`, in base64, in the headers `webhook-id`, `webhook-timestamp` and
`webhook-signature`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any, Final
from urllib.parse import quote

from proxy.http.wire.json_splice import dumps, json_object
from proxy.store.reviews.events import ReviewEvent

_SECRET_PREFIX: Final = "whsec_"


def as_json(
    event: ReviewEvent,
    desk_url: str | None,
    reply: bytes | None = None,
    decide_url: str | None = None,
) -> bytes:
    """Serialize an event's facts, without text unless a `reply` is given.

    `decide_url` is the link of the webhook's reviewer.
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
    """Return the address of a review at the desk, or None where the desk has no address."""
    if desk_url is None:
        return None
    return f"{desk_url.rstrip('/')}/console/reviews/{quote(event.review_id, safe='')}"


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`; a secret that begins with `whsec_` is base64."""
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
