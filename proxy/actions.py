"""What a policy's action makes of an answer: the replies that are not upstream's own."""

from __future__ import annotations

from policies import Action, Block, Clarify, Deliver, Hold
from proxy.answer import Answer
from proxy.completion_request import CompletionRequest
from proxy.errors import BlockedByPolicyError, HeldForReviewError, ProxyError, RejectedError
from proxy.formats import Format, Json
from proxy.headers import REVIEW_ID
from proxy.held import placeholder_for
from proxy.store.held_replies import BLOCKED, HELD, REJECTED

BLOCKED_TEXT = "A policy blocks this reply."
REJECTED_TEXT = "A reviewer rejected this reply."
EXPIRED_TEXT = "This reply was held for review, and nobody released it in time."


def wants_error(hold: Hold, answer: Answer, asked: CompletionRequest) -> bool:
    """Prose in place of a tool call or of JSON would be read as one; such holds are errors."""
    reply = hold.otherwise if hold.reply in ("wait", "async") else hold.reply
    if reply is not None:
        return reply == "error"
    return answer.has_tool_calls or asked.format.wants_schema(asked.payload)


def withheld_error(
    standing: str, hold: Hold, answer: Answer, asked: CompletionRequest, review_id: str
) -> ProxyError | None:
    """For a held reply that does not go out, by what it has come to (`HeldReply.standing`).

    None where a placeholder stands for it.
    """
    if standing == HELD:
        is_error = wants_error(hold, answer, asked)
        return held_error(review_id, asked.format) if is_error else None
    if standing == BLOCKED:
        return blocked_error()
    text = REJECTED_TEXT if standing == REJECTED else EXPIRED_TEXT
    error = RejectedError(text, code=f"held_reply_{standing}")
    error.headers.append((REVIEW_ID, review_id.encode()))
    return error


def withheld(standing: str, answer: Answer, format: Format, review_id: str) -> Json:
    """What stands for it, also where an error can no longer be told."""
    if standing == HELD:
        return placeholder_for(answer, format, review_id)
    texts = {BLOCKED: BLOCKED_TEXT, REJECTED: REJECTED_TEXT}
    text = texts.get(standing, EXPIRED_TEXT)
    return format.restated(answer.completion, text, "content_filter")


def held_error(review_id: str, format: Format) -> HeldForReviewError:
    """Says where the reply will be; official clients neither retry nor pay for it again."""
    error = HeldForReviewError(
        "the reply is held for review; once released it is at "
        f"GET /v1{format.fetch_path}/{review_id}"
    )
    error.headers.append((REVIEW_ID, review_id.encode()))
    return error


def blocked_error(block: Block | None = None) -> BlockedByPolicyError:
    message = block.message if block else None
    return BlockedByPolicyError(message or "a policy blocks this reply")


def unreadable_error(reason: str) -> BlockedByPolicyError:
    """For a reply that an enforced policy would have to decide on and that cannot be read."""
    return BlockedByPolicyError(
        f"upstream's reply is no completion that the policy could decide on ({reason})",
        code="unreadable_reply",
    )


def changed(answer: Answer, asked: CompletionRequest, action: Action | None) -> Json | None:
    """The answer with a question to the user in its place, or with a notice behind its text.

    None to leave it: there is no text behind which a notice could stand, or it would break the
    JSON that the client wants to parse, or be taken for a part of what an agent says.
    """
    if isinstance(action, Clarify):
        return asked.format.restated(answer.completion, action.text, "stop")
    if isinstance(action, Deliver) and action.notice is not None:
        is_prose = not answer.has_tool_calls and not asked.format.wants_schema(asked.payload)
        return asked.format.noticed(answer.completion, action.notice) if is_prose else None
    return None


def blocked(answer: Answer, format: Format, block: Block) -> Json:
    """What stands for a blocked answer where the status could not tell it any more."""
    return format.restated(answer.completion, block.message or BLOCKED_TEXT, "content_filter")
