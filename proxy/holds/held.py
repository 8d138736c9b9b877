"""Held replies: their records, the placeholders sent meanwhile, and how they are fetched."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Any

from policies import Hold
from proxy.config.sections import AttachConfig
from proxy.errors import BlockedByPolicyError, NotFoundError
from proxy.exchange.answer import Answer
from proxy.exchange.outcome import DIGITS, Outcome, choice_member, findings_member, round_confidence
from proxy.exchange.request import CompletionRequest
from proxy.formats import FORMATS, MEMBER, RESPONSES, Choice, Format, Json
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import Earlier, may_go_out
from proxy.holds.conversations import Conversations, with_previous_response
from proxy.holds.kept_scores import HELD_BEFORE, kept_score, score_to_keep
from proxy.holds.mcp_approvals import approving_items
from proxy.http.wire import headers as names
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import Reply, Request
from proxy.http.wire.json_splice import add_member, dumps, json_object, replace_member
from proxy.scoring.scoring import Confidence, Status
from proxy.store.reviews.held_replies import BLOCKED, HELD, REJECTED, RELEASED, HeldReply, Store

PLACEHOLDER_TEXT = (
    "This answer is held for review by a colleague; it will be available once it is approved."
)


def new_held_id(format: Format) -> str:
    """Return a new id for a held reply: the format's `held_prefix` and 128 random bits."""
    return format.held_prefix + secrets.token_hex(16)


def held_format(id: str) -> Format | None:
    """Return the API format of a held reply's id by its prefix; None for any other id."""
    return next((f for f in FORMATS if id.startswith(f.held_prefix)), None)


def held_reply(
    answer: Answer,
    request: CompletionRequest,
    outcome: Outcome,
    hold: Hold,
    *,
    id: str,
    key_hash: str,
) -> HeldReply:
    """Return the record of a held answer, with what a reviewer needs to judge it."""
    now = time.time()
    return HeldReply(
        id=id,
        key_hash=key_hash,
        queue=hold.queue,
        model=request.model,
        policy=outcome.decision.label if outcome.decision else "",
        confidence=outcome.confidence,
        calibrator=outcome.calibrator,
        question=request.format.last_question(request.payload),
        reply=answer.stored_body(),
        created_at=now,
        expires_at=now + hold.expires_s,
        on_expiry=hold.on_expiry,
        approvals=hold.approvals if hold.approvals > 1 else None,
        escalate_at=None if hold.escalate_s is None else now + hold.escalate_s,
        escalate_to=hold.escalate_to,
        request_id=outcome.request_id,
        team=request.caller.team,
        path=request.format.path,
        request=request.body,
        findings=score_to_keep(outcome),
    )


def placeholder_for(answer: Answer, format: Format, id: str) -> Json:
    """Return the completion that says a reply is held, in the API's format, under the id `id`.

    It keeps the `usage` that upstream reported.
    """
    model = answer.model or "unknown"
    completion = _placeholder(format, id, int(time.time()), model)
    if "usage" in answer.completion:
        completion["usage"] = answer.completion["usage"]
    return completion


def _placeholder(format: Format, id: str, created: int, model: str) -> Json:
    return format.placeholder(PLACEHOLDER_TEXT, id=id, created=created, model=model)


