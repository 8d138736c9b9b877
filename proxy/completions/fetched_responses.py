"""A response fetched by its id: one made in the background, or one that somebody wants once more.

It is scored and decided on like the answer to its request would have been, so that a background
response cannot be read past the policy, nor a held one under upstream's id. What was asked is
remembered in this process (`conversations`); for what is not, the confidence is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

from calibrator import NotScorableError, Question
from policies import Asking, StreamMode
from proxy.completions.calls import Calls
from proxy.completions.flow import Completions, Way
from proxy.exchange.answer import Answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.openings import conversation_under
from proxy.exchange.outcome import Outcome
from proxy.exchange.request import CompletionRequest, tags_of
from proxy.formats import RESPONSES, Json
from proxy.gate.key_hash import hash_key
from proxy.holds.held import fetch_held
from proxy.upstreams.upstream import UpstreamRequest
from proxy.wire.headers import DOMAIN, Headers, without
from proxy.wire.http import Reply, Request
from proxy.wire.json_splice import json_object
from proxy.wire.spelling import ANY_ID, id_at, names_in, path_after_v1


def fetched_id(method: str, names: Sequence[str]) -> str | None:
    """The id of the response that a request of this kind answers with, if it is of one.

    `names` are those in its path (`spelling`).
    """
    at = {"GET": ("v1", "responses", ANY_ID), "POST": ("v1", "responses", ANY_ID, "cancel")}
    return id_at(names, at[method]) if method in at else None


@dataclass(slots=True)
class UnknownRequest(CompletionRequest):
    """What this process does not remember was asked elsewhere, or too long ago."""

    def question(self) -> Question:
        raise NotScorableError("unknown_response", "what was asked is not known here")


async def fetch_response(parts: Completions, request: Request) -> Reply:
    """Raises ProxyError as the request itself would have."""
    id, key_hash = fetched_id(request.method, names_in(request.path)) or "", hash_key(request)
    is_stream = parse_qs(request.query).get("stream") == ["true"]
    held_id = parts.conversations.held_id(id, key_hash)
    if not held_id and not id.startswith(RESPONSES.held_prefix):
        held_id = await parts.ownership.fetched(request, id, is_stored=False)
    if held_id or id.startswith(RESPONSES.held_prefix):
        attach = parts.config.attach
        reply = await fetch_held(parts.store, RESPONSES, held_id or id, request, attach)
        return _streamed(reply) if is_stream else reply
    exchange = Exchange(request, parts.records)
    with exchange:
        parts = parts.asked_for(request)
        remembered = parts.conversations.get(id, key_hash)
        if remembered is not None:
            asked = replace(remembered.request(is_stream=is_stream), caller=request.caller)
            exchange.conversation = asked.conversation
            return await _Fetched(parts, exchange, asked, upstream=remembered.upstream).go()
        unknown = _unknown(request, is_stream=is_stream)
        unknown.domain = parts.domains.fact("", request.caller.team, unknown.domain)
        exchange.conversation = unknown.conversation = conversation_under(id)
        return await _Fetched(parts, exchange, unknown, upstream=parts.router.default()).go()


def _streamed(reply: Reply) -> Reply:
    """A stored response as the stream that its client wants."""
    events = RESPONSES.events(json_object(reply.whole()) or {}, {})
    headers = [*without(reply.headers, b"content-type"), (b"content-type", b"text/event-stream")]
    return Reply(reply.status, headers, b"".join(events))


def _unknown(request: Request, *, is_stream: bool) -> UnknownRequest:
    domain, tags = request.header(DOMAIN), tags_of(request)
    return UnknownRequest(RESPONSES, b"", {}, "", is_stream, domain, tags, request.caller)


@dataclass(slots=True)
class _Fetched(Way):
    """The way of an answer that the client's request names."""

    upstream: str = ""

    @property
    def is_known(self) -> bool:
        return not isinstance(self.asked, UnknownRequest)

    def _stream_mode(self) -> StreamMode:
        """Without the model's name nobody can say which rules might apply."""
        if self.is_known or not self.parts.governing.is_enforced:
            return Way._stream_mode(self)
        return StreamMode("buffer")

    def _upstream_of(self, model: str) -> str:
        return self.upstream

    def _request(self, model: str, headers: Headers) -> UpstreamRequest:
        request = self.exchange.request
        path = path_after_v1(request.path)
        return UpstreamRequest(request.method, path, headers, request.body, request.query)

    async def _judge(self, answer: Answer) -> Outcome:
        if not self.is_known:
            self.exchange.model = answer.model
            self.asked = replace(self.asked, model=answer.model or "")
        return await Way._judge(self, answer)

    def _remember(self, completion: Json) -> None:
        if self.is_known:
            Way._remember(self, completion)

    def _models(self, asking: Asking) -> tuple[str, ...]:
        return (self.asked.model,)

    def _calls(self) -> Calls:
        """There is no request here that another model could be asked with."""
        return replace(Way._calls(self), has_request=False)
