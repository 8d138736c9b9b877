"""What a policy's action makes of an answer: the replies that are not upstream's own."""

from __future__ import annotations

import secrets
import time
from typing import Any

from policies import Clarify, Hold
from proxy.answer import Answer
from proxy.chat_request import ChatRequest
from proxy.errors import BlockedByPolicyError, HeldForReviewError
from proxy.headers import REVIEW_ID
from proxy.outcome import Outcome
from proxy.store import HeldReply

HELD_ID_PREFIX = "chatcmpl-held-"
PLACEHOLDER_TEXT = (
    "This reply is being held for review because its confidence is too low to deliver it. "
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


def wants_error(hold: Hold, answer: Answer, chat: ChatRequest) -> bool:
    """Prose in place of a tool call or of JSON would be read as one; such holds are errors."""
    if hold.reply is not None:
        return hold.reply == "error"
    return answer.has_tool_calls or chat.wants_schema


def held_error(review_id: str) -> HeldForReviewError:
    """422 and no retry: the official clients would otherwise pay for the same reply again."""
    error = HeldForReviewError(
        f"the reply is held for review; once released it is at GET /v1/chat/completions/{review_id}"
    )
    error.headers = [("x-should-retry", "false"), (REVIEW_ID, review_id)]
    return error


def blocked_error() -> BlockedByPolicyError:
    error = BlockedByPolicyError("a policy blocks this reply")
    error.headers = [("x-should-retry", "false")]
    return error


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


def clarification(answer: Answer, clarify: Clarify) -> dict[str, Any]:
    """The answer with a question to the user in place of its content and tool calls."""
    message = {"role": "assistant", "content": clarify.text, "refusal": None}
    choices = [
        {"index": c.index, "message": message, "logprobs": None, "finish_reason": "stop"}
        for c in answer.choices
    ]
    return {**answer.completion, "choices": choices}
