"""The calls that one completion makes where its policy asks models more than once.

Each is noted in the exchange, whatever becomes of it: whom it asked, how sure the reply was, what
was paid for. Nearly every completion makes one call, which is noted only when others follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog

from proxy.errors import ProxyError, UpstreamTimeoutError
from proxy.exchange.answer import Answer, Unread, unscorable_reason
from proxy.exchange.call import Call, Purpose
from proxy.exchange.exchange import Exchange
from proxy.exchange.request import NOTHING, CompletionRequest
from proxy.upstreams.router import Router
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.encoding import decode
from proxy.wire.headers import Headers, to_upstream, with_header, without
from proxy.wire.json_splice import dumps

log = structlog.get_logger(__name__)

IDEMPOTENCY: Final = (b"idempotency-key",)  # another model's answer is another one
OnHead = Callable[[UpstreamReply], object]


def _ignored(_: UpstreamReply) -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class Calls:
    """Makes the further calls of one completion; `read` and `score` are those of its first one."""

    router: Router
    exchange: Exchange
    asked: CompletionRequest
    read: Callable[[UpstreamReply], Awaitable[Answer | Unread]]
    score: Callable[[Answer, str], Awaitable[None]]
    has_request: bool = True  # which can be put to another model

    def kept(self, answer: Answer) -> Call:
        """The call that gave the answer; the completion's first one is noted now."""
        for call in self.exchange.calls:
            if call.is_kept:
                return call
        first = Call(self.asked.model)
        self.exchange.calls = (first, *self.exchange.calls)
        first.upstream, first.error = self.exchange.upstream, None
        first.answer, first.is_kept = answer, True
        return first

    def note_answer(self, answer: Answer) -> None:
        """Notes the completion's answer in its call, where that only began it (`fallbacks.py`)."""
        for call in self.exchange.calls:
            if call.is_kept and call.answer is None:
                call.answer = answer

    def keep(self, call: Call) -> None:
        """From now on this call's answer is the completion."""
        for other in self.exchange.calls:
            other.is_kept = other is call
        self.exchange.model, self.exchange.upstream = call.model, call.upstream

    def noted(self, model: str, purpose: Purpose = "answer") -> Call:
        """A call that is about to be made."""
        call = Call(model, purpose)
        self.exchange.calls = (*self.exchange.calls, call)
        return call

    async def ask(self, model: str, *, on_head: OnHead = _ignored) -> Call:
        """Puts the client's request to another model, or once more; nothing is raised."""
        if not self.has_request:
            return Call(model, error="no_request")
        call = self.noted(model)
        await self.put(call, left_out=IDEMPOTENCY, on_head=on_head)
        await call.aclose()
        return call

    async def put(
        self,
        call: Call,
        *,
        left_out: tuple[bytes, ...] = (),
        on_head: OnHead = _ignored,
        changes: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Makes a call with the client's bytes, but for the model's name; the answer is scored.

        `on_head` is told of a reply that may become an answer. One that is none stays open. A
        second opinion is not scored: only what it says counts.
        """
        request = partial(self.request_to, call.model, left_out=left_out, changes=changes)
        await self._make(call, request, on_head)
        if call.answer is not None and call.purpose == "answer":
            await self.score(call.answer, call.model)

    def request_to(
        self, model: str, *, left_out: tuple[bytes, ...] = (), changes: Mapping[str, Any] = NOTHING
    ) -> UpstreamRequest:
        """The client's request with another model's name; raises ProxyError for an odd body."""
        asked, request = self.asked, self.exchange.request
        if asked.is_stream:
            left_out = (*left_out, b"accept-encoding")  # what is in it is read, undecoded
        encoding = request.header(b"content-encoding")
        if encoding and (model != asked.model or changes):
            left_out = (*left_out, b"content-encoding")  # a member can only go into plain bytes
            asked = replace(asked, body=decode(asked.body, encoding))
        headers = without(to_upstream(request.headers), *left_out)
        body = asked.body_for(model, changes)
        return UpstreamRequest("POST", asked.format.path, headers, body, request.query, model)

    async def escalate_to(self, model: str) -> Call:
        """As `ask`; a model whose opinion was asked for has answered already."""
        for call in self.exchange.calls:
            is_opinion = call.purpose == "second_opinion" and call.model == model
            if is_opinion and call.answer is not None and not call.is_altered:
                call.purpose = "answer"
                await self.score(call.answer, model)
                return call
        return await self.ask(model)

    async def revise(self, model: str, answer: Answer, problems: str) -> Call:
        """Ask a model for another reply, after `answer` and what is wrong with it.

        Nothing is raised; the call has an error where a reply cannot be revised.
        """
        asked = self.asked
        changes = asked.format.revision(asked.payload, answer.completion, problems)
        if changes is None or not self.has_request:
            return Call(model, error="not_revisable")
        call = self.noted(model)
        await self.put(call, left_out=IDEMPOTENCY, changes=changes)
        await call.aclose()
        return call

    async def ask_opinion(self, call: Call) -> None:
        """Puts the same question to the call's model, so that nothing is left behind there; nothing
        is raised."""
        changes = self.asked.format.without_effects(self.asked.payload)
        if changes is None:
            self.note_failure(call, "has_effects")
            return
        call.is_altered = bool(changes)
        await self.put(call, left_out=IDEMPOTENCY, changes=changes)
        await call.aclose()

    async def write(
        self,
        model: str,
        instructions: str,
        text: str,
        timeout_s: float,
        purpose: Purpose = "clarification",
        beside: Mapping[str, Any] = NOTHING,
    ) -> Call:
        """Has a model write something about a text, in `timeout_s`; nothing is raised.

        `beside` are further members of the request.
        """
        call = self.noted(model, purpose)
        request = {**self.asked.format.text_request(model, instructions, text), **beside}
        left_out = (b"content-encoding", *IDEMPOTENCY)
        headers = without(to_upstream(self.exchange.request.headers), *left_out)
        headers = with_header(headers, b"content-type", b"application/json")
        try:
            async with asyncio.timeout(timeout_s):
                posted = partial(self._posted, headers, dumps(request), model)
                await self._make(call, posted, _ignored)
        except TimeoutError:
            self.note_failure(call, UpstreamTimeoutError.code)
        await call.aclose()
        return call

    async def _make(
        self, call: Call, request: Callable[[], UpstreamRequest], on_head: OnHead
    ) -> None:
        try:
            reply = await self.send(call, request())
            if reason := unscorable_reason(reply):
                call.reply = reply
                is_status = reason == "upstream_status"
                self.note_failure(call, f"upstream_status_{reply.status}" if is_status else reason)
                return
            on_head(reply)
            answer = await self.read(reply)
        except ProxyError as error:
            call.raised = error
            self.note_failure(call, error.machine_code)
            return
        if isinstance(answer, Unread):
            call.reply, call.unread = reply, answer
            self.note_failure(call, answer.reason)
        else:
            call.answer, call.error = answer, None

    def _posted(self, headers: Headers, body: bytes, model: str) -> UpstreamRequest:
        query = self.exchange.request.query
        return UpstreamRequest("POST", self.asked.format.path, headers, body, query, model)

    async def send(self, call: Call, request: UpstreamRequest) -> UpstreamReply:
        """Sends a call's request to where its model is; raises ProxyError where no reply begins."""
        call.upstream = self.router.name_or_default(call.model)
        with self.exchange.in_upstream:
            return await self.router.upstream(call.upstream).send(request)

    def note_failure(self, call: Call, error: str) -> None:
        """Notes why a call has no answer."""
        call.error = error
        log.warning(
            "call_failed",
            request_id=self.exchange.request_id,
            model=call.model,
            purpose=call.purpose,
            error=error,
        )
