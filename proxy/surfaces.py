"""Everything under `/v1/` that is not scored: relayed, and labelled as such."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from proxy import headers as names
from proxy.actions import HELD_ID_PREFIX, placeholder
from proxy.asgi import Reply, Request
from proxy.chat_request import parse_json_object
from proxy.completion import json_object
from proxy.encoding import can_decode, decode
from proxy.errors import BadRequestError, NotFoundError, ProxyError, UnknownModelError
from proxy.exchange import Exchange, hash_key
from proxy.headers import to_client, to_upstream, without
from proxy.json_splice import replace_member
from proxy.results import Results
from proxy.routing import Router
from proxy.scoring import Status
from proxy.store import EXPIRED, HELD, RELEASED, HeldReply, Store
from proxy.upstream import UpstreamReply, UpstreamRequest

JSON = [("content-type", "application/json")]


@dataclass(slots=True)
class Surfaces:
    """The handlers of all routes but the scored one."""

    router: Router
    store: Store
    results: Results

    async def relay(self, request: Request) -> Reply:
        """Any other request under `/v1/`, as it came, to the upstream of its model."""
        exchange = Exchange(request)
        try:
            reply = await self._send(exchange, self._upstream_of(request))
        except ProxyError as error:
            exchange.status = error.status
            exchange.log_line(error=error.machine_code)
            raise
        outcome = exchange.finish(exchange.unscored(Status.NOT_SUPPORTED, "surface"), reply.status)
        label = [
            (names.STATUS, outcome.status.value),
            (names.REASON, "surface"),
            (names.REQUEST_ID, exchange.request_id),
        ]
        return Reply(
            reply.status, [*to_client(reply.headers), *label], reply.chunks, on_close=reply.aclose
        )

    async def _send(self, exchange: Exchange, name: str) -> UpstreamReply:
        request = exchange.request
        exchange.upstream = name
        path = _path_after_v1(request.path)
        sent = UpstreamRequest(
            request.method, path, to_upstream(request.headers), request.body, request.query
        )
        with exchange.in_upstream():
            return await self.router.upstream(name).send(sent)

    def _upstream_of(self, request: Request) -> str:
        """By the model in a JSON body, else the default route's upstream."""
        if "json" in (request.header("content-type") or "") and request.body:
            model = parse_json_object(request.body).get("model")
            if isinstance(model, str) and model:
                return self.router.name_for(model)
        default = self.router.default_name()
        if default is None:
            raise UnknownModelError("the configuration routes no model")
        return default

    async def models(self, request: Request) -> Reply:
        """Upstream's list with the models that are answered here; those alone without any key."""
        default = self.router.default_name()
        has_key = request.header("authorization") is not None or (
            default is not None and self.router.has_key(default)
        )
        if default is None or not has_key:
            return Reply(200, JSON, json.dumps(_model_list(self.router.local_models)).encode())
        reply = await self.relay(request)
        if reply.status != 200 or not self.router.local_models or isinstance(reply.body, bytes):
            return reply
        encoding = next((v for k, v in reply.headers if k == "content-encoding"), None)
        if not can_decode(encoding):
            return reply
        body = decode(b"".join([chunk async for chunk in reply.body]), encoding)
        if reply.on_close is not None:
            await reply.on_close()
        kept = without(reply.headers, "content-length", "content-encoding")
        return Reply(200, kept, _with_models(body, self.router.local_models))

    async def completion(self, request: Request) -> Reply:
        """`GET /v1/chat/completions/{id}`: a held reply of ours, or upstream's own business."""
        id = request.path.rsplit("/", 1)[-1]
        if not id.startswith(HELD_ID_PREFIX):
            return await self.relay(request)
        held = await self._held(id, hash_key(request))
        if held.state == HELD:
            body = json.dumps(placeholder(held.id, int(held.created_at), held.model)).encode()
            return Reply(200, [*JSON, (names.ACTION, "hold"), (names.REVIEW_ID, id)], body)
        if held.state == RELEASED:
            return Reply(
                200, [*JSON, (names.ACTION, "deliver"), (names.REVIEW_ID, id)], _released(held)
            )
        raise NotFoundError(
            f"the held reply {id} was {held.state}", code=f"held_reply_{held.state}"
        )

    async def _held(self, id: str, key_hash: str) -> HeldReply:
        held = await self.store.get(id)
        if held is None or not hmac.compare_digest(held.key_hash, key_hash):
            raise NotFoundError(f"there is no held reply {id!r}", code="held_reply_not_found")
        if held.state == HELD and held.expires_at <= time.time():
            raise NotFoundError(f"the held reply {id} was {EXPIRED}", code=f"held_reply_{EXPIRED}")
        return held

    async def result(self, request: Request) -> Reply:
        """`GET /pinocchio/v1/results/{request id}`: a stream's outcome, for the key that asked."""
        await asyncio.sleep(0)  # a stream that has just ended records its result first
        member = self.results.get(request.path.rsplit("/", 1)[-1], hash_key(request))
        return Reply(200, JSON, json.dumps(member).encode())


def _path_after_v1(path: str) -> str:
    """The path as upstream sees it; dot segments would leave its `/v1`."""
    if any(segment in (".", "..") for segment in unquote(path).replace("\\", "/").split("/")):
        raise BadRequestError("the path may not have '.' or '..' segments", code="invalid_path")
    return path.removeprefix("/v1")


def _model_list(ids: list[str]) -> dict[str, Any]:
    return {"object": "list", "data": [_model(id) for id in ids]}


def _model(id: str) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": 0, "owned_by": "pinocchio"}


def _with_models(body: bytes, ids: list[str]) -> bytes:
    listing = json_object(body)
    data = listing.get("data") if listing else None
    if not isinstance(data, list):
        return body
    known = {model.get("id") for model in data if isinstance(model, dict)}
    return replace_member(body, "data", [*data, *(_model(id) for id in ids if id not in known)])


def _released(held: HeldReply) -> bytes:
    """The stored bytes under the id by which they were asked for."""
    return replace_member(held.reply, "id", held.id)
