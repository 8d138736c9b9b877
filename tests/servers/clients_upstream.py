"""An upstream for real client libraries, faithful to OpenAI's and Anthropic's text APIs.

    with ClientsUpstream() as upstream:
        OpenAI(base_url=upstream.base_url).responses.create(model="tools--7", input=..., tools=...)
        upstream.seen["tools--7"][0].has_left

The model's name before `--` chooses what it does; the rest distinguishes tests:

    text            a sentence; JSON where the request has a schema for it
    tools, parallel one call or two calls of the first offered tool; with its result, a sentence
    structured      JSON by the schema of the request, else a call of its first tool with that
    thinking        reasoning, then a sentence
    status-NNN      that error, with the time to wait in its headers
    flaky-NNN       that error twice, then a sentence
    slow            nothing at all
    endless         a stream without an end; without a stream as `slow`
    stuck           the beginning of `structured` or of a sentence, and nothing more
    error-event     an error in the middle of a stream
    cut             the connection breaks off in the middle of a stream
    held-...        as `text`, or as what follows: for policies that look at the name

`GET /seen/{model}` tells a client in another process what arrived for that model and whether the
connection was closed before the answer was complete.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from tests.clients.formats import chat_format, completions_format, messages_format, responses_format
from tests.clients.formats.replies import Event, Json, Reply, reply_to

SILENCE_S = 30  # longer than any test waits
PAUSE_S = 0.02  # between the deltas of an endless stream
Speech = Callable[[Json, Reply], Json]
Streamed = Callable[[Json, Reply], Iterator[Event]]


@dataclass(frozen=True)
class Format:
    """One API: its whole objects, its streams, its errors."""

    whole: Speech
    events: Streamed
    error: Callable[[int], Json]
    error_event: Event
    request_id: str  # the header that names a request


FORMATS = {
    "/v1/chat/completions": Format(
        chat_format.completion,
        chat_format.events,
        chat_format.error,
        chat_format.ERROR_EVENT,
        "x-request-id",
    ),
    "/v1/completions": Format(
        completions_format.completion,
        completions_format.events,
        chat_format.error,
        chat_format.ERROR_EVENT,
        "x-request-id",
    ),
    "/v1/responses": Format(
        responses_format.response,
        responses_format.events,
        chat_format.error,
        responses_format.ERROR_EVENT,
        "x-request-id",
    ),
    "/v1/messages": Format(
        messages_format.message,
        messages_format.events,
        messages_format.error,
        messages_format.ERROR_EVENT,
        "request-id",
    ),
}


@dataclass
class Seen:
    """One request as it arrived, and how it ended."""

    path: str
    headers: dict[str, str]
    body: Json
    has_left: bool = False  # the client closed the connection before the answer was complete

    def facts(self) -> Json:
        return vars(self)


@dataclass
class ClientsUpstream:
    """Serves on a thread of its own while it is a context."""

    seen: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def __enter__(self) -> ClientsUpstream:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=2**24)
        for path in FORMATS:
            app.router.add_post(path, self._answer)
        app.router.add_get("/seen/{model}", self._tell)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _tell(self, request: web.Request) -> web.Response:
        seen = self.seen.get(request.match_info["model"], [])
        return web.json_response([one.facts() for one in seen])

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.path, headers, await request.json())
        self.seen[seen.body["model"]].append(seen)
        try:
            return await self._speak(request, seen)
        except (asyncio.CancelledError, ConnectionError):
            seen.has_left = True
            raise

    async def _speak(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        form = FORMATS[request.path]
        behaviour = seen.body["model"].partition("--")[0]
        named = {form.request_id: "req_upstream_1", "openai-processing-ms": "12"}
        tries = len(self.seen[seen.body["model"]])
        if behaviour.startswith("status-") or (behaviour.startswith("flaky-") and tries < 3):
            return _error(int(behaviour.rpartition("-")[2]), form, named)
        is_stream = bool(seen.body.get("stream"))
        if behaviour == "slow" or (behaviour == "endless" and not is_stream):
            await asyncio.sleep(SILENCE_S)
        reply = reply_to(behaviour.removeprefix("held-"), seen.body)
        if not is_stream:
            return web.json_response(form.whole(seen.body, reply), headers=named)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **named})
        await response.prepare(request)
        async for event in _paced(behaviour, form, list(form.events(seen.body, reply))):
            if event is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(event.bytes)
        return response


async def _paced(behaviour: str, form: Format, events: list[Event]) -> AsyncIterator[Event | None]:
    """Yield the events of a stream according to its behaviour; None breaks the connection off."""
    first = next(n for n, event in enumerate(events) if event.is_delta)
    match behaviour:
        case "endless":
            for event in events[:first]:
                yield event
            while True:
                yield events[first]
                await asyncio.sleep(PAUSE_S)
        case "cut" | "error-event" | "stuck":
            for event in events[: first + 1]:
                yield event
            if behaviour == "stuck":
                await asyncio.sleep(SILENCE_S)
            yield form.error_event if behaviour == "error-event" else None
        case _:
            for event in events:
                yield event


def _error(status: int, form: Format, headers: dict[str, str]) -> web.Response:
    if status == 429:
        headers |= {"retry-after-ms": "10", "x-ratelimit-remaining-requests": "0"}
    if status >= 500:
        headers |= {"retry-after-ms": "10"}
    return web.json_response(form.error(status), status=status, headers=headers)
