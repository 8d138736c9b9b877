"""A small realtime API: WebSockets on loopback that behave as the model's name says.

    with RealtimeUpstream() as upstream:
        async with connect(f"{upstream.url}/realtime?model=echo") as socket: ...
        upstream.last.received, upstream.last.offered, upstream.last.wait_for_end()

What a session does is chosen by `model` in the query:

    echo            every message comes back; some say what else happens, see `_obey`
    gpt-realtime    OpenAI's events: a session that can be updated and answers with text
    flood           64 KB messages, each with its number in front, as fast as they are taken
    stall           nothing is read until `proceed()`
    slow            the handshake is answered after `proceed()`
    refuse-NNN      that status, with a body and fields of its own
    not-websocket, not-http, hang-up, silent    200; garbage; the end; nothing at all
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

PART = 64 * 1024  # bytes of one message of a flood
SUBPROTOCOL = Subprotocol("realtime")
Json = dict[str, Any]


@dataclass
class Session:
    """One connection as upstream saw it."""

    target: str
    headers: list[tuple[str, str]]
    loop: asyncio.AbstractEventLoop = field(repr=False)
    received: list[str | bytes] = field(default_factory=list)
    sent: int = 0
    closed: Close | None = None  # the client's close frame; None where there was none

    def __post_init__(self) -> None:
        self._gate = asyncio.Event()
        self._end = threading.Event()

    @property
    def model(self) -> str:
        return parse_qs(urlsplit(self.target).query).get("model", ["echo"])[0]

    @property
    def offered(self) -> list[str]:
        """Return the subprotocols that came with the handshake."""
        return [
            name.strip()
            for value in self.all("sec-websocket-protocol")
            for name in value.split(",")
        ]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def proceed(self) -> None:
        self.loop.call_soon_threadsafe(self._gate.set)

    async def wait_for_proceed(self) -> None:
        await self._gate.wait()

    def end(self) -> None:
        self._end.set()

    def wait_for_end(self, within_s: float = 2) -> Close | None:
        """Return the close frame that arrived, once the connection is over."""
        assert self._end.wait(within_s), "the connection is still open"
        return self.closed


class RealtimeUpstream:
    """Serves on a thread of its own while it is a context; remembers its sessions."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def base_url(self) -> str:
        """Return the base URL with which a proxy is configured."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Session:
        return self.sessions[-1]

    def forget(self) -> None:
        self.sessions.clear()

    def __enter__(self) -> RealtimeUpstream:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> Server:
        return await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._handshake,
            process_response=_sign,
            select_subprotocol=lambda _, offered: SUBPROTOCOL if SUBPROTOCOL in offered else None,
            compression=None,
            max_size=None,
            max_queue=1,
            close_timeout=0.3,
        )

    async def _stop(self) -> None:
        for session in self.sessions:
            session.proceed()
        self._server.close()
        await self._server.wait_closed()

    async def _handshake(self, socket: ServerConnection, request: Request) -> Response | None:
        session = Session(request.path, list(request.headers.raw_items()), self._loop)
        socket.session = session  # type: ignore[attr-defined]  # the library's way to pass it on
        self.sessions.append(session)
        kind, _, number = session.model.partition("-")
        if kind == "refuse":
            return refusal(int(number))
        if session.model == "not-websocket":
            return refusal(200)
        if session.model in ("slow", "silent"):
            gone = asyncio.create_task(socket.wait_closed())
            free = asyncio.create_task(session.wait_for_proceed())
            await asyncio.wait((gone, free), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                session.end()
        if session.model in ("not-http", "hang-up"):
            socket.transport.write(b"SSH-2.0-x\r\n\r\n" if session.model == "not-http" else b"")
            socket.transport.close()
        return None

    async def _serve(self, socket: ServerConnection) -> None:
        session: Session = socket.session  # type: ignore[attr-defined]  # set in the handshake
        behave = {"flood": _flood, "stall": _stall, "gpt-realtime": _converse}
        try:
            is_response = urlsplit(session.target).path.endswith("/responses")
            behaviour = _respond if is_response else behave.get(session.model, _echo)
            await behaviour(socket, session)
        except ConnectionClosed:
            pass
        finally:
            await socket.wait_closed()
            session.closed = socket.protocol.close_rcvd
            session.end()


def _sign(_: ServerConnection, __: Request, response: Response) -> None:
    """Add fields of upstream's own to the answer to a handshake."""
    if response.status_code != 101:
        return
    response.headers["x-request-id"] = "req_upstream_1"
    response.headers["set-cookie"] = "a=1"
    response.headers["set-cookie"] = "b=2"
    response.headers["x-pinocchio-confidence"] = "0.99"


