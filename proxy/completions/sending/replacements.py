"""The replies that replace an answer when a policy's action requires it."""

from __future__ import annotations

import re

from policies import Action, Block, Clarify, Deliver, Hold
from proxy.errors import BlockedByPolicyError, HeldForReviewError, ProxyError, RejectedError
from proxy.exchange.answer import Answer
from proxy.exchange.request import CompletionRequest
from proxy.formats import Ending, Format, Json
from proxy.formats.events.called import tool_calls, without_calls
from proxy.formats.responses.responses_items import calls_made
from proxy.holds.held import placeholder_for
from proxy.http.wire.headers import REVIEW_ID
from proxy.store.reviews.held_replies import BLOCKED, HELD, REJECTED, HeldReply

RETRY_AFTER_S = 5  # seconds until a client should ask for a held call again, which costs nothing
MOST_OF_A_NOTE = 500  # characters of a note in a sentence; the error's `note` has all of it
BLOCKED_TEXT = "A policy blocks this reply."
REJECTED_TEXT = "A reviewer rejected this reply"
NEXT_STEP = "Do not send the same request again: tell the model why, and let it take another step."
EXPIRED_TEXT = "This reply was held for review, and nobody released it in time."
_PLAIN_NAME = re.compile(r"[\w.:/-]{1,64}")  # other names could hold sentences for the reader
_AROUND = frozenset(
    {
        *("id", "object", "type", "role", "model", "choices", "content", "output", "output_text"),
        *("usage", "system_fingerprint", "service_tier", "stop_reason", "stop_sequence", "status"),
        *("error", "incomplete_details", "background", "billing", "conversation", "instructions"),
        *("metadata", "previous_response_id", "prompt", "prompt_cache_key", "reasoning", "text"),
        *("prompt_cache_retention", "safety_identifier", "tool_choice", "tools", "truncation"),
        *("user", "stop_details", "container"),
    }
)  # members of the formats; the parts of the answer in them are replaced
REFUSED_CALLS = (
    "Not done: {calls}. A reviewer has to approve it first (review {id}). "
    "Do not try it again meanwhile; go on with what does not need it, or say that it waits."
)
REFUSED_TEXT = "This reply is held for review ({id}). A reviewer has to approve it first."


def reply_to(hold: Hold, answer: Answer, asked: CompletionRequest) -> str:
    """Return the kind of reply that a client gets in place of a held one.

    Prose in place of a tool call or of JSON would be parsed as such; if the policy does not choose,
    such holds are errors.
    """
    reply = hold.otherwise if hold.reply in ("wait", "async") else hold.reply
    if reply is not None:
        return reply
    is_read_by_program = answer.has_tool_calls or asked.format.wants_schema(asked.payload)
    return "error" if is_read_by_program else "placeholder"


def withheld_error(
    standing: str, hold: Hold, answer: Answer, asked: CompletionRequest, held: HeldReply
) -> ProxyError | None:
    """Return the error for a held reply in its present state (`HeldReply.current_state`).

    Returns None if a placeholder or a refusal replaces it.
    """
    if standing == BLOCKED:
        return _about(held, blocked_error())
    reply = reply_to(hold, answer, asked)
    if reply == "refusal":
        return None
    if standing == HELD:
        return held_error(held, asked.format) if reply == "error" else None
    if standing == REJECTED:
        return rejected_error(held)
    return _about(held, RejectedError(EXPIRED_TEXT, code=f"held_reply_{standing}"))


def replace_held(
    standing: str, hold: Hold, answer: Answer, asked: CompletionRequest, held: HeldReply
) -> Json:
    """Return the completion that replaces a held reply, used also if an error comes too late."""
    is_refusal = reply_to(hold, answer, asked) == "refusal"
    if standing == HELD and not is_refusal:
        return placeholder_for(answer, asked.format, held.id)
    texts = {BLOCKED: BLOCKED_TEXT, HELD: refused_text(answer, held)}
    texts[REJECTED] = _rejection(held) if is_refusal else rejected_text(held)
    text = texts.get(standing, EXPIRED_TEXT)
    ending: Ending = "stop" if is_refusal and standing != BLOCKED else "content_filter"
    return asked.format.replace_text(_around(answer), text, ending)