async def fetch_held(
    store: Store, format: Format, id: str, request: Request, attach: AttachConfig
) -> Reply:
    """Return the reply of `GET` for a held reply: its placeholder, or the released reply.

    Raises NotFoundError for an unknown id, another key's reply, and one that was rejected, has
    expired, was handed out before or is no longer kept. Raises BlockedByPolicyError where nobody
    decided in time and the policy blocks then.
    """
    held = await store.get(id)
    if held is None or not hmac.compare_digest(held.key_hash, hash_key(request)):
        raise NotFoundError(f"there is no held reply {id!r}", code="held_reply_not_found")
    state, status = held.current_state, 200
    fields: Headers = [(b"content-type", b"application/json")]
    if state == HELD:
        body = dumps(_placeholder(format, id, int(held.created_at), held.model))
        if wants_async(request.headers):
            status, fields = 202, later_headers(format, id)
    elif state == BLOCKED:
        raise BlockedByPolicyError("nobody released this reply in time, and a policy blocks it")
    elif state == RELEASED and held.is_forgotten:
        raise NotFoundError(f"the held reply {id} is no longer kept", code="held_reply_forgotten")
    elif state != RELEASED:
        raise _gone_error(held)
    elif await may_go_out(store, format, held):
        body = replace_member(held.released_bytes, "id", id)  # the client knows it by our id
    else:
        raise NotFoundError(f"the held reply {id} was handed out", code="held_reply_taken")
    facts = _facts(held, "hold" if state == HELD else "deliver", format)
    body = add_member(body, MEMBER, facts) if attach.body else body
    return Reply(status, [*fields, *(_headers(facts) if attach.headers else [])], body)


def _gone_error(held: HeldReply) -> NotFoundError:
    """Return the 404 error for a reply that was rejected or has expired, with the review id.

    For a rejected one it also has the reviewer's note, if there is one.
    """
    state = held.current_state
    error = NotFoundError(f"the held reply {held.id} was {state}", code=f"held_reply_{state}")
    error.details["review_id"] = held.id
    if state == REJECTED and held.note:
        error.details["note"] = held.note
    return error


def wants_async(headers: Headers) -> bool:
    """Return whether a client sends `Prefer: respond-async`, to fetch the reply later.

    See RFC 7240.
    """
    preferred = b",".join(value for name, value in headers if name == b"prefer").lower()
    return any(each.split(b";")[0].strip() == b"respond-async" for each in preferred.split(b","))


def is_answered_later(state: str, hold: Hold, request: CompletionRequest, http: Request) -> bool:
    """Return whether a held reply is answered with a 202 and fetched later.

    True if the policy and the client want that, and the reply is still held (`state`).
    False for a stream.
    """
    is_later = state == HELD and hold.reply == "async" and not request.is_stream
    return is_later and wants_async(http.headers)


def postpone(answer: Answer, format: Format, id: str) -> None:
    """Change an answer in place to a 202 with a JSON body and the address of the held reply."""
    answer.status, answer.headers, answer.events = 202, later_headers(format, id), None


def later_headers(format: Format, id: str) -> Headers:
    """Return the header fields of a 202, with the address of the reply."""
    return [
        (b"content-type", b"application/json"),
        (b"location", f"/v1{format.fetch_path}/{id}".encode()),
        (b"preference-applied", b"respond-async"),
    ]


def answer_from(held: HeldReply, request: CompletionRequest) -> Answer:
    """Return a stored reply, as it was released, as the answer to a request.

    It is a stream where the request asks for one.
    """
    completion = json_object(held.released_bytes) or {}
    kind = b"text/event-stream; charset=utf-8" if request.is_stream else b"application/json"
    answer = Answer(
        200,
        [(b"content-type", kind)],
        completion,
        request.format.choices(completion),
        held.released_bytes,
        held.released_bytes,
        events=[] if request.is_stream else None,
    )
    answer.is_restarted = request.is_stream  # its events are written from the stored reply
    return answer


def outcome_from(earlier: Earlier, request_id: str, choices: Sequence[Choice]) -> Outcome:
    """Return the outcome of a reply that was held for an earlier request of the same content.

    Its score and decision are those of that time.
    """
    held = earlier.held
    score = kept_score(held.confidence, held.findings)
    outcome = Outcome(
        request_id,
        score.status,
        score.reason,
        held.confidence,
        "hold",
        earlier.decision,
        held.calibrator,
        held.id,
    )
    outcome.choices = _scored_before(held, choices)
    outcome.least, outcome.findings = score, score.findings
    return outcome


