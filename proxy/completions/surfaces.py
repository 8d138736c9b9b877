"""The handlers of everything under `/v1/` that is not scored, but relayed and labelled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from proxy.config.sections import AttachConfig
from proxy.errors import UpstreamBrokenError
from proxy.exchange.exchange import Exchange
from proxy.gate.key_hash import hash_key
from proxy.holds.conversations import Conversations
from proxy.holds.held import fetch_held, held_format
from proxy.holds.named_ids import RequestTarget
from proxy.holds.ownership import Ownership
from proxy.http.wire import headers as names
from proxy.http.wire.headers import to_client, to_upstream, without
from proxy.http.wire.http import JSON, Reply, Request
from proxy.http.wire.json_splice import (
    TooManyValuesError,
    beginning_of,
    json_object,
    replace_member,
)
from proxy.http.wire.large_json import large_object
from proxy.http.wire.spelling import names_in, path_after_v1
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.scoring.scoring import Status
from proxy.store.record.writer import Records
from proxy.store.reviews.held_replies import Store
from proxy.upstreams.model_lists import list_models, local_model
from proxy.upstreams.router import Router

JSON_TYPE = "application/json"
_MAKING = (("batches",), ("fine_tuning", "jobs"))  # their jobs make files later


@dataclass(slots=True)
class Surfaces:
    """The handlers of all routes but the scored ones."""

    router: Router
    store: Store
    attach: AttachConfig
    records: Records | None
    conversations: Conversations
    ownership: Ownership
    max_body: int

    async def relay(self, request: Request) -> Reply:
        """Relay any other request under `/v1/` unchanged to the upstream of its model.

        The reply is not scored. Lists keep only what the client may see, and ids that the reply
        names are noted as the client's. Raises ProxyError for a forbidden id, and where there is no
        reply.
        """
        exchange = Exchange(request, self.records)
        with exchange:
            place = await self.ownership.enter(request)
            is_list = request.method == "GET" and place.collection and place.id is None
            is_read = is_list or _names_ids(request.method, place)
            reply = await self.send(
                exchange, await self.upstream_of(request), is_read=bool(is_read)
            )
            if not is_read or not _is_json(reply):
                return self.label_unscored(exchange, reply)
            body = await self._read(exchange, reply)
            if is_list:
                return await self._filter_list(exchange, reply, place, body)
            self.ownership.note_made(request, json_object(body) or {})
        return self.label_unscored(exchange, reply, body)

    async def _read(self, exchange: Exchange, reply: UpstreamReply) -> bytes:
        """Read the body of a reply, at most `max_body` bytes, and close the reply.

        Raises UpstreamError where it is longer or breaks off.
        """
        try:
            with exchange.in_upstream:
                return await reply.read(self.max_body)
        finally:
            await reply.aclose()

    async def _filter_list(
        self, exchange: Exchange, reply: UpstreamReply, place: RequestTarget, body: bytes
    ) -> Reply:
        """Return a list with only what its client may see.

        Raises UpstreamBrokenError for a list that cannot be read.
        """
        listing = json_object(body) if reply.header(b"content-encoding") is None else None
        if listing is None or not isinstance(models := listing.get("data"), list):
            raise UpstreamBrokenError("upstream's list cannot be read, to show what is this key's")
        kept = await self.ownership.readable(exchange.request, place, models)
        if len(kept) == len(models):
            return self.label_unscored(exchange, reply, body)
        reply.headers = without(reply.headers, b"content-length")
        return self.label_unscored(exchange, reply, replace_member(body, "data", kept))

    def label_unscored(
        self, exchange: Exchange, reply: UpstreamReply, body: bytes | None = None
    ) -> Reply:
        """Return upstream's reply with a label that says it was not scored; record the exchange.

        `body` is the reply's body if it has been read already.
        """
        outcome = exchange.finish(
            exchange.unscored_outcome(Status.NOT_SUPPORTED, "surface"), reply.status
        )
        label = [
            (names.STATUS, outcome.status.encode()),
            (names.REASON, b"surface"),
            (names.REQUEST_ID, exchange.request_id.encode()),
        ]
        if not self.attach.headers:
            label = []
        headers = [*to_client(reply.headers), *label]
        if body is not None:
            return Reply(reply.status, headers, body)
        return Reply(reply.status, headers, reply.chunks, on_close=reply.aclose)

    async def send(self, exchange: Exchange, name: str, *, is_read: bool = False) -> UpstreamReply:
        """Send the client's request unchanged to an upstream, and return its reply.

        If the proxy will read the reply (`is_read`), no compression is requested.
        """
        request = exchange.request
        exchange.upstream = name
        path, headers = path_after_v1(request.path), to_upstream(request.headers)
        if is_read:
            headers = without(headers, b"accept-encoding")
        upstream_request = UpstreamRequest(
            request.method, path, headers, request.body, request.query
        )
        with exchange.in_upstream:
            return await self.router.upstream(name).send(upstream_request)

    async def upstream_of(self, request: Request) -> str:
        """Return the name of the upstream for a request that is relayed.

        It is that of the response named in the path, of the model in a JSON body, or of the default
        route.
        """
        part = request.path.removeprefix("/v1/responses/").partition("/")[0]
        if part and request.path.startswith("/v1/responses/"):
            await self.conversations.look_for(part, hash_key(request))
        if (response := self.conversations.get(part, hash_key(request))) is not None:
            return response.upstream
        is_json = (request.header(b"content-type") or JSON_TYPE).lower().startswith(JSON_TYPE)
        model = await _model_of(request.body) if is_json and request.body else None
        if model and isinstance(model, str):
            return self.router.name_for(model)
        return self.router.default()

    async def models(self, request: Request) -> Reply:
        """Answer `GET /v1/models`, see model_lists.py."""
        return await list_models(self.router, request, self._relay_to)

    async def _relay_to(self, request: Request, name: str) -> Reply:
        """Send a request to the upstream called `name`, and return its reply as not scored."""
        exchange = Exchange(request, self.records)
        with exchange:
            reply = await self.send(exchange, name)
        return self.label_unscored(exchange, reply)

    async def model(self, request: Request) -> Reply:
        """Answer `GET /v1/models/{id}`: a local model here, any other from upstream."""
        id = unquote(request.path.removeprefix("/v1/models/"))
        if id in self.router.local_models:
            return Reply(200, JSON, json.dumps(local_model(id)).encode())
        return await self.relay(request)

    async def completion(self, request: Request) -> Reply:
        """Answer `GET /v1/chat/completions/{id}`: a held reply, or else upstream's reply."""
        id = names_in(request.path)[-1]
        format = held_format(id)
        if format is None:
            review_id = await self.ownership.check_fetch(request, id, is_stored=True)
            if review_id is None or (format := held_format(review_id)) is None:
                return await self.relay(request)
            id = review_id
        return await fetch_held(self.store, format, id, request, self.attach)


def _names_ids(method: str, place: RequestTarget) -> bool:
    """Return whether a reply may hold ids of objects that upstream made, to be noted as owned."""
    if method in ("POST", "PUT"):
        return place.collection is not None
    return method == "GET" and place.collection in _MAKING and not place.rest


def _is_json(reply: UpstreamReply) -> bool:
    kind = (reply.header(b"content-type") or JSON_TYPE).lower()
    return 200 <= reply.status < 300 and kind.startswith(JSON_TYPE)


async def _model_of(body: bytes) -> Any:
    """Return the `model` of a JSON body as it is, or None.

    In a body with too many values, only the beginning is searched.
    """
    try:
        payload = await large_object(body)
    except TooManyValuesError:
        payload = beginning_of(body)
    return payload.get("model") if payload else None