def _around(answer: Answer) -> Json:
    """Return the members of an answer that its replacement keeps.

    These are the known ones, and the others that hold no text.
    """
    return {
        key: value
        for key, value in answer.completion.items()
        if key in _AROUND or value is None or isinstance(value, bool | int | float)
    }


def refused_text(answer: Answer, held: HeldReply) -> str:
    """Return the text that an agent's model reads instead of its calls, without their arguments."""
    made = calls_made(answer.completion)  # these are done already
    messages = (without_calls(choice.message, made) for choice in answer.choices)
    called = [call.name for message in messages for call in tool_calls(message)]
    shown = (name if _PLAIN_NAME.fullmatch(name) else "a call" for name in called)
    calls = ", ".join(dict.fromkeys(shown))
    return (REFUSED_CALLS if calls else REFUSED_TEXT).format(calls=calls, id=held.id)


def held_error(held: HeldReply, format: Format) -> ProxyError:
    """Return the error that says where a held reply will be.

    Official clients neither retry it nor pay for it again. If the hold is bound to the request, the
    same request gets the reply later, so the error also says when to ask.
    """
    place = f"GET /v1{format.fetch_path}/{held.id}"
    if not held.is_bound:
        text = f"the reply is held for review; once released it is at {place}"
        return _about(held, HeldForReviewError(text))
    text = f"the reply is held for review; send the same request again later, or ask {place}"
    error = _about(held, HeldForReviewError(text))
    error.headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    error.details["retry_after_s"] = RETRY_AFTER_S
    return error


def rejected_error(held: HeldReply) -> ProxyError:
    """Return the error that says why a reviewer rejected the reply, and how an agent goes on."""
    return _about(held, RejectedError(_rejection(held)))


def _rejection(held: HeldReply) -> str:
    """Return the rejection, with the next step for an agent if the hold is bound to the request."""
    return f"{rejected_text(held)} {NEXT_STEP}" if held.is_bound else rejected_text(held)


def rejected_text(held: HeldReply) -> str:
    """Return the sentence about a rejection, with the reviewer's note if there is one."""
    if not held.note:
        return f"{REJECTED_TEXT}."
    note = held.note if len(held.note) <= MOST_OF_A_NOTE else f"{held.note[:MOST_OF_A_NOTE]}…"
    return f"{REJECTED_TEXT}: {note.rstrip('.')}."


def _about(held: HeldReply, error: ProxyError) -> ProxyError:
    """Add a held reply's review id, and its note if it was rejected, to the error and return it."""
    error.headers.append((REVIEW_ID, held.id.encode()))
    error.details["review_id"] = held.id
    if held.note and error.machine_code == RejectedError.code:
        error.details["note"] = held.note
    return error


def blocked_error(block: Block | None = None) -> BlockedByPolicyError:
    message = block.message if block else None
    return BlockedByPolicyError(message or "a policy blocks this reply")


def replace_by_action(
    answer: Answer, asked: CompletionRequest, action: Action | None
) -> Json | None:
    """Return the answer replaced by a question to the user, or with a notice after its text.

    Returns None to leave it unchanged: it has no text that a notice could follow, or a notice would
    break the client's JSON or be taken for a part of an agent's message.
    """
    if isinstance(action, Clarify):
        return asked.format.replace_text(_around(answer), action.text, "stop")
    if isinstance(action, Deliver) and action.notice is not None:
        is_prose = not answer.has_tool_calls and not asked.format.wants_schema(asked.payload)
        return asked.format.add_notice(answer.completion, action.notice) if is_prose else None
    return None


def replace_blocked(answer: Answer, format: Format, block: Block) -> Json:
    """Return the replacement for a blocked answer whose status has already been sent."""
    return format.replace_text(_around(answer), block.message or BLOCKED_TEXT, "content_filter")
