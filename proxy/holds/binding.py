"""Binds held tool calls to the request that they answer, and to nothing else.

A client that repeats the request gets the reply that was held for it: the same error or placeholder
while it waits, and the stored bytes once a reviewer has released them, without a second call to
upstream. A released reply is handed out once; for `AGAIN_S` seconds it can be read again, by a
client that crashed before it could act on it.

A hold is bound to the key that asked, the digest of the request, the rule that held the reply, the
calls and the expiry. If one of these differs, nothing is found and the request is handled as usual.
Only requests that offer tools are looked up, and only where a policy can hold: others cost nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import structlog

from calibrator import messages_without_asides, own_instructions
from policies import Action, Decision, Escalate, Hold, Policy
from proxy.exchange.request import CompletionRequest
from proxy.formats import Format, Json
from proxy.formats.events.called import tool_calls
from proxy.http.wire.json_splice import json_object
from proxy.store.reviews.held_replies import EXPIRED, HELD, REJECTED, RELEASED, HeldReply, Store

log = structlog.get_logger(__name__)

AGAIN_S = 60.0
_CALLING = ("tool_use", "server_tool_use", "mcp_tool_use")  # types of blocks
_RESULTS = ("tool_result", "mcp_tool_result")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")  # types of items
_GROWING = ("conversation", "container")  # kept by upstream, which adds to them
_REPEATED = "\0repeated"
_STREAMING = ("stream", "stream_options")
_ORDER = (RELEASED, HELD, REJECTED)  # which reply of a request is used first; blocked is last


@dataclass(frozen=True, slots=True)
class Earlier:
    """A reply that was held for the same request before, and the decision that holds it."""

    held: HeldReply
    decision: Decision


class Approvals:
    """Binds the replies that a set of policies holds, and finds them again."""

    def __init__(self, policies: Sequence[Policy], store: Store) -> None:
        self._store = store
        self._policies = sorted(policy.name for policy in policies)
        self._is_alike_streamed = not any("stream" in policy.looks_at for policy in policies)
        self._digests: dict[tuple[str, str], str] = {}  # by the names of policy and rule
        self._decisions: dict[str, Decision] = {}  # by the digests of their rules
        for policy in policies:
            others = [each.digest for each in policies if each is not policy]
            for decision in _holding_decisions(policy):
                digest = _digest_of_rule(policy, decision, others)
                self._digests[policy.name, decision.rule] = digest
                self._decisions[digest] = decision

    @property
    def can_hold(self) -> bool:
        """Whether any of the policies can hold a reply."""
        return bool(self._decisions)

    @property
    def holds(self) -> list[Hold]:
        """All hold actions of the policies."""
        return [each.action for each in self._decisions.values() if isinstance(each.action, Hold)]

    def request_digest(self, request: CompletionRequest, query: str) -> str | None:
        """Return the SHA-256 (hex) of a request and its query, which binds a held reply's calls.

        None without tools in the request, where no policy can hold, or for a conversation or
        container that upstream keeps.
        """
        payload = request.payload
        if not self._decisions or not (payload.get("tools") or payload.get("functions")):
            return None
        extras = [query, *self._policies]
        return digest_of_request(request, extras, is_alike_streamed=self._is_alike_streamed)

    def bind_reply(
        self, held: HeldReply, decision: Decision, format: Format, request_digest: str
    ) -> HeldReply:
        """Return a held reply with the digests of its request, of its rule and of its calls."""
        return replace(
            held,
            request_digest=request_digest,
            rule_digest=self.rule_digest(decision),
            calls=digest_of_calls(format, held.reply),
        )

    def rule_digest(self, decision: Decision) -> str | None:
        """Return the SHA-256 of the rule that decided and of all above it.

        None for a decision of another policy, and for one that cannot hold.
        """
        return self._digests.get((decision.policy, decision.rule))

    async def find(
        self, format: Format, request_digest: str, key_hash: str, calls: str | None = None
    ) -> Earlier | None:
        """Return the earlier held reply for a request with the decision that held it, or None.

        Only one that is in force, and whose rule is still configured, is found. A released one
        comes before one that waits; it then counts as handed out, and is passed over if it may not
        go out (again). With `calls` (as of `digest_of_calls`), only a reply with exactly these is
        found. Raises StoreError.
        """
        if not self._store.may_have(request_digest):
            return None
        found = [
            Earlier(held, self._decisions[held.rule_digest])
            for held in await self._store.of_request(request_digest, key_hash)
            if held.rule_digest in self._decisions and _is_in_force(held)
            if calls is None or held.calls == calls
        ]
        for earlier in sorted(found, key=lambda each: _rank(each.held.current_state)):
            if earlier.held.current_state != RELEASED or await may_go_out(
                self._store, format, earlier.held
            ):
                return earlier
        return None

    async def is_held(self, request_digest: str, key_hash: str) -> bool:
        """Return whether a reply to this request waits or may still be handed out.

        Raises StoreError.
        """
        oldest = time.time() - AGAIN_S
        return any(
            held.rule_digest in self._decisions
            and _is_in_force(held)
            and (held.taken_at is None or held.taken_at > oldest)
            for held in await self._store.of_request(request_digest, key_hash)
        )


async def may_go_out(store: Store, format: Format, held: HeldReply) -> bool:
    """Return whether a released reply may be handed out now, and mark a bound one as handed out.

    A reply is bound if its approval counts for one request and its calls alone. An unbound reply
    always may go out. A bound one goes out once (and again within `AGAIN_S` seconds), and not if
    its calls differ from the approved ones, which is logged. Raises StoreError.
    """
    if not held.is_bound:
        return True
    if digest_of_calls(format, held.reply) != held.calls:
        log.error("held_reply_changed", review_id=held.id)
        return False
    return await store.take(held.id, AGAIN_S)


def _is_in_force(held: HeldReply) -> bool:
    """Return whether a held reply still counts for a new request of the same content.

    False if it has expired or its text was deleted. A rejection counts until the time at which the
    hold would have expired.
    """
    if held.current_state == REJECTED:
        return held.expires_at > time.time()
    return held.current_state != EXPIRED and not held.is_forgotten


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


# --- digests of requests and rules ------------------------------------------------------------


def digest_of_request(
    request: CompletionRequest, extras: Sequence[str] = (), *, is_alike_streamed: bool = False
) -> str | None:
    """Return the SHA-256 of a request's content, or None where it cannot be determined.

    The body's layout makes no difference.

    All of the body counts, since a reply to another request was not approved, and so do `domain`,
    `tags` and `extras`. What coding agents add beside the user's words does not count, because it
    changes with every request: reminders in the user's messages, system messages after the user's
    first one, and the line that names the client. The ids of calls and of their results are
    replaced by their order, because an agent that restarts gets other ids for the same calls. With
    `is_alike_streamed`, streamed and whole answers have the same digest.

    There is no digest for a conversation or container that upstream keeps: next time more may be in
    it, unseen here.
    """
    try:
        payload = _exactly(request.body)
        if isinstance(payload, dict):
            if any(payload.get(name) is not None for name in _GROWING):
                return None
            if is_alike_streamed:
                payload = {name: each for name, each in payload.items() if name not in _STREAMING}
            payload = _without_asides(payload)
            _rename_ids([*_list_member(payload, "messages"), *_list_member(payload, "input")])
        facts = [request.format.name, request.domain, sorted(request.tags), list(extras)]
        return hashlib.sha256(_canonical([*facts, payload])).hexdigest()
    except RecursionError:
        return None


def _without_asides(payload: Json) -> Json:
    """Return a copy of a request without what a coding agent adds to each, such as reminders.

    Instructions keep the application's own text, the user's messages their own words, and later
    system messages are left out.
    """
    changed = dict(payload)
    for name in ("system", "instructions"):
        if name in payload:
            changed[name] = own_instructions(payload[name])
    for name in ("messages", "input"):
        if isinstance(listed := payload.get(name), list):
            changed[name] = [*_without_later_instructions(messages_without_asides(listed))]
    return changed


def _without_later_instructions(turns: Sequence[Any]) -> Iterator[Any]:
    """Yield the turns, without system and developer messages that follow a user's message."""
    has_begun = False
    for turn in turns:
        role = turn.get("role") if isinstance(turn, dict) else None
        has_begun = has_begun or role == "user"
        if not (has_begun and role in ("system", "developer")):
            yield turn