def _scored_before(
    held: HeldReply, choices: Sequence[Choice]
) -> list[tuple[Choice, Confidence, None]]:
    """Pair each choice with the confidence that was stored when it was held, and with None.

    Of several choices only the lowest confidence is stored, and not whose it is, so each has the
    status `skipped`.
    """
    confidence = Confidence(None, Status.SKIPPED, HELD_BEFORE)
    if len(choices) == 1:
        confidence = kept_score(held.confidence, held.findings)
    return [(choice, confidence, None) for choice in choices]


async def resume_request(
    conversations: Conversations, store: Store, request: CompletionRequest, key_hash: str
) -> CompletionRequest:
    """Return the request with the conversation it continues, and upstream's id of a released reply.

    Unchanged without `previous_response_id`, or if the conversation is not known. Other workers are
    asked about the response and its approvals. Raises StoreError, and NotFoundError as
    `released_id` does.
    """
    previous = request.payload.get("previous_response_id")
    if isinstance(previous, str) and previous.startswith(RESPONSES.held_prefix):
        upstream_id = await released_id(store, previous, key_hash)
        request = request if upstream_id is None else with_previous_response(request, upstream_id)
    await conversations.approvals.look_for(request.payload, key_hash)
    if isinstance(previous := request.payload.get("previous_response_id"), str):
        await conversations.look_for(previous, key_hash)
    return conversations.add_earlier_text(request, key_hash)


async def released_id(store: Store, id: str, key_hash: str) -> str | None:
    """Return upstream's id of the reply with our id `id` that was released to this key.

    None for an unknown id, another key's reply, one that is not released, or one without an id.
    Raises NotFoundError for a reply that a reviewer changed: upstream would continue its own words.
    """
    held = await store.get(id)
    if held is None or held.state != RELEASED or not hmac.compare_digest(held.key_hash, key_hash):
        return None
    if held.revised is not None:
        text = f"{id[:80]!r} was changed by a reviewer: send its text as input instead"
        raise NotFoundError(text, code="unknown_id")
    upstream_id = (json_object(held.reply) or {}).get("id")
    return upstream_id if isinstance(upstream_id, str) else None


def _facts(held: HeldReply, action: str, format: Format) -> dict[str, Any]:
    """Return the `pinocchio` object of a fetched held reply, with the id of its first request."""
    score = kept_score(held.confidence, held.findings)
    findings = score.findings
    completion = json_object(held.released_bytes) or {}
    choices = _scored_before(held, format.choices(completion))
    approvals = approving_items(completion) if action == "deliver" else []
    has_text = action == "deliver" and held.revised is None
    return {
        **({"request_id": held.request_id} if held.request_id else {}),
        "confidence": None if held.confidence is None else round_confidence(held.confidence),
        **({} if findings.support is None else {"support": round_confidence(findings.support)}),
        "status": score.status,
        **({"reason": score.reason} if score.reason else {}),
        **findings_member(findings, has_text=has_text),
        "action": action,
        "policy": held.policy,
        "calibrator": held.calibrator,
        "review_id": held.id,
        **({"approvals": approvals} if approvals else {}),
        "choices": [choice_member(*choice, has_text=has_text) for choice in choices],
    }


def _headers(facts: dict[str, Any]) -> Headers:
    """Return response headers with the facts of a held reply, without those of no value."""
    confidence, support = facts["confidence"], facts.get("support")
    values = {
        names.CONFIDENCE: None if confidence is None else f"{confidence:.{DIGITS}f}",
        names.SUPPORT: None if support is None else f"{support:.{DIGITS}f}",
        names.BASIS: ",".join(facts.get("basis", ())),
        names.STATUS: facts["status"],
        names.REASON: facts.get("reason"),
        names.ACTION: facts["action"],
        names.POLICY: facts["policy"],
        names.CALIBRATOR: facts["calibrator"],
        names.REVIEW_ID: facts["review_id"],
    }
    return [(name, value.encode("latin-1")) for name, value in values.items() if value]
