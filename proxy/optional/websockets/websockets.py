"""WebSockets under `/v1/`: OpenAI's realtime API, responses over WebSocket, and later ones.

Messages, close codes and reasons, subprotocols, query and header fields are relayed unchanged in
both directions. Upstream's refusal is answered as the HTTP reply that it is. Pings belong to one
connection and are answered on it.

A WebSocket carries completions, but none of them is scored or decided on, whatever the policy. Like
everything under `/v1/` but the scored routes it is relayed and labelled `not_supported`, in the
handshake's answer, in the log and in the record.

When one side ends a session, the other side gets its code and reason. Upstream gets 1001 when the
client is gone or the proxy stops. A message beyond `limits.max_body` ends it with 1009. The client
gets 1011 when upstream breaks off: 1014 would be more exact, but OpenAI's client reconnects after
1011 and not after 1014.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import cache
from urllib.parse import parse_qsl, urlsplit

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.datastructures import Headers as Fields
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from proxy.config.sections import Config
from proxy.config.settings.upstreams import UpstreamConfig
from proxy.errors import (
    BadRequestError,
    NotFoundError,
    ProxyError,
    UnknownModelError,
    UpstreamBrokenError,
    UpstreamError,
    UpstreamTimeoutError,
)
from proxy.exchange.exchange import CLIENT_LEFT, Exchange
from proxy.gate.host_check import check_local
from proxy.gate.secret_keys import BROWSER_KEY
from proxy.http.listener.websocket_settings import PING_EVERY_S, PONG_WITHIN_S
from proxy.http.wire import headers as names
from proxy.http.wire.caller import ANYONE, CALLER
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import METRICS, Receive, Reply, Request, Scope, Send, error_reply, place
from proxy.http.wire.spelling import path_after_v1
from proxy.optional.websockets.websocket_session import (
    ClientLeftError,
    SocketClient,
    relay_messages,
)
from proxy.scoring.scoring import Status
from proxy.store.record.writer import Records
from proxy.upstreams.router import Router

SWITCHED = 101  # the status of a handshake that succeeded
OPEN_TIMEOUT_S = 30  # seconds, from the first packet to upstream's answer
HELD_MESSAGES = 1  # of upstream's messages, before it has to wait
OF_WEBSOCKET = b"sec-websocket-"  # prefix of the fields of one connection

log = structlog.get_logger(__name__)


class Realtime:
    """The ASGI application of all WebSockets; `is_open` turns on the checks of Host and Origin."""

    def __init__(
        self, config: Config, router: Router, records: Records | None, *, is_open: bool
    ) -> None:
        self._upstreams = config.upstreams
        self._max_size = config.limits.max_body
        self._router = router
        self._records = records
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket: connect upstream, answer the handshake, relay, record."""
        client = SocketClient(scope, receive, send)
        request = _request_of(scope)
        exchange = Exchange(request, self._records, is_stream=True)
        try:
            await receive()  # websocket.connect
            if self._is_open:
                check_local(request.headers)
            with exchange:
                await self._serve(exchange, client)
        except ProxyError as error:
            await client.refuse(error_reply(error))
        except ClientLeftError:
            exchange.close(CLIENT_LEFT, "client_left")
        except Exception as error:  # a fault of the proxy; the client still gets an answer
            log.error("internal_error", path=request.path, **place(error))
            exchange.close(ProxyError.status, ProxyError.code)
            await client.fail()
        finally:
            client.stop_looking()

    async def _serve(self, exchange: Exchange, client: SocketClient) -> None:
        """Serve a session from handshake to end.

        Raises ProxyError where no upstream answers the handshake.
        """
        section = self._section_of(exchange)
        outcome = exchange.unscored_outcome(Status.NOT_SUPPORTED, "surface")
        label = [
            (names.STATUS, outcome.status.encode()),
            (names.REASON, b"surface"),
            (names.REQUEST_ID, exchange.request_id.encode()),
        ]
        with exchange.in_upstream:
            try:
                upstream = await client.unless_closed(
                    self._open(section, exchange.request, client.offers)
                )
            except InvalidStatus as refusal:
                answer = refusal.response
                exchange.finish(outcome, answer.status_code)
                fields = [*_from_upstream(answer.headers), *label]
                await client.refuse(Reply(answer.status_code, fields, bytes(answer.body)))
                return
            try:
                assert upstream.response is not None  # the handshake succeeded
                fields = [*_from_upstream(upstream.response.headers), *label]
                await client.accept(upstream.subprotocol, fields)
                end = await relay_messages(client, upstream)
            finally:
                upstream.transport.abort()  # does nothing to a closed connection
        exchange.stamp(outcome)
        exchange.close(SWITCHED, end.error)

    def _section_of(self, exchange: Exchange) -> UpstreamConfig:
        """Return the upstream of the query's model, or of the default route.

        Note both in the exchange. Raises ProxyError where there is none, or it has no WebSockets.
        """
        request = exchange.request
        if not request.path.startswith("/v1/"):
            raise NotFoundError(
                f"there is no WebSocket at {request.path}; the API is under /v1/",
                code="unknown_url",
            )
        model = dict(reversed(parse_qsl(request.query))).get("model")  # the first one
        name = self._router.name_for(model) if model else self._router.default_name()
        if name is None:
            raise UnknownModelError("the configuration routes no model")
        exchange.model, exchange.upstream = model, name
        section = self._upstreams[name]
        if section.base_url is None or section.litellm or section.via == "litellm":
            raise NotFoundError(f"upstream {name!r} has no WebSockets", code="unknown_url")
        return section

    async def _open(
        self, section: UpstreamConfig, request: Request, offered: Sequence[str]
    ) -> ClientConnection:
        """Connect to upstream, with the client's path, query, fields and subprotocols.

        Raises InvalidStatus with upstream's refusal, BadRequestError for an invalid path, query or
        subprotocol, and UpstreamError where there is no answer.
        """
        fields, offered = _with_key(section, _to_upstream(request.headers), offered)
        base = "ws" + str(section.base_url).rstrip("/").removeprefix("http")
        query = f"?{request.query}" if request.query else ""
        try:
            opening = _Connect(
                base + path_after_v1(request.path) + query,
                subprotocols=[Subprotocol(name) for name in offered] or None,
                additional_headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in fields],
                user_agent_header=None,
                compression=None,
                proxy=None,
                open_timeout=min(OPEN_TIMEOUT_S, section.timeout_s),
                ping_interval=PING_EVERY_S,
                ping_timeout=PONG_WITHIN_S,
                max_size=self._max_size,
                max_queue=HELD_MESSAGES,
                ssl=await asyncio.to_thread(_tls) if base.startswith("wss:") else None,
            )
        except (InvalidURI, ValueError) as error:
            raise BadRequestError("the path, query or subprotocol is not valid") from error
        try:
            return await opening
        except (InvalidHandshake, OSError, ValueError) as error:
            if isinstance(error, InvalidStatus) and error.response.status_code >= 200:
                raise
            raise _translate_error(error, urlsplit(base).netloc) from error


