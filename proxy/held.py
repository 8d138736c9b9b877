"""Held replies: how one is recorded, what stands for it meanwhile, and how it is fetched."""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Any

from policies import Hold
from proxy import headers as names
from proxy.answer import Answer
from proxy.asgi import Reply
from proxy.chat_request import ChatRequest
from proxy.completion import MEMBER
from proxy.config import AttachConfig
from proxy.errors import NotFoundError
from proxy.json_splice import add_member, dumps, replace_member
from proxy.outcome import DIGITS, Outcome, shown
from proxy.store import EXPIRED, HELD, RELEASED, HeldReply, Store

HELD_ID_PREFIX = "chatcmpl-held-"
PLACEHOLDER_TEXT = (
    "This reply is being held for review. "
    "It can be fetched under its id ({id}) once a reviewer has released it."
)


def new_held_id() -> str:
    """Unguessable: 128 random bits."""
    return HELD_ID_PREFIX + secrets.token_hex(16)


def held_reply(
    answer: Answer, chat: ChatRequest, outcome: Outcome, hold: Hold, *, id: str, key_hash: str
) -> HeldReply:
    """The record of a held answer, with what a reviewer needs to judge it."""
    now = time.time()
    return HeldReply(
        id=id,
        key_hash=key_hash,
        queue=hold.queue,
        model=chat.model,
        policy=outcome.decision.label if outcome.decision else "",
        confidence=outcome.confidence,
        calibrator=outcome.calibrator,
        question=_question_for_reviewer(chat),
        reply=answer.stored(),
        created_at=now,
        expires_at=now + hold.expires_s,
    )


def _question_for_reviewer(chat: ChatRequest) -> str:
    messages = chat.payload.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def placeholder(id: str, created: int, model: str) -> dict[str, Any]:
    """A valid completion that says that the reply is held."""
    message = {"role": "assistant", "content": PLACEHOLDER_TEXT.format(id=id), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "content_filter"}
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
    }


def placeholder_for(answer: Answer, id: str) -> dict[str, Any]:
    """The placeholder that stands for an answer; what upstream charged stays visible in `usage`."""
    completion = placeholder(id, int(time.time()), answer.model or "unknown")
    if "usage" in answer.completion:
        completion["usage"] = answer.completion["usage"]
    return completion


def is_held_id(id: str) -> bool:
    return id.startswith(HELD_ID_PREFIX)


async def fetch_held(store: Store, id: str, key_hash: str, attach: AttachConfig) -> Reply:
    """What the client that asked gets under a held reply's id: placeholder, reply or 404.

    Raises NotFoundError for an unknown id, a foreign key, and what was rejected or has expired.
    """
    held = await store.get(id)
    if held is None or not hmac.compare_digest(held.key_hash, key_hash):
        raise NotFoundError(f"there is no held reply {id!r}", code="held_reply_not_found")
    is_late = held.state == HELD and held.expires_at <= time.time()
    state = EXPIRED if is_late else held.state
    if state == HELD:
        body = dumps(placeholder(id, int(held.created_at), held.model)).encode()
    elif state == RELEASED:
        body = replace_member(held.reply, "id", id)  # the id by which it was asked for
    else:
        raise NotFoundError(f"the held reply {id} was {state}", code=f"held_reply_{state}")
    facts = _facts(held, "hold" if state == HELD else "deliver")
    body = add_member(body, MEMBER, facts) if attach.body else body
    fields = [("content-type", "application/json")]
    return Reply(200, [*fields, *(_headers(facts) if attach.headers else [])], body)


def _facts(held: HeldReply, action: str) -> dict[str, Any]:
    """The `pinocchio` object of a fetched reply."""
    return {
        "confidence": None if held.confidence is None else shown(held.confidence),
        "action": action,
        "policy": held.policy,
        "calibrator": held.calibrator,
        "review_id": held.id,
    }


def _headers(facts: dict[str, Any]) -> list[tuple[str, str]]:
    confidence = facts["confidence"]
    values = {
        names.CONFIDENCE: None if confidence is None else f"{confidence:.{DIGITS}f}",
        names.ACTION: facts["action"],
        names.POLICY: facts["policy"],
        names.CALIBRATOR: facts["calibrator"],
        names.REVIEW_ID: facts["review_id"],
    }
    return [(name, value) for name, value in values.items() if value]
