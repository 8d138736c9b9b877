"""What a policy's action makes of an answer: the replies that are not upstream's own."""

from __future__ import annotations

from typing import Any

from policies import Clarify, Hold
from proxy.answer import Answer
from proxy.chat_request import ChatRequest
from proxy.errors import BlockedByPolicyError, HeldForReviewError
from proxy.headers import REVIEW_ID


def wants_error(hold: Hold, answer: Answer, chat: ChatRequest) -> bool:
    """Prose in place of a tool call or of JSON would be read as one; such holds are errors."""
    if hold.reply is not None:
        return hold.reply == "error"
    return answer.has_tool_calls or chat.wants_schema


def held_error(review_id: str) -> HeldForReviewError:
    """Says where the reply will be; official clients neither retry nor pay for it again."""
    error = HeldForReviewError(
        f"the reply is held for review; once released it is at GET /v1/chat/completions/{review_id}"
    )
    error.headers.append((REVIEW_ID, review_id))
    return error


def blocked_error() -> BlockedByPolicyError:
    return BlockedByPolicyError("a policy blocks this reply")


def unreadable_error(reason: str) -> BlockedByPolicyError:
    """For a reply that an enforced policy would have to decide on and that cannot be read."""
    return BlockedByPolicyError(
        f"upstream's reply is no completion that the policy could decide on ({reason})",
        code="unreadable_reply",
    )


def clarification(answer: Answer, clarify: Clarify) -> dict[str, Any]:
    """The answer with a question to the user in place of its content and tool calls."""
    message = {"role": "assistant", "content": clarify.text, "refusal": None}
    choices = [
        {"index": c.index, "message": message, "logprobs": None, "finish_reason": "stop"}
        for c in answer.choices
    ]
    return {**answer.completion, "choices": choices}
