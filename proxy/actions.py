"""What a policy's action makes of an answer: the replies that are not upstream's own."""

from __future__ import annotations

from policies import Action, Clarify, Hold
from proxy.answer import Answer
from proxy.completion_request import CompletionRequest
from proxy.errors import BlockedByPolicyError, HeldForReviewError
from proxy.formats import Format, Json
from proxy.headers import REVIEW_ID

BLOCKED_TEXT = "A policy blocks this reply."


def wants_error(hold: Hold, answer: Answer, asked: CompletionRequest) -> bool:
    """Prose in place of a tool call or of JSON would be read as one; such holds are errors."""
    if hold.reply is not None:
        return hold.reply == "error"
    return answer.has_tool_calls or asked.format.wants_schema(asked.payload)


def held_error(review_id: str, format: Format) -> HeldForReviewError:
    """Says where the reply will be; official clients neither retry nor pay for it again."""
    error = HeldForReviewError(
        "the reply is held for review; once released it is at "
        f"GET /v1{format.fetch_path}/{review_id}"
    )
    error.headers.append((REVIEW_ID, review_id.encode()))
    return error


def blocked_error() -> BlockedByPolicyError:
    return BlockedByPolicyError("a policy blocks this reply")


def unreadable_error(reason: str) -> BlockedByPolicyError:
    """For a reply that an enforced policy would have to decide on and that cannot be read."""
    return BlockedByPolicyError(
        f"upstream's reply is no completion that the policy could decide on ({reason})",
        code="unreadable_reply",
    )


def changed(answer: Answer, format: Format, action: Action | None) -> Json | None:
    """The answer with a question to the user in place of its content, or None to leave it."""
    if isinstance(action, Clarify):
        return format.restated(answer.completion, action.text, "stop")
    return None


def blocked(answer: Answer, format: Format) -> Json:
    """What stands for a blocked answer where the status could not tell it any more."""
    return format.restated(answer.completion, BLOCKED_TEXT, "content_filter")
