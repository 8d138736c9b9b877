"""What the tests of translation share: requests, answers, and a server that only records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from proxy.errors import ProxyError
from proxy.http.wire.headers import Headers
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream

Json = dict[str, Any]

PATH = "/chat/completions"
HELLO: list[Json] = [{"role": "user", "content": "Hello there"}]


@asynccontextmanager
async def opened(upstream: LiteLLMUpstream) -> AsyncIterator[LiteLLMUpstream]:
    try:
        async with asyncio.timeout(30):  # the first test waits for litellm's import
            yield upstream
    finally:
        await upstream.aclose()


def request(headers: Headers | None = None, **fields: Any) -> UpstreamRequest:
    body = {"model": "claude-echo", "messages": HELLO} | fields
    return UpstreamRequest("POST", PATH, headers or [], json.dumps(body).encode())


async def answer(reply: UpstreamReply, status: int = 200) -> Json:
    assert reply.status == status
    assert reply.header(b"content-type") == "application/json"
    body: Json = json.loads(await reply.read())
    return body


async def refused(upstream: LiteLLMUpstream, sent: UpstreamRequest) -> Json:
    """Return the error of a request that gets no answer; check its status and class."""
    with pytest.raises(ProxyError) as raised:
        await upstream.send(sent)
    error: Json = raised.value.envelope()["error"]
    return error | {"status": raised.value.status, "kind": type(raised.value)}


@dataclass
class Listener:
    """A server that gives every request the same answer and remembers the requests."""

    base_url: str = ""
    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((str(request.rel_url), headers, await request.read()))
        return web.Response(body=self.body, status=self.status, headers=self.headers)


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener(headers={"content-type": "application/json", "x-request-id": "req_1"})
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", listener.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield listener
    await runner.cleanup()
