"""The reply to `GET /v1/models`: upstream's own list, a merged list, or the demo's.

The demo's models are listed only if nothing else is: there is no other upstream, or it cannot be
asked because neither configuration nor client has a key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from proxy.errors import ProxyError, UnknownModelError, UpstreamError
from proxy.http.wire.encoding import can_decode, decode_body
from proxy.http.wire.headers import header, without
from proxy.http.wire.http import JSON, Reply, Request
from proxy.http.wire.json_splice import json_object, replace_member
from proxy.upstreams.router import Router
from proxy.upstreams.translation.anthropic import KEY_HEADERS

KEYLESS_S: Final = 3.0  # seconds to wait for the list of an upstream without a key
_NO_KEY: Final = (401, 403)

Relay = Callable[[Request, str], Awaitable[Reply]]
"""Sends a request unchanged to the upstream of this name."""


async def list_models(router: Router, request: Request, relay: Relay) -> Reply:
    """Return the reply to `GET /v1/models`, merged from all upstreams that may be asked.

    The first upstream's reply is returned unchanged if there is no other, or if it is no readable
    list. The demo's models are listed if nothing else is. Raises UpstreamError where the first
    upstream gives no answer.
    """
    local, names = router.local_models, router.upstream_names
    if not names:
        return local_list(local)
    first = names[0]
    if local and not _has_key(router, request, first):
        return await _keyless(request, first, relay) or local_list(local)
    reply = await relay(request, first)
    # The client's key is meant for one upstream: others are asked only with configured keys.
    others = [name for name in names[1:] if router.has_key(name)]
    return await _merge_lists(router, request, relay, reply, names[:1], others) if others else reply


def _has_key(router: Router, request: Request, name: str) -> bool:
    """Return whether the configuration or the client has a key for an upstream."""
    return router.has_key(name) or any(request.header(each) is not None for each in KEY_HEADERS)


async def _keyless(request: Request, name: str, relay: Relay) -> Reply | None:
    """Ask an upstream for its list without a key, which a local one does not need.

    Returns None if it refuses, fails or takes longer than KEYLESS_S.
    """
    with suppress(UpstreamError, TimeoutError):
        async with asyncio.timeout(KEYLESS_S):
            reply = await relay(request, name)
        if reply.status not in _NO_KEY:
            return reply
        if reply.on_close is not None:
            await reply.on_close()
    return None


async def _merge_lists(
    router: Router,
    request: Request,
    relay: Relay,
    reply: Reply,
    first: Sequence[str],
    others: Sequence[str],
) -> Reply:
    """Append to the first upstream's list the models of others that are routed to them.

    Each of `others` is asked; one that fails is left out. The reply is returned unchanged if it is
    no readable list.
    """
    if reply.status != 200 or (body := await _body(reply)) is None:
        return reply
    listing = json_object(body)
    if listing is None or not isinstance(data := listing.get("data"), list):
        return Reply(reply.status, without(reply.headers, b"content-encoding"), body)
    known = {_id(model) for model in data}
    longer = list(data)
    for name in others:
        for model in await _data(request, name, relay):
            if _id(model) not in known and _leads_to(router, _id(model), name):
                known.add(_id(model))
                longer.append(model)
    headers = without(reply.headers, b"content-length", b"content-encoding")
    return Reply(reply.status, headers, replace_member(body, "data", longer))


async def _data(request: Request, name: str, relay: Relay) -> list[Any]:
    """Return the entries of an upstream's model list; none if it fails or gives no list."""
    with suppress(ProxyError):
        reply = await relay(request, name)
        body = await _body(reply) if reply.status == 200 else None
        listing = json_object(body) if body is not None else None
        data = listing.get("data") if listing else None
        return data if isinstance(data, list) else []
    return []


def _id(model: Any) -> str:
    """Return a model's id as text; empty for what is no object."""
    return str(model.get("id")) if isinstance(model, dict) else ""


def _leads_to(router: Router, model: str, name: str) -> bool:
    """Return whether a model's route leads to the upstream of this name."""
    try:
        return router.name_for(model) == name
    except UnknownModelError:
        return False


async def _body(reply: Reply) -> bytes | None:
    """Read and decode the whole body; close the reply if it was streamed.

    Returns None, with nothing read, for an unknown encoding.
    """
    encoding = header(reply.headers, b"content-encoding")
    if not can_decode(encoding):
        return None
    if isinstance(reply.body, bytes | tuple):
        return await decode_body(reply.whole(), encoding)
    assert not callable(reply.body)  # only bodies of completions are
    try:
        raw = b"".join([chunk async for chunk in reply.body])
    finally:
        if reply.on_close is not None:
            await reply.on_close()
    return await decode_body(raw, encoding)


def local_list(ids: Sequence[str]) -> Reply:
    """Return the reply that lists models with these names, as made by the proxy."""
    listing = {"object": "list", "data": [local_model(id) for id in ids]}
    return Reply(200, JSON, json.dumps(listing).encode())


def local_model(id: str) -> dict[str, Any]:
    """Return a model as an entry of OpenAI's list: `{"id": .., "object": "model", ..}`."""
    return {"id": id, "object": "model", "created": 0, "owned_by": "pinocchio"}
