"""What a webhook is told: an event of the desk as JSON, or as Slack shows it; signed.

The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, in base64, under
the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any, Final
from urllib.parse import quote

from proxy.store.reviews.events import Event
from proxy.wire.json_splice import dumps, json_object

_SECRET_PREFIX: Final = "whsec_"
_TITLES: Final = {
    "held": "A reply waits for review",
    "approved": "A held reply was approved, and needs another approval",
    "edited": "A held reply was edited, and needs another approval",
    "escalated": "Nobody decided in time on a held reply: it waits in another queue",
    "released": "A held reply was released",
    "rejected": "A held reply was rejected",
    "expired": "Nobody decided on a held reply in time",
}


def as_json(event: Event, desk_url: str | None, reply: bytes | None = None) -> bytes:
    """Facts and no text, but for the `reply` if it is given."""
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
    if reply is not None:
        data["reply"] = json_object(reply)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at))
    return dumps({"type": f"review.{event.event}", "timestamp": at, "data": data})


def as_slack(event: Event, desk_url: str | None) -> bytes:
    """A message of Slack's: a title that links to the review, and the facts below it."""
    title, url = _TITLES[event.event], link(event, desk_url)
    sure = "none" if event.confidence is None else f"{event.confidence:.2f}"
    facts = {"Queue": event.queue, "Model": event.model, "Confidence": sure, "Team": event.team}
    facts["By"] = event.by
    told = [f"*{name}*: {_escaped(value)}" for name, value in facts.items() if value]
    shown = f"*<{url}|{title}>*" if url else f"*{title}*"
    text = f"{title}: {_escaped(event.model)} in {_escaped(event.queue)}, confidence {sure}"
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": shown}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "  ".join(told)[:2_900]}]},
    ]
    return dumps({"text": text[:2_900], "blocks": blocks})


def link(event: Event, desk_url: str | None) -> str | None:
    if desk_url is None:
        return None
    return f"{desk_url.rstrip('/')}/console/reviews/{quote(event.review_id, safe='')}"


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """What `webhook-signature` has to be; a secret that begins with `whsec_` is base64."""
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _escaped(text: str) -> str:
    """Names come from clients: none of them may mention a channel or make a link."""
    return text[:200].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