async def refuse(error: ProxyError, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a handshake that no other code has handled."""
    client = SocketClient(scope, receive, send)
    await receive()  # websocket.connect
    await client.refuse(error_reply(error))


class _Connect(connect):
    """A connection that follows no redirect: it goes to the client, as for relayed requests."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _request_of(scope: Scope) -> Request:
    """Return a WebSocket's handshake as a GET request."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return Request(
        "GET",
        path.decode("latin-1"),
        query.decode("latin-1"),
        scope["headers"],
        caller=scope.get(CALLER, ANYONE),
        metrics=scope.get(METRICS),
    )


def _to_upstream(headers: Headers) -> Headers:
    """Return the client's fields that go upstream, without those of its own WebSocket."""
    fields = names.to_upstream(headers)
    return [field for field in fields if not field[0].startswith(OF_WEBSOCKET)]


def _from_upstream(fields: Fields) -> Headers:
    """Return upstream's fields that go to the client, without those of its own WebSocket."""
    kept = names.to_client(names.encode_fields(fields.raw_items()))
    return [field for field in kept if not field[0].startswith(OF_WEBSOCKET)]


def _with_key(
    section: UpstreamConfig, fields: Headers, offered: Sequence[str]
) -> tuple[Headers, Sequence[str]]:
    """Return fields and subprotocols with the configured key, if any, in place of the client's."""
    key = section.api_key.get_secret_value()
    if not key:
        return fields, offered
    fields = names.with_header(fields, b"authorization", f"Bearer {key}".encode())
    return fields, [name for name in offered if not name.startswith(BROWSER_KEY)]


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context, made once; call it from a thread, since it reads all certificates."""
    return ssl.create_default_context()


def _translate_error(error: Exception, where: str) -> UpstreamError:
    """Return our error for an error of `websockets`."""
    kind = type(error).__name__
    if isinstance(error, TimeoutError):
        return UpstreamTimeoutError(f"upstream {where} did not answer the handshake in time")
    if isinstance(error, InvalidHandshake):
        return UpstreamBrokenError(f"upstream {where} did not answer as a WebSocket ({kind})")
    return UpstreamError(f"could not connect to upstream {where} ({kind})")
