"""Tool calls that an agent's own framework has stopped, held at the desk for a person.

    POST /pinocchio/v1/calls        {"call": {"id", "name", "arguments"}, "messages": [..], ..}
    GET  /pinocchio/v1/calls/{id}   the decision; `?wait_s=30` waits for it

No policy is involved: the framework asked (`pinocchio.langchain` and the others), and keeps its
run. The desk shows such a call as any other that is held. One key's call in one conversation has
one review, however often the client asks about it. Servers number calls from the beginning in each
conversation, so an id alone identifies none. An approval is for one run. Where the client does not
name its run, the same call needs a new approval an hour after the last one was first handed out.
The confidence is the recorded one of the reply that made the call, never one that the client sends.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import structlog

from policies import MAX_APPROVALS
from proxy.errors import BadRequestError, NotFoundError, StoreError
from proxy.exchange.exchange import is_known, new_request_id
from proxy.formats import CHAT, Json
from proxy.formats.events.called import tool_calls
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import as_written
from proxy.holds.kept_scores import threshold_to_keep
from proxy.holds.waiting import Verdicts
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import dumps, json_object
from proxy.observe.metrics import Metrics
from proxy.store.record.reader import OwnRecord, RecordedExchange
from proxy.store.reviews.approvals import approved_by
from proxy.store.reviews.held_replies import (
    HELD,
    REJECTED,
    RELEASED,
    HeldReply,
    Store,
    state_name,
)

log = structlog.get_logger(__name__)

MOST_BYTES: Final = 16 * 2**20  # of a body
LONGEST_NAME: Final = 256  # characters, of ids too
LONGEST_S: Final = 30 * 86_400.0  # the longest time for which a call may wait
EXPIRES_S: Final = 7 * 86_400.0
LONGEST_WAIT_S: Final = 60.0
RECORDED_WITHIN_S: Final = 2.0  # the longest wait for a record, written after its reply
AGAIN_S: Final = 3_600.0  # how long a client that names no run can read an approval again
MOST_ROUNDS: Final = 1_000  # approvals of one call that are kept at the same time
_MEMBERS: Final = (
    *("call", "messages", "tools", "model", "request_id", "run"),
    *("queue", "expires_s", "escalate", "approvals", "below"),
)
_OF_ESCALATION: Final = frozenset({"after_s", "to"})
_OF_CALL: Final = frozenset({"id", "name", "arguments"})


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """An agent's call as the client sends it; `request_id` is that of the reply that makes it."""

    id: str
    name: str
    arguments: str  # JSON
    messages: list[Json]
    tools: list[Json]
    model: str
    queue: str
    expires_s: float
    request_id: str | None
    escalate_s: float | None = None
    escalate_to: str | None = None
    approvals: int = 1  # the number of different people who have to approve it
    run: str | None = None  # the client's name of the agent's run
    below: float | None = None  # the agent stops calls below this confidence

    def request(self) -> bytes:
        """Return the question as a chat completion's request, which the desk can show."""
        tools = {"tools": self.tools} if self.tools else {}
        return dumps({"model": self.model, "messages": self.messages, **tools})

    def reply(self) -> bytes:
        """Return a completion that makes this call and no other."""
        call = {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        envelope = {"id": self.request_id or self.id, "object": "chat.completion", "created": 0}
        return dumps({**envelope, "model": self.model, "choices": [choice]})


class InterruptedCalls:
    """Holds calls of agents and returns their decisions; `record` is None where none is kept.

    Methods raise ProxyError.
    """

    def __init__(
        self, store: Store, verdicts: Verdicts, record: OwnRecord | None, metrics: Metrics
    ) -> None:
        self._store, self._verdicts = store, verdicts
        self._record, self._metrics = record, metrics

    async def hold(self, body: Any, request: Request) -> Json:
        """Hold a call for review, unless it is held already, and return its state (`state_of`).

        Raises BadRequestError for an invalid body, a request without a key, or more approvals than
        the held call needs; StoreError.
        """
        if not is_known(request):
            text = "a held call belongs to a key: send one, as for a completion"
            raise BadRequestError(text, code="no_key")
        call, key_hash = read_call(body), hash_key(request)
        held = await self._find_or_hold(call, key_hash, request)
        if call.approvals > held.quorum:  # fewer approvals than requested must not count
            text = f"the call {call.id[:100]!r} is held until {held.quorum} approve, not more"
            raise BadRequestError(text, param="approvals", code="call_differs")
        return state_of(held)

    async def verdict(self, id: str, wait_s: float, request: Request) -> Json:
        """Return the state of a call, after at most `wait_s` seconds of waiting for a decision.

        Waits only while the call is undecided, and never longer than `LONGEST_WAIT_S`. An approved
        call is marked as handed out. Raises as `_find_own` for an id that is not this key's.
        """
        held = await self._find_own(id, request)
        if held.current_state == HELD and wait_s > 0:
            await self._verdicts.wait(held, min(wait_s, LONGEST_WAIT_S))
            held = await self._find_own(id, request)
        if held.current_state == RELEASED:
            await self._store.take(held.id, AGAIN_S)  # whoever knows the id may read it again
        return state_of(held)

    async def _find_or_hold(
        self, call: InterruptedCall, key_hash: str, request: Request
    ) -> HeldReply:
        """Return the held call of this content, held now if it is new.

        A call whose last approval was used by an earlier run is held again, under another id.
        Raises BadRequestError after `MOST_ROUNDS` approvals.
        """
        digest = await asyncio.to_thread(digest_of, call)
        for before in range(MOST_ROUNDS):
            id = review_id_of(key_hash, digest, before)
            held = await self._store.get(id)
            if held is None:
                held = await self._hold(call, id, key_hash, request)
            is_approved = held.current_state == RELEASED
            if not is_approved or await self._store.take(held.id, AGAIN_S) or call.run is not None:
                return held
        text = f"the call {call.id[:100]!r} was approved {MOST_ROUNDS} times; send a 'run'"
        raise BadRequestError(text, param="run", code="call_differs")

    async def _find_own(self, id: str, request: Request) -> HeldReply:
        """Return the held call with this id if the request's key holds it.

        Raises NotFoundError otherwise, and StoreError.
        """
        held = await self._store.get(id)
        if held is None or not hmac.compare_digest(held.key_hash, hash_key(request)):
            raise NotFoundError(f"there is no held call {id[:100]!r}", code="held_call_not_found")
        return held

    async def _hold(
        self, call: InterruptedCall, id: str, key_hash: str, request: Request
    ) -> HeldReply:
        """Store a call for a reviewer, log and count it, and return it as stored.

        Its confidence comes from the record if the call names a request of the same key. If the
        same call is held already, returns that one. Raises StoreError.
        """
        recorded = None
        if self._record is not None and call.request_id is not None:
            recorded = await asyncio.to_thread(
                self._record.find, call.request_id, key_hash, RECORDED_WITHIN_S
            )
        held = held_call(call, id, key_hash, recorded, request.caller.team)
        try:
            await self._store.hold(held, request.caller)
        except StoreError:  # another request may have held the same call at the same time
            if (other := await self._store.get(id)) is None:
                raise
            return other
        log.info("call_held", review_id=id, has_number=held.confidence is not None)
        self._metrics.note_interrupted(has_number=held.confidence is not None)
        return held


def digest_of(call: InterruptedCall) -> str:
    """Return the SHA-256 of a call: id, tool, arguments, conversation and run.

    Numbers count to their last digit, and booleans differ from numbers, because tools treat them
    differently. Raises BadRequestError for a conversation that is nested too deeply.
    """
    try:
        facts = [call.id, call.name, as_written(call.arguments), call.messages, call.run]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    except RecursionError as error:
        raise _type_error("messages", "less deeply nested") from error
    return hashlib.sha256(text.encode()).hexdigest()


def review_id_of(key_hash: str, digest: str, before: int) -> str:
    """Return the review id of a call, the same for the same key and call in every process.

    `before` is the number of its earlier runs that were approved.
    """
    named = hashlib.sha256(dumps(["call", key_hash, digest, before])).hexdigest()
    return CHAT.held_prefix + named[:32]


def held_call(
    call: InterruptedCall,
    id: str,
    key_hash: str,
    recorded: RecordedExchange | None,
    team: str | None,
) -> HeldReply:
    """Return the record of a held call for the reviewer's queue; nothing is stored.

    `recorded` is the exchange whose reply made the call, ignored if it made no such call. A
    reviewer's label counts for that whole reply only if this was its only call; else the record
    gets a new request id.
    """
    now, request = time.time(), call.request()
    names = [[tool.name for tool in facts.tools] for facts in recorded.facts] if recorded else []
    if not any(call.name in made for made in names):
        recorded = None
    is_alone = names == [[call.name]]
    return HeldReply(
        id=id,
        key_hash=key_hash,
        queue=call.queue,
        model=(recorded.model if recorded else None) or call.model,
        policy="",
        confidence=recorded.confidence if recorded else None,
        calibrator=recorded.calibrator if recorded else None,
        question=CHAT.last_question(json_object(request) or {}),
        reply=call.reply(),
        created_at=now,
        expires_at=now + call.expires_s,
        escalate_at=None if call.escalate_s is None else now + call.escalate_s,
        escalate_to=call.escalate_to,
        approvals=call.approvals if call.approvals > 1 else None,
        request_id=recorded.request_id if recorded and is_alone else new_request_id(),
        team=team,
        path=CHAT.path,
        request=request,
        findings=None if call.below is None else threshold_to_keep(call.below),
    )


def state_of(held: HeldReply) -> Json:
    """Return the state of a held call for the agent.

    Once `state` is decided, there is a `verdict` with the call to run (`name`, `arguments`), or the
    reason against it (`message`).
    """
    state = held.current_state
    facts: Json = {"review_id": held.id, "state": state_name(state)}
    facts |= {"confidence": held.confidence, "expires_at": held.expires_at}
    facts["approvals"] = {"needed": held.quorum, "given": len(approved_by(held.approved))}
    if state == RELEASED and not held.is_forgotten:
        call = _call_in(held.released_bytes)
        verdict = "approve" if held.revised is None else "edit"
        return {**facts, "verdict": verdict, **call, "message": held.note}
    message = held.note if state == REJECTED else None
    return {**facts, "verdict": None if state == HELD else "reject", "message": message}


def _call_in(reply: bytes) -> Json:
    """Return name and arguments of the one tool call that a stored chat completion has."""
    [choice] = CHAT.choices(json_object(reply) or {})
    [call] = tool_calls(choice.message)
    return {"name": call.name, "arguments": json.loads(call.arguments)}


# --- the client's body ----------------------------------------------------------------------------


def read_call(body: Any) -> InterruptedCall:
    """Read a body strictly; raises BadRequestError, which names the member."""
    if not isinstance(body, dict):
        raise BadRequestError("the body must be an object with 'call' and 'messages'")
    _check_members(body, _MEMBERS, "")
    call = body.get("call")
    if not isinstance(call, dict):
        raise _type_error("call", "an object with id, name and arguments")
    _check_members(call, _OF_CALL, "call.")
    request_id = body.get("request_id")
    queue = _name(body, "queue") if body.get("queue") is not None else "review"
    expires_s = _seconds(body.get("expires_s", EXPIRES_S))
    return InterruptedCall(
        id=_name(call, "id", "call."),
        name=_name(call, "name", "call."),
        arguments=_arguments(call.get("arguments")),
        messages=_objects(body, "messages"),
        tools=_objects(body, "tools") if "tools" in body else [],
        model=_name(body, "model") if body.get("model") is not None else "",
        queue=queue,
        expires_s=expires_s,
        request_id=None if request_id is None else _name(body, "request_id"),
        approvals=_approvals(body.get("approvals", 1)),
        run=_name(body, "run") if body.get("run") is not None else None,
        below=_threshold(body.get("below")),
        **_escalation(body.get("escalate"), queue, expires_s),
    )


def _escalation(value: Any, queue: str, expires_s: float) -> dict[str, Any]:
    """Return `escalate_s` and `escalate_to` of `InterruptedCall`, from the member `escalate`.

    They are the seconds after which an undecided call goes to another queue, and that queue. Empty
    for None. Raises BadRequestError, also if the seconds reach `expires_s` or the queue is `queue`.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _type_error("escalate", "an object with after_s and to")
    _check_members(value, _OF_ESCALATION, "escalate.")
    after_s = _seconds(value.get("after_s"), "escalate.after_s")
    to = _name(value, "to", "escalate.")
    if after_s >= expires_s:
        raise _type_error("escalate.after_s", "less than expires_s")
    if to == queue:
        raise _type_error("escalate.to", "another queue")
    return {"escalate_s": after_s, "escalate_to": to}


def _check_members(members: Json, known: Collection[str], where: str) -> None:
    """Raise BadRequestError for a member that is not known; `where` precedes its name there."""
    if unknown := sorted(set(members) - set(known)):
        text = f"unknown field {where + unknown[0]!r} (known: {', '.join(sorted(known))})"
        raise BadRequestError(text, param=where + unknown[0])


def _name(owner: Json, member: str, where: str = "") -> str:
    """Return a member that is a short, not empty text; raises BadRequestError otherwise."""
    value = owner.get(member)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise _type_error(where + member, f"text of at most {LONGEST_NAME} characters")
    return value


def _objects(owner: Json, member: str) -> list[Json]:
    """Return a member that is a list of objects; raises BadRequestError otherwise."""
    value = owner.get(member)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _type_error(member, "a list of objects")
    return value


def _arguments(value: Any) -> str:
    """Return the arguments, an object or its JSON text, as JSON text; a text is unchanged.

    Raises BadRequestError for anything else, also for a text that is no object.
    """
    try:
        arguments = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise _type_error("call.arguments", "a JSON object, or its text")
    return value if isinstance(value, str) else dumps(arguments).decode()


def _seconds(value: Any, member: str = "expires_s") -> float:
    """Return a positive number of seconds, at most `LONGEST_S`.

    Raises BadRequestError for any other value.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= LONGEST_S:
        raise _type_error(member, f"a number of seconds, at most {LONGEST_S:.0f}")
    return float(value)


def _approvals(value: Any) -> int:
    """Return the number of reviewers that must approve, from 1 to `MAX_APPROVALS`.

    Raises BadRequestError for any other value.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not 1 <= value <= MAX_APPROVALS:
        raise _type_error("approvals", f"a number of people from 1 to {MAX_APPROVALS}")
    return int(value)


def _threshold(value: Any) -> float | None:
    """Return a confidence from 0 to 1, or None for None; raises BadRequestError otherwise."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise _type_error("below", "a confidence from 0 to 1")
    return float(value)


def _type_error(member: str, wanted: str) -> BadRequestError:
    return BadRequestError(f"{member!r} must be {wanted}", param=member, code="invalid_type")
