"""The calls of a completion whose policy needs more than one.

Each is noted in the exchange, even if it fails: its model, the confidence of its reply, its price.
Nearly all completions make one call, which is noted only if others follow.
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
from proxy.http.wire.encoding import decode
from proxy.http.wire.headers import Headers, to_upstream, with_header, without
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.upstreams.router import Router

log = structlog.get_logger(__name__)

IDEMPOTENCY: Final = (b"idempotency-key",)  # left out, because another model answers differently
OnHead = Callable[[UpstreamReply], object]


def _ignore_head(_: UpstreamReply) -> None:
    """Ignore the head of a reply."""


@dataclass(slots=True)
class Calls:
    """The maker of a completion's further calls; `read` and `score` are those of its first call."""

    router: Router
    exchange: Exchange
    request: CompletionRequest
    read: Callable[[UpstreamReply], Awaitable[Answer | Unread]]
    score: Callable[[Answer, str], Awaitable[None]]
    has_request: bool = True  # whether there is a request for another model

    def chosen_call(self, answer: Answer) -> Call:
        """Return the call whose answer is the completion.

        If no call was noted as that, the first one is noted now, with this answer.
        """
        for call in self.exchange.calls:
            if call.is_kept:
                return call
        first = Call(self.request.model)
        self.exchange.calls = (first, *self.exchange.calls)
        first.upstream, first.error = self.exchange.upstream, None
        first.answer, first.is_kept = answer, True
        return first

    def note_answer(self, answer: Answer) -> None:
        """Set the completion's answer in its call, if that only began it (`fallbacks.py`)."""
        for call in self.exchange.calls:
            if call.is_kept and call.answer is None:
                call.answer = answer

    def keep(self, call: Call) -> None:
        """Make this call's answer the completion; the exchange gets its model and upstream."""
        for other in self.exchange.calls:
            other.is_kept = other is call
        self.exchange.model, self.exchange.upstream = call.model, call.upstream

    def add_call(self, model: str, purpose: Purpose = "answer") -> Call:
        """Create a call and note it in the exchange."""
        call = Call(model, purpose)
        self.exchange.calls = (*self.exchange.calls, call)
        return call

    async def ask(
        self, model: str, *, on_head: OnHead = _ignore_head, changes: Mapping[str, Any] = NOTHING
    ) -> Call:
        """Send the client's request to another model, or once more, and return the call.

        `changes` are members to replace in the request. Raises nothing.
        """
        if not self.has_request:
            return Call(model, error="no_request")
        call = self.add_call(model)
        await self.put(call, left_out=IDEMPOTENCY, on_head=on_head, changes=changes)
        await call.aclose()
        return call

    async def put(
        self,
        call: Call,
        *,
        left_out: tuple[bytes, ...] = (),
        on_head: OnHead = _ignore_head,
        changes: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Make a call with the client's request, for the call's model, and score the answer.

        `left_out` names headers to omit, `changes` are members to replace. `on_head` is called with
        a reply that may become an answer. A reply that is none stays open. A second opinion is not
        scored, because only its content counts. Raises nothing.
        """
        request = partial(self.request_to, call.model, left_out=left_out, changes=changes)
        await self._make(call, request, on_head)
        if call.answer is not None and call.purpose == "answer":
            await self.score(call.answer, call.model)

    def request_to(
        self, model: str, *, left_out: tuple[bytes, ...] = (), changes: Mapping[str, Any] = NOTHING
    ) -> UpstreamRequest:
        """Return the client's request with another model's name.

        Raises ProxyError for a body that cannot be changed.
        """
        request, http = self.request, self.exchange.request
        if request.is_stream:
            left_out = (*left_out, b"accept-encoding")  # the stream must be readable undecoded
        encoding = http.header(b"content-encoding")
        if encoding and (model != request.model or changes):
            left_out = (*left_out, b"content-encoding")  # only plain bytes can be changed
            request = replace(request, body=decode(request.body, encoding))
        headers = without(to_upstream(http.headers), *left_out)
        body = request.body_for(model, changes)
        return UpstreamRequest("POST", request.format.path, headers, body, http.query, model)

    async def escalate_to(self, model: str) -> Call:
        """Call a model as `ask` does; a second opinion that it gave is reused as its answer."""
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
        request = self.request
        changes = request.format.revision(request.payload, answer.completion, problems)
        if changes is None:
            return Call(model, error="not_revisable")
        return await self.ask(model, changes=changes)

    async def ask_opinion(self, call: Call) -> None:
        """Send the client's question to the call's model, so that nothing is stored or run there.

        Raises nothing; a request that cannot be sent without such effects is noted as a failure.
        """
        changes = self.request.format.without_effects(self.request.payload)
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
        extra_fields: Mapping[str, Any] = NOTHING,
    ) -> Call:
        """Send a model instructions and a text, and return the call with what it wrote.

        Raises nothing; a call without an answer within `timeout_s` seconds is noted as failed.
        `extra_fields` holds further members of the request.
        """
        call = self.add_call(model, purpose)
        payload = {**self.request.format.text_request(model, instructions, text), **extra_fields}
        left_out = (b"content-encoding", *IDEMPOTENCY)
        headers = without(to_upstream(self.exchange.request.headers), *left_out)
        headers = with_header(headers, b"content-type", b"application/json")
        try:
            async with asyncio.timeout(timeout_s):
                posted = partial(self._upstream_request, headers, dumps(payload), model)
                await self._make(call, posted, _ignore_head)
        except TimeoutError:
            self.note_failure(call, UpstreamTimeoutError.code)
        await call.aclose()
        return call

    async def _make(
        self, call: Call, request: Callable[[], UpstreamRequest], on_head: OnHead
    ) -> None:
        """Send a request, read the reply, and set the call's answer, or its error and reply.

        Raises nothing; `on_head` is called with a reply that may become an answer.
        """
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

    def _upstream_request(self, headers: Headers, body: bytes, model: str) -> UpstreamRequest:
        query = self.exchange.request.query
        return UpstreamRequest("POST", self.request.format.path, headers, body, query, model)

    async def send(self, call: Call, request: UpstreamRequest) -> UpstreamReply:
        """Send a call's request to its model's upstream; raises ProxyError if no reply begins."""
        call.upstream = self.router.name_or_default(call.model)
        with self.exchange.in_upstream:
            return await self.router.upstream(call.upstream).send(request)

    def note_failure(self, call: Call, error: str) -> None:
        """Note why a call has no answer, and log it."""
        call.error = error
        log.warning(
            "call_failed",
            request_id=self.exchange.request_id,
            model=call.model,
            purpose=call.purpose,
            error=error,
        )
