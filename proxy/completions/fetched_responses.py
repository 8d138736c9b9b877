"""Responses that are fetched by id: made in the background, or requested once more.

Such a response is scored and decided on like the answer to its request, so that no policy can be
bypassed by a background response, nor by a held one under upstream's id. The request is kept in
memory (`conversations`); if it is not there, there is no confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import parse_qs

from calibrator import NotScorableError, Question
from proxy.completions.flow import complete
from proxy.completions.job import Job
from proxy.completions.services import Services
from proxy.exchange.exchange import Exchange
from proxy.exchange.request import CompletionRequest, tags_of
from proxy.formats import RESPONSES
from proxy.gate.key_hash import hash_key
from proxy.holds.held import fetch_held
from proxy.holds.named_ids import NO_IDS
from proxy.holds.openings import conversation_under
from proxy.http.wire.headers import DOMAIN, without
from proxy.http.wire.http import Reply, Request
from proxy.http.wire.json_splice import json_object
from proxy.http.wire.spelling import ANY_ID, id_at, names_in

_RESPONSE = ("v1", "responses", ANY_ID)
_CANCEL = (*_RESPONSE, "cancel")
_WITHOUT_ANSWER = ("DELETE", "HEAD", "OPTIONS")


def fetches(method: str, names: Sequence[str], *, is_decided: bool) -> bool:
    """Return whether a request gets a stored response; `names` are the segments of its path.

    If a policy decides, other methods than the usual one count too, because some servers ignore the
    method.
    """
    if fetched_id(names) is None:
        return False
    usual = "GET" if len(names) == len(_RESPONSE) else "POST"
    return method == usual or (is_decided and method not in _WITHOUT_ANSWER)


def fetched_id(names: Sequence[str]) -> str | None:
    """Return the response id in the segments of `/v1/responses/ID` or `../ID/cancel`, or None."""
    id = id_at(names, _RESPONSE) or id_at(names, _CANCEL)
    return None if id is None or id.casefold() in NO_IDS else id


@dataclass(slots=True)
class UnknownRequest(CompletionRequest):
    """A request that this process does not know: it went elsewhere, or too long ago."""

    def question(self) -> Question:
        raise NotScorableError("unknown_response", "what was asked is not known here")


async def fetch_response(services: Services, http: Request) -> Reply:
    """Answer a request for a stored or held response by its id, as a stream if it asks for one.

    One that the upstream stores is scored and decided on; a held one is returned from the review
    store. Raises ProxyError, as for a completion.
    """
    id, key_hash = fetched_id(names_in(http.path)) or "", hash_key(http)
    await services.conversations.look_for(id, key_hash)
    held_id = services.conversations.held_id(id, key_hash)
    if not held_id and not id.startswith(RESPONSES.held_prefix):
        held_id = await services.ownership.check_fetch(http, id, is_stored=False)
    if held_id or id.startswith(RESPONSES.held_prefix):
        attach = services.config.attach
        reply = await fetch_held(services.store, RESPONSES, held_id or id, http, attach)
        return _as_stream(reply) if _is_stream(http) else reply
    return await complete(services, http, partial(_parse_fetch, id))


async def _parse_fetch(id: str, services: Services, exchange: Exchange) -> Job:
    """Build the job for the request that a stored response answered, as far as it is known."""
    http = exchange.request
    stored_request, is_stream = services.conversations.get(id, hash_key(http)), _is_stream(http)
    if stored_request is None:
        request: CompletionRequest = _request_without_body(http, is_stream=is_stream)
        request.domain = services.domains.fact("", http.caller.team, request.domain)
        exchange.conversation = request.conversation = conversation_under(id)
        upstream = services.router.default()
        return Job(services, exchange, request, fetched_from=upstream, is_known=False)
    request = replace(stored_request.request(is_stream=is_stream), caller=http.caller)
    exchange.conversation = request.conversation
    return Job(services, exchange, request, fetched_from=stored_request.upstream)


def _is_stream(http: Request) -> bool:
    return parse_qs(http.query).get("stream") == ["true"]


def _as_stream(reply: Reply) -> Reply:
    """Convert a stored response to the stream that its client wants."""
    events = RESPONSES.events(json_object(reply.whole()) or {}, {})
    headers = [*without(reply.headers, b"content-type"), (b"content-type", b"text/event-stream")]
    return Reply(reply.status, headers, b"".join(events))


def _request_without_body(request: Request, *, is_stream: bool) -> UnknownRequest:
    domain, tags = request.header(DOMAIN), tags_of(request)
    return UnknownRequest(RESPONSES, b"", {}, "", is_stream, domain, tags, request.caller)
