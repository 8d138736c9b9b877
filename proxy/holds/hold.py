"""Carries a hold out: stores the answer, binds it to its request, and may wait for a reviewer."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from policies import Hold, Policy
from proxy.errors import StoreError
from proxy.exchange.answer import Answer
from proxy.exchange.exchange import is_known
from proxy.exchange.outcome import Outcome
from proxy.exchange.request import CompletionRequest
from proxy.formats import RESPONSES, Format, Json
from proxy.formats.events.called import tool_calls
from proxy.formats.responses.responses_items import has_server_calls
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import Approvals, Earlier, may_go_out
from proxy.holds.conversations import Conversations
from proxy.holds.held import held_reply, new_held_id
from proxy.holds.waiting import Verdicts
from proxy.http.wire.headers import without
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import json_object
from proxy.store.reviews.held_replies import (
    EXPIRED,
    HELD,
    HELD_ALREADY,
    RELEASED,
    HeldReply,
    Store,
)

log = structlog.get_logger(__name__)

MOST_UNCHECKED = 10_000


class Holds:
    """The holds of a set of policies; `hold` and `wait_for_state` raise StoreError."""

    def __init__(
        self,
        policies: Sequence[Policy],
        store: Store,
        conversations: Conversations,
        verdicts: Verdicts,
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._verdicts = verdicts
        self._approvals = Approvals(policies, store)
        self.may_bind = self._approvals.can_hold
        self.polls = conversations.polls
        self._unchecked: set[str] = set()  # digests of requests whose earlier replies are unknown
        self.may_wait = any(hold.reply == "wait" for hold in self._approvals.holds)

    def request_digest(self, request: CompletionRequest, http: Request) -> str | None:
        """Return the SHA-256 (hex) of a request and its query, which binds a held reply's calls.

        None where `Approvals.request_digest` gives none, as for a request without tools, and for a
        request without credentials, since an approval belongs to a client.
        """
        if not is_known(http):  # an approval belongs to a known client
            return None
        return self._approvals.request_digest(request, http.query)

    async def earlier(
        self, format: Format, request_digest: str, request: Request, calls: str | None = None
    ) -> Earlier | None:
        """Return the reply that was held for the same request before, or None.

        With `calls`, only a reply with exactly these calls is found. Where the store cannot be
        read, None is returned and the failure is logged: the request is then judged like any other,
        so that no call goes out unseen, and looked up again before its reply is held.
        """
        try:
            return await self._approvals.find(format, request_digest, hash_key(request), calls)
        except StoreError as error:
            log.warning("earlier_replies_unknown", reason=error.message)
            if len(self._unchecked) < MOST_UNCHECKED:
                self._unchecked.add(request_digest)
            return None

    async def hold(
        self,
        answer: Answer,
        request: CompletionRequest,
        outcome: Outcome,
        hold: Hold,
        http: Request,
        request_digest: str | None,
    ) -> HeldReply:
        """Store an answer for a reviewer, bind its calls to the request, and return the record.

        It is bound only with a `request_digest` and calls of tools. Raises StoreError, also if an
        earlier reply to the same request is held.
        """
        id, key_hash = new_held_id(request.format), hash_key(http)
        await self._look_again(request_digest, key_hash)
        held = held_reply(answer, request, outcome, hold, id=id, key_hash=key_hash)
        if request_digest is not None and answer.has_tool_calls and outcome.decision is not None:
            held = self._approvals.bind_reply(
                held, outcome.decision, request.format, request_digest
            )
        requested_at = time.time() - (time.perf_counter() - http.started)
        await self._store.hold(held, http.caller, requested_at)
        if request.format is RESPONSES:
            self._conversations.note_held(answer.completion.get("id"), key_hash, id)
        return held

    async def use_approvals(
        self, answer: Answer, outcome: Outcome, request: Request
    ) -> Sequence[str]:
        """Return the standing approvals that cover every call of an answer, and count each use.

        Returns their ids; none where a choice has no call or a call is not covered. Raises
        StoreError.
        """
        rule = None if outcome.decision is None else self._approvals.rule_digest(outcome.decision)
        calls = [tool_calls(choice.message) for choice in answer.choices]
        is_covered = all(calls) and not has_server_calls(answer.completion)
        if rule is None or not is_covered or not is_known(request):
            return ()
        pairs = [(call.name, call.arguments) for each in calls for call in each]
        return await self._store.use_standing(hash_key(request), rule, pairs) or ()

    async def _look_again(self, request_digest: str | None, key_hash: str) -> None:
        """Refuse to hold a second reply to a request whose earlier replies were unknown.

        One request has one held reply, even if the store was away for a moment; the client's next
        request gets that one. Raises StoreError.
        """
        if request_digest is None or request_digest not in self._unchecked:
            return
        if await self._approvals.is_held(request_digest, key_hash):
            raise StoreError(HELD_ALREADY)
        self._unchecked.discard(request_digest)

    async def revised_completion(self, held: HeldReply, answer: Answer) -> Json | None:
        """Replace a released reply by a reviewer's version of it.

        The bytes of a whole answer are replaced in place, and None is returned. For a stream,
        returns the new completion, from which the caller writes its events. Without such a version,
        changes nothing and returns None.
        """
        now = await self._store.get(held.id)
        if now is None or now.revised is None:
            return None
        completion = json_object(now.revised) or {}
        if answer.events is not None:
            return completion
        answer.completion, answer.body, answer.raw = completion, now.revised, now.revised
        answer.headers = without(answer.headers, b"content-encoding")
        return None

    async def wait_for_state(
        self, held: HeldReply, format: Format, hold: Hold
    ) -> tuple[str, HeldReply]:
        """Return the state of a held reply, and the reply as it is by then.

        Waits up to `hold.wait_s` seconds for a verdict if it is still held and `hold.reply` is
        `wait`; otherwise both are returned at once, unchecked. A reply that is released during the
        wait but may not go out counts as expired.
        """
        if held.current_state != HELD or hold.reply != "wait":
            return held.current_state, held
        state = await self._verdicts.wait(held, hold.wait_s)
        if state == RELEASED and not await may_go_out(self._store, format, held):
            return EXPIRED, held
        return state, await self._store.get(held.id) or held