def refusal(status: int) -> Response:
    """Return an HTTP answer that refuses, with the header fields that its client needs."""
    fields = {"content-type": "application/json", "x-request-id": "req_upstream_1"}
    if status == 429:
        fields["retry-after"] = "7"
    if status == 307:
        fields["location"] = "/v1/realtime?model=echo"
    body = json.dumps({"error": {"message": f"upstréam says {status}", "code": "told"}}).encode()
    return Response(status, "Told", Headers({**fields, "content-length": str(len(body))}), body)


async def _echo(socket: ServerConnection, session: Session) -> None:
    async for message in socket:
        session.received.append(message)
        if isinstance(message, bytes) or not await _obey(message, socket, session):
            with suppress(ConnectionClosed):  # what came before the end still counts
                await socket.send(message)


async def _obey(message: str, socket: ServerConnection, session: Session) -> bool:
    """Obey a message such as `close 4000 why`, `vanish`, `large N` or `parts`.

    Returns whether the message is such an order.
    """
    word, _, rest = message.partition(" ")
    code, _, reason = rest.partition(" ")
    if word == "close":
        await socket.send("last words")
        await socket.close(int(code), reason)
    elif word == "close-without-code":
        await socket.close(None)  # type: ignore[arg-type]  # a close frame without a code
    elif word == "vanish":
        socket.transport.abort()
    elif word == "large":
        await socket.send("x" * int(rest))
    elif word == "not-utf8":
        await socket.send(b"\xff\xfe", text=True)
    elif word == "bad-frame":
        socket.transport.write(b"\xff\xff\xff\xff")
    elif word == "parts":
        await socket.send(rest.split("|"))
    elif word == "ping":
        pong = await socket.ping(b"are you there")
        await socket.send(f"pong after {await pong >= 0}")
    else:
        return False
    return True


async def _flood(socket: ServerConnection, session: Session) -> None:
    padding = b"." * PART
    while True:
        await socket.send(b"%010d" % session.sent + padding[10:])
        session.sent += 1


async def _stall(socket: ServerConnection, session: Session) -> None:
    await session.wait_for_proceed()
    await _echo(socket, session)


async def _respond(socket: ServerConnection, session: Session) -> None:
    """Answer as Responses over WebSocket, as far as a client needs it."""
    async for message in socket:
        session.received.append(message)
        response = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
        event = {"type": "response.completed", "sequence_number": 0, "response": response}
        await socket.send(json.dumps(event))


async def _converse(socket: ServerConnection, session: Session) -> None:
    """Converse in OpenAI's events; the instructions are the answer."""
    config: Json = {"type": "realtime", "object": "realtime.session", "id": "sess_1"}
    await socket.send(json.dumps({"type": "session.created", "event_id": "e0", "session": config}))
    async for message in socket:
        session.received.append(message)
        event = json.loads(message)
        if event["type"] == "session.update":
            config |= event["session"]
            update = {"type": "session.updated", "event_id": "e1", "session": config}
            await socket.send(json.dumps(update))
        elif event["type"] == "response.create":
            for answer in _answer(config.get("instructions", "")):
                await socket.send(json.dumps({"event_id": "e2", **answer}, ensure_ascii=False))
        else:
            error = {"type": "invalid_request_error", "message": f"no {event['type']} here"}
            await socket.send(json.dumps({"type": "error", "event_id": "e3", "error": error}))


def _answer(text: str) -> list[Json]:
    response: Json = {"id": "resp_1", "object": "realtime.response", "status": "in_progress"}
    item = {"response_id": "resp_1", "item_id": "i1", "output_index": 0, "content_index": 0}
    deltas = [
        {"type": "response.output_text.delta", **item, "delta": word} for word in text.split()
    ]
    done = {**response, "status": "completed"}
    return [
        {"type": "response.created", "response": response},
        *deltas,
        {"type": "response.done", "response": done},
    ]