def _exactly(body: bytes) -> Any:
    """Return the exact value of a body, or the SHA-256 of its bytes where it is not JSON.

    Numbers keep every digit, and a repeated member is kept each time, because readers differ in
    which one they use.
    """
    try:
        return as_written(body.decode("utf-8-sig"))
    except ValueError:
        return hashlib.sha256(body).hexdigest()


def as_written(text: str) -> Any:
    """Parse JSON exactly: numbers keep every digit, and repeated members are kept each time.

    Raises ValueError for text that is not JSON, and RecursionError.
    """
    return json.loads(
        text,
        parse_float=_number,
        parse_constant=_number,
        object_pairs_hook=_with_repeated,
    )


def _with_repeated(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    return found if len(found) == len(members) else {**found, _REPEATED: members}


def _number(number: str) -> Json:
    return {"number": number}


def _rename_ids(turns: list[Any]) -> None:
    """Replace the ids of calls, and of the results that answer them, by their order; in place.

    Other ids stay, since they name what upstream looks up; so do ids of calls that are not there.
    """
    names: dict[str, str] = {}
    for call in (call for turn in turns for call in _calls_of(turn)):
        for key in ("id", "call_id"):
            if isinstance(id := call.get(key), str):
                call[key] = names.setdefault(id, f"id-{len(names)}")
    for result in (result for turn in turns for result in _results_of(turn)):
        for key in ("tool_call_id", "tool_use_id", "call_id"):
            if isinstance(id := result.get(key), str) and id in names:
                result[key] = names[id]


def _calls_of(turn: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of tool calls in one message or item of a conversation, of any API."""
    if isinstance(turn, dict):
        is_bare = "type" not in turn and "call_id" in turn and "id" not in turn
        if is_bare or turn.get("type") in ("function_call", "custom_tool_call"):
            yield turn
        yield from (call for call in _list_member(turn, "tool_calls") if isinstance(call, dict))
        yield from (block for block in _blocks_of(turn) if block.get("type") in _CALLING)


def _results_of(turn: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of tool results in one message or item of a conversation, of any API."""
    if isinstance(turn, dict):
        if turn.get("role") == "tool" or turn.get("type") in _OUTPUTS:
            yield turn
        yield from (block for block in _blocks_of(turn) if block.get("type") in _RESULTS)


def _blocks_of(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in _list_member(turn, "content") if isinstance(block, dict)]


def _list_member(value: Any, name: str) -> list[Any]:
    listed = value.get(name) if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else []


def digest_of_calls(format: Format, reply: bytes) -> str:
    """Return a reply's tool calls as JSON text, with hashed arguments.

    It is a list of `{"tool": name, "arguments_sha256": ..}` over all choices; `[]` without calls.
    """
    completion = json_object(reply) or {}
    calls = [
        {"tool": call.name, "arguments_sha256": _digest_of_arguments(call.arguments)}
        for choice in format.choices(completion)
        for call in tool_calls(choice.message)
    ]
    return json.dumps(calls)


def _digest_of_arguments(arguments: str) -> str:
    """Return the SHA-256 of a call's arguments; their text is hashed where they are not JSON."""
    try:
        canonical = _canonical(as_written(arguments))
    except (ValueError, RecursionError):
        canonical = arguments.encode(errors="backslashreplace")
    return hashlib.sha256(canonical).hexdigest()


def _canonical(value: Any) -> bytes:
    """Serialize a JSON value to the same bytes every time; raises RecursionError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a large integer, half a surrogate pair, or deep nesting
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _holding_decisions(policy: Policy) -> Iterator[Decision]:
    """Yield the decisions of an enforced policy that hold a reply; none for another policy.

    One for each rule outside shadow mode whose action is a hold, then `on_score_error` and
    `default` if they hold. Shadow rules are only logged.
    """
    if not policy.is_enforced:
        return
    for rule in policy.rules:
        if not rule.is_shadow and (hold := _hold_in(rule.then)):
            yield Decision(hold, policy.name, policy.digest, rule.name, "rule", policy.mode)
    if policy.needs_score and (hold := _hold_in(policy.on_score_error)):
        name = "on_score_error"
        yield Decision(hold, policy.name, policy.digest, name, "score_error", policy.mode)
    if hold := _hold_in(policy.default):
        yield Decision(hold, policy.name, policy.digest, "default", "default", policy.mode)


def _hold_in(action: Action | None) -> Hold | None:
    """Return the hold that an action is, or that an escalation ends in; None for other actions."""
    last = action.otherwise if isinstance(action, Escalate) else action
    return last if isinstance(last, Hold) else None


def _digest_of_rule(policy: Policy, decision: Decision, others: Sequence[str]) -> str:
    """Return a SHA-256 that changes with a rule and with everything that is decided before it.

    It covers the rule's conditions, those of the rules above it, its action, and `others`, the
    digests of the other policies. For the default action and the one for a missing score, it covers
    the whole policy.
    """
    conditions = {rule.name: rule.digest for rule in policy.rules}
    above = conditions.get(decision.rule, policy.digest)
    facts = [policy.name, decision.rule, above, repr(decision.action), *others]
    if (hold := _hold_in(decision.action)) is not None and hold.approvals > 1:
        facts.append(f"approvals: {hold.approvals}")
    if hold is not None and hold.escalate_s is not None:
        facts.append(f"escalate: {hold.escalate_s} {hold.escalate_to}")
    return hashlib.sha256(_canonical(facts)).hexdigest()
