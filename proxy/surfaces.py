"""Everything under `/v1/` that is not scored: relayed, and labelled as such."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from proxy import headers as names
from proxy.anthropic_relay import KEY_HEADERS
from proxy.asgi import Reply, Request
from proxy.config import AttachConfig
from proxy.conversations import Conversations
from proxy.encoding import can_decode, decode
from proxy.errors import UpstreamError
from proxy.exchange import Exchange, hash_key
from proxy.headers import to_client, to_upstream, without
from proxy.held import fetch_held, held_format
from proxy.json_splice import json_object, replace_member
from proxy.routing import Router
from proxy.scoring import Status
from proxy.spelling import names_in, path_after_v1
from proxy.store.held_replies import Store
from proxy.store.records import Records
from proxy.upstream import Headers, UpstreamReply, UpstreamRequest, header

JSON: Headers = [(b"content-type", b"application/json")]
JSON_TYPE = "application/json"


@dataclass(slots=True)
class Surfaces:
    """The handlers of all routes but the scored one."""

    router: Router
    store: Store
    attach: AttachConfig
    records: Records | None = None
    conversations: Conversations = field(default_factory=Conversations)

    async def relay(self, request: Request) -> Reply:
        """Any other request under `/v1/`, as it came, to the upstream of its model."""
        exchange = Exchange(request, self.records)
        with exchange:
            reply = await self.send(exchange, self.upstream_of(request))
        return self.labelled(exchange, reply)

    def labelled(
        self, exchange: Exchange, reply: UpstreamReply, body: bytes | None = None
    ) -> Reply:
        """A reply as it came, with the label of what is not scored; `body` where it was read."""
        outcome = exchange.finish(exchange.unscored(Status.NOT_SUPPORTED, "surface"), reply.status)
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

    async def send(self, exchange: Exchange, name: str) -> UpstreamReply:
        """The client's request as it came, to the upstream of this name."""
        request = exchange.request
        exchange.upstream = name
        path = path_after_v1(request.path)
        sent = UpstreamRequest(
            request.method, path, to_upstream(request.headers), request.body, request.query
        )
        with exchange.in_upstream:
            return await self.router.upstream(name).send(sent)

    def upstream_of(self, request: Request) -> str:
        """By the response in the path or the model in a JSON body, else the default route's."""
        part = request.path.removeprefix("/v1/responses/").partition("/")[0]
        if (response := self.conversations.get(part, hash_key(request))) is not None:
            return response.upstream
        is_json = (request.header(b"content-type") or JSON_TYPE).lower().startswith(JSON_TYPE)
        payload = json_object(request.body) if is_json and request.body else None
        if payload and (model := payload.get("model")) and isinstance(model, str):
            return self.router.name_for(model)
        return self.router.default()

    async def models(self, request: Request) -> Reply:
        """Upstream's list with the models that are answered here; those alone without upstream."""
        local = self.router.local_models
        default = self.router.default_name()
        has_key = any(request.header(name) is not None for name in KEY_HEADERS) or (
            default is not None and self.router.has_key(default)
        )
        if default is None or (local and not has_key):
            return _local_models(local)
        try:
            reply = await self.relay(request)
        except UpstreamError:
            if not local:
                raise
            return _local_models(local)
        return await _with_local(reply, local) if local and reply.status == 200 else reply

    async def model(self, request: Request) -> Reply:
        """`GET /v1/models/{id}`: one that is answered here, or upstream's."""
        id = unquote(request.path.removeprefix("/v1/models/"))
        if id in self.router.local_models:
            return Reply(200, JSON, json.dumps(_model(id)).encode())
        return await self.relay(request)

    async def completion(self, request: Request) -> Reply:
        """`GET /v1/chat/completions/{id}`: a held reply of ours, or upstream's own business."""
        id = names_in(request.path)[-1]
        format = held_format(id)
        if format is None:
            return await self.relay(request)
        return await fetch_held(self.store, format, id, request, self.attach)


def _local_models(ids: list[str]) -> Reply:
    listing = {"object": "list", "data": [_model(id) for id in ids]}
    return Reply(200, JSON, json.dumps(listing).encode())


def _model(id: str) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": 0, "owned_by": "pinocchio"}


async def _with_local(reply: Reply, ids: list[str]) -> Reply:
    """Upstream's list, the local models added; as it came where it is no list that we can read."""
    encoding = header(reply.headers, b"content-encoding")
    if isinstance(reply.body, bytes | tuple) or not can_decode(encoding):
        return reply
    try:
        raw = b"".join([chunk async for chunk in reply.body])
    finally:
        if reply.on_close is not None:
            await reply.on_close()
    listing = json_object(body := decode(raw, encoding))
    data = listing.get("data") if listing else None
    if not isinstance(data, list):
        return Reply(reply.status, reply.headers, raw)
    known = {model.get("id") for model in data if isinstance(model, dict)}
    longer = [*data, *(_model(id) for id in ids if id not in known)]
    kept = without(reply.headers, b"content-length", b"content-encoding")
    return Reply(reply.status, kept, replace_member(body, "data", longer))
