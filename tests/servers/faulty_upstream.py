"""An upstream that misbehaves on request: a real HTTP server on loopback.

    with FaultyUpstream() as upstream:
        httpx.post(f"{upstream.base_url}/chat/completions", json={"model": "cut", ...})
        upstream.last.body, upstream.last.headers, upstream.last.is_cut_off(within_s=1)

What it does is chosen by the header `x-faulty`, else by the model's name; all of it works with and
without `stream: true`:

    ok                  the last user message is the answer; with n > 1 its parts between "|"
    say TEXT            the answer is TEXT
    judge P             the answer is True or False and P as a percentage; the log-probabilities of
                        its first token say P too, where they are asked for
    likely              as ok; the log-probability of each word is -0.1 times its length
    in-turn             the answer is the next of the parts between "|", request after request
    told                the request's member `reply` is the body, its items the chunks of a stream
    empty, reasoning    an empty answer; an answer after `reasoning_content`
    tools, parallel-tools   one call, two calls of the first offered tool with the last user message
    vendor              fields, numbers and escapes that no SDK knows
    large               an answer of 1 MB
    huge-event          a stream with one event of 17 MB
    gzip, br, zstd, deflate   the body in that encoding
    unknown-encoding    a body in an encoding that nobody knows
    broken-gzip         a body that is not what its encoding says
    status-NNN          that status, with a body and, for 429, with limits
    spoofed             header fields of one connection, and of the proxy's own names
    html, endless-html, broken-json   200, and no completion
    at-once             a stream that is sent in one piece
    always-stream       a stream, whatever was asked for
    flaky-BEHAVIOUR     to the first request with this body that behaviour, then ok
    slow                nothing at all until `proceed()`
    gated               the first part, the rest after `proceed()`
    gated-cut           the first part; after `proceed()` the connection breaks off
    endless             a stream without an end
    split               one byte at a time
    crlf                CRLF line ends, comments, ids and retry fields
    error-event         an error in the middle of the stream
    cut                 the connection breaks off in the middle
    no-finish, half-event, no-done   the stream ends properly, but before its finish chunk,
                        inside an event, before [DONE]
    cut-after-done      the connection breaks off after [DONE]
    hang-up, not-http   the connection is closed at once; garbage in place of HTTP

Every other path answers with the request's own body.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self

import brotli
import zstandard

Json = dict[str, Any]
Headers = tuple[tuple[str, str], ...]

JSON: Headers = (("Content-Type", "application/json"),)
EVENTS: Headers = (("Content-Type", "text/event-stream; charset=utf-8"),)
REQUEST_ID = ("x-request-id", "req_upstream_1")
DONE = b"data: [DONE]\n\n"
ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, mtime=0),  # the same bytes whenever it runs
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "deflate": zlib.compress,
}

VENDOR_BODY = (
    b'{ "id":"v-1","object":"chat.completion","created":1.0,"model":"vendor","dup":1,"dup":2,\n'
    b'  "choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"caf\\u00e9 p=0.42 \xf0\x9f\x8d\x8b","citations":["a","b"],"cost":1e5},'
    b'"finish_reason":"stop","vendor_score":1.0}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":1E-7},'
    b'"x_groq":{"id":"r","t":-0.0},"trailing":[1.0,1e5,10000000000000000000000.0]  }\n'
)
VENDOR_EVENTS = (
    b'data: {"id":"v-1","object":"chat.completion.chunk","created":1.0,"model":"vendor","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":"caf\\u00e9 p=0.42"},"x":1e5}],'
    b'"obf":"a"}\n\n',
    b'data: {"id":"v-1","object":"chat.completion.chunk","created":1.0,"model":"vendor","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop","x":1.0}],"x_groq":{"t":1E-7},'
    b' "dup":1,"dup":2 }\n\n',
    DONE,
)


# Parts of a response


@dataclass(frozen=True)
class Cut:
    """Breaks the connection off."""


@dataclass(frozen=True)
class Wait:
    """Waits until the test calls `proceed()` on the request."""


@dataclass(frozen=True)
class Pause:
    seconds: float


Step = bytes | Cut | Wait | Pause


@dataclass(frozen=True)
class Response:
    """The steps of one answer; with `raw`, not even a status line is sent."""

    steps: Iterable[Step]
    status: int = 200
    headers: Headers = JSON
    framing: Literal["length", "chunked", "raw"] = "length"
    waits_first: bool = False


# A received request


@dataclass
class Received:
    """One request as it arrived: names of headers in lower case, everything else byte for byte."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    loop: asyncio.AbstractEventLoop = field(repr=False)
    number: int = 0  # requests before this one since `forget`
    tries: int = 0  # requests before this one with the same body
    at: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._gate = asyncio.Event()
        self._cut_off = threading.Event()

    @property
    def path(self) -> str:
        return self.target.split("?")[0].removeprefix("/v1")

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Json:
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def proceed(self) -> None:
        """End the waiting of `slow`, `gated` and `gated-cut`."""
        self.loop.call_soon_threadsafe(self._gate.set)

    def is_cut_off(self, within_s: float) -> bool:
        """Whether the client closed the connection before the whole answer was sent."""
        return self._cut_off.wait(within_s)

    # what the request asks for

    @property
    def behaviour(self) -> str:
        named = self.header("x-faulty") or str(self.json().get("model") or "ok")
        if not named.startswith("flaky-"):
            return named
        return "ok" if self.tries else named.removeprefix("flaky-")

    @property
    def is_stream(self) -> bool:
        return self.json().get("stream") is True

    def question(self) -> str:
        """Return the text of the last message, or the first text part if it is a list."""
        messages = self.json().get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else {}
        content = last.get("content") if isinstance(last, dict) else None
        if isinstance(content, list):
            content = next((part["text"] for part in content if "text" in part), "")
        return content if isinstance(content, str) else ""


# Completions, whole and in chunks


def texts_of(request: Received) -> list[str]:
    """Return the answers of all choices."""
    behaviour = request.behaviour
    if behaviour == "empty":
        return [""]
    if behaviour == "large":
        return ["p=0.61 " + "x" * 2**20]
    parts = request.question().split("|")
    if behaviour.startswith("say "):
        parts = [behaviour.removeprefix("say ")]
    if behaviour.startswith("judge "):
        p = float(behaviour.removeprefix("judge "))
        parts = [f"{p >= 0.5} {round(100 * p)}"]
    if behaviour == "in-turn":
        return [parts[request.number % len(parts)]]
    count = request.json().get("n")
    return [parts[i % len(parts)] for i in range(count if isinstance(count, int) else 1)]


def message_of(request: Received, text: str) -> Json:
    message: Json = {"role": "assistant", "content": text, "refusal": None}
    if request.behaviour == "reasoning":
        message["reasoning_content"] = "Let me think about it. p=0.33"
    if request.behaviour == "refusing":
        message |= {"content": None, "refusal": "I will not say."}
    if request.behaviour in ("tools", "parallel-tools"):
        message["content"] = None
        count = 2 if request.behaviour == "parallel-tools" else 1
        message["tool_calls"] = [_call(request, text, number) for number in range(count)]
    return message


def _call(request: Received, text: str, number: int) -> Json:
    tools = request.json().get("tools") or [{"function": {"name": "get_weather"}}]
    arguments = json.dumps({"city": text, "number": number})
    function = {"name": tools[0]["function"]["name"], "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def logprobs_of(request: Received, text: str) -> Json | None:
    """Return the log-probabilities of an answer's words, or None if the request wants none."""
    if not request.json().get("logprobs"):
        return None
    tokens = [{"token": word, "logprob": -0.1 * len(word)} for word in text.split()]
    if request.behaviour.startswith("judge "):
        p = float(request.behaviour.removeprefix("judge "))
        tops = {"True": p, "False": 1 - p}
        listed = [{"token": name, "logprob": math.log(at)} for name, at in tops.items() if at]
        tokens[0] |= {"logprob": math.log(tops[tokens[0]["token"]]), "top_logprobs": listed}
    elif request.behaviour != "likely":
        return None
    return {"content": tokens, "refusal": None}


def completion(request: Received) -> Json:
    messages = [message_of(request, text) for text in texts_of(request)]
    reason = "tool_calls" if "tool_calls" in messages[0] else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": f"{request.json().get('model')}-2099",
        "choices": [
            {
                "index": i,
                "message": message,
                "logprobs": logprobs_of(request, message["content"] or ""),
                "finish_reason": reason,
            }
            for i, message in enumerate(messages)
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        "system_fingerprint": "fp_1",
    }


def events(request: Received) -> list[bytes]:
    """Return the same completion as server-sent events: pieces, finish chunks, usage, [DONE]."""
    whole = completion(request)
    head = {key: whole[key] for key in ("id", "created", "model", "system_fingerprint")}
    head["object"] = "chat.completion.chunk"
    chunks: list[Json] = []
    for choice in whole["choices"]:
        place = {"index": choice["index"], "logprobs": None}
        tokens = (choice["logprobs"] or {}).get("content", [])
        for delta in _deltas(choice["message"]):
            part = {**place, "delta": delta, "finish_reason": None}
            if tokens and delta.get("content"):  # the first word with the first text
                part["logprobs"] = {"content": tokens[:1]}
                tokens = tokens[1:]
            chunks.append({**head, "choices": [part]})
        if tokens:
            part = {**place, "delta": {"content": ""}, "finish_reason": None}
            chunks.append({**head, "choices": [{**part, "logprobs": {"content": tokens}}]})
        finish = {**place, "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks.append({**head, "choices": [finish]})
    if (request.json().get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": whole["usage"]})
    return [*map(event, chunks), DONE]


def _deltas(message: Json) -> list[Json]:
    text = message["content"]
    deltas: list[Json] = [{"role": "assistant", "content": None if text is None else ""}]
    if "reasoning_content" in message:
        deltas += [{"reasoning_content": part} for part in _halves(message["reasoning_content"])]
    deltas += [{"content": part} for part in _halves(text or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        opening = {**call, "index": index, "function": {**function, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for part in _halves(function["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    return deltas


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def event(chunk: Json) -> bytes:
    return b"data: " + written(chunk) + b"\n\n"


def written(value: Json) -> bytes:
    """Return JSON in UTF-8; half a surrogate pair, which UTF-8 cannot have, becomes an escape."""
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


# The behaviours


def respond(request: Received) -> Response:
    """Return the upstream's response to a request, by its behaviour."""
    behaviour = request.behaviour
    if behaviour.startswith("status-"):
        return _error(int(behaviour.removeprefix("status-")))
    if behaviour in ("hang-up", "not-http"):
        garbage = b"" if behaviour == "hang-up" else b"what?\r\n\r\n"
        return Response([garbage, Cut()], framing="raw")
    if request.path == "/chat/completions" and request.method == "POST":
        is_streamed = request.is_stream or behaviour == "always-stream"
        return _streamed(request) if is_streamed else _whole(request)
    return _other_surface(request)


def _error(status: int) -> Response:
    message = f"upstream says {status}"
    error = {"message": message, "type": "t", "param": "p", "code": "c", "vendor": 1.0}
    headers: Headers = (*JSON, REQUEST_ID, ("openai-processing-ms", "12"))
    if status == 429:
        limits = (("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "7s"))
        headers = (*headers, ("retry-after", "7"), *limits)
    if status >= 500:
        headers = (*headers, ("retry-after-ms", "10"))
    return Response([json.dumps({"error": error}, indent=1).encode()], status, headers)


def _other_surface(request: Received) -> Response:
    body, headers = request.body, JSON
    if request.path == "/models":
        listed = [{"id": "ok", "object": "model", "created": 5, "owned_by": "us", "price": 1.0}]
        if request.header("authorization") == "Bearer sk-more":
            listed += [{"id": "more", "created": 7}, {"id": "elsewhere"}]
        body = json.dumps({"object": "list", "data": listed, "vendor": 1.0}).encode()
    elif request.header("content-type"):
        headers = (("Content-Type", request.header("content-type") or ""),)
    if request.behaviour == "cut":
        return Response([body[:1], Cut(), body[1:]], headers=headers)
    if request.behaviour == "slow":
        return Response([body], headers=headers, waits_first=True)
    return _encoded(request.behaviour, body, (*headers, REQUEST_ID))


def _encoded(encoding: str, body: bytes, headers: Headers) -> Response:
    name = {"broken-gzip": "gzip", "unknown-encoding": "rot13"}.get(encoding, encoding)
    if name not in (*ENCODERS, "rot13"):
        return Response([body], headers=headers)
    body = ENCODERS[encoding](body) if encoding in ENCODERS else body
    return Response([body], headers=(*headers, ("Content-Encoding", name)))


def _whole(request: Received) -> Response:
    body = written(completion(request))
    half = len(body) // 2
    headers: Headers = (*JSON, REQUEST_ID)
    match request.behaviour:
        case "told":
            return Response([written(request.json()["reply"])], headers=headers)
        case "vendor":
            return Response([VENDOR_BODY], headers=headers)
        case "spoofed":
            return Response([body], headers=(*headers, *_SPOOFED))
        case "html":
            return Response([b"<p>sorry</p>"], headers=(("Content-Type", "text/html"),))
        case "endless-html":
            headers = (("Content-Type", "text/html"),)
            return Response(_again(b"<p>"), headers=headers, framing="chunked")
        case "broken-json":
            return Response([body[:half]])
        case "slow":
            return Response([body], headers=headers, waits_first=True)
        case "gated":
            return Response([body[:half], Wait(), body[half:]], headers=headers)
        case "gated-cut":
            return Response([body[:half], Wait(), Cut(), body[half:]], headers=headers)
        case "split":
            return Response([body[i : i + 1] for i in range(len(body))], framing="chunked")
        case "cut":
            return Response([body[:half], Cut(), body[half:]], headers=headers)
        case "endless":
            return Response(_again(b" "), framing="chunked")
    return _encoded(request.behaviour, body, headers)


def _streamed(request: Received) -> Response:
    chunks: list[bytes] = events(request)
    headers: Headers = (*EVENTS, REQUEST_ID)
    steps: Iterable[Step] = chunks
    match request.behaviour:
        case "told":
            steps = [*map(event, request.json()["reply"]), DONE]
        case "vendor":
            steps = VENDOR_EVENTS
        case "gated":
            steps = [*chunks[:2], Wait(), *chunks[2:]]
        case "gated-cut":
            steps = [*chunks[:2], Wait(), Cut()]
        case "split":
            joined = b"".join(chunks)
            steps = [joined[i : i + 1] for i in range(len(joined))]
        case "crlf":
            steps = [b": hello\r\n\r\n", b"retry: 5\r\n", *map(_with_crlf, chunks)]
        case "error-event":
            steps = [*chunks[:2], event({"error": {"message": "oops", "code": "boom", "v": 1.0}})]
        case "cut":
            steps = [*chunks[:2], chunks[2][:20], Cut()]
        case "no-finish":
            steps = chunks[:2]
        case "huge-event":
            steps = [b"data: {", *[b"x" * 2**20] * 17, b"}\n\n", *chunks]
        case "half-event":
            steps = [*chunks[:2], chunks[2][:20]]
        case "no-done":
            steps = chunks[:-1]
        case "cut-after-done":
            steps = [*chunks, Cut()]
        case "endless":
            steps = itertools.chain(chunks[:2], _again(chunks[1]))
        case "html":
            return Response([b"<p>sorry</p>"], headers=(("Content-Type", "text/html"),))
        case "gzip":
            compressed = ENCODERS["gzip"](b"".join(chunks))
            return Response([compressed], headers=(*headers, ("Content-Encoding", "gzip")))
        case "spoofed":
            headers = (*headers, *_SPOOFED)
        case "at-once":
            return _at_once(Response([b"".join(chunks)], headers=headers, framing="chunked"))
    is_slow = request.behaviour == "slow"
    return Response(steps, headers=headers, framing="chunked", waits_first=is_slow)


def _at_once(response: Response) -> Response:
    """Return the same bytes in one step, so that the proxy always reads them in one piece."""
    [body] = response.steps
    assert isinstance(body, bytes)
    return Response([_head(response) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)], framing="raw")


def _again(part: bytes) -> Iterator[Step]:
    """Yield the same part for ever."""
    while True:
        yield part
        yield Pause(0.01)


def _with_crlf(event: bytes) -> bytes:
    return b"id: 7\r\n" + event.replace(b"\n", b"\r\n")


_SPOOFED: Headers = (
    ("x-pinocchio-confidence", "0.9999"),
    ("X-Pinocchio-Action", "deliver"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Authenticate", "Basic"),
    ("Connection", "x-named-by-connection"),
    ("x-named-by-connection", "1"),
    ("Set-Cookie", "a=1"),
    ("Set-Cookie", "b=2"),
    ("x-vendor", "caf\xe9"),
)


# The server


class _Reader(asyncio.StreamReader):
    """A reader that notices at once when the other side is gone."""

    def __init__(self) -> None:
        super().__init__(limit=2**24)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


class FaultyUpstream:
    """Serves on a thread of its own while its context lasts; remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def respond(self, request: Received) -> Response:
        """Return the response to a request; upstreams of other formats override this."""
        return respond(request)

    @property
    def last(self) -> Received:
        return self.requests[-1]

    def forget(self) -> None:
        self.requests.clear()

    def wait_for_request(self, count: int = 1, within_s: float = 30) -> Received:
        """Return the `count`th request since `forget`, once it has arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, within_s)
        return self.requests[count - 1]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> None:
        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_Reader(), self._serve)

        self._server = await self._loop.create_server(protocol, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, reader: Any, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request after request."""
        try:
            while request := await self._read(reader):
                with self._arrived:
                    request.number = len(self.requests)
                    if b'"flaky-' in request.body:
                        request.tries = sum(r.body == request.body for r in self.requests)
                    self.requests.append(request)
                    self._arrived.notify_all()
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Received | None:
        """Return the next request, or None at the end.

        Its body has a length, as the proxy always sends one.
        """
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        fields = [line.split(":", 1) for line in lines]
        headers = [(name.lower(), value.strip()) for name, value in fields]
        length = int(dict(headers).get("content-length", "0"))
        body = await reader.readexactly(length)
        return Received(method, target, headers, body, self._loop)

    async def _answer(
        self, request: Received, reader: _Reader, writer: asyncio.StreamWriter
    ) -> bool:
        """Play the response; return whether the connection stays open."""
        playing = asyncio.create_task(_play(self.respond(request), request, writer))
        gone = asyncio.create_task(reader.gone.wait())
        await asyncio.wait({playing, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if playing.done() and playing.exception() is None:
            return playing.result()
        playing.cancel()
        request._cut_off.set()
        return False


async def _play(response: Response, request: Received, writer: asyncio.StreamWriter) -> bool:
    """Write the response; return False if it breaks the connection off."""
    if response.waits_first:
        await request._gate.wait()
    if response.framing != "raw":
        writer.write(_head(response))
    for step in response.steps:
        match step:
            case Cut():
                await writer.drain()
                writer.close()  # what was written still arrives
                await writer.wait_closed()
                return False
            case Wait():
                await request._gate.wait()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case bytes():
                chunked = response.framing == "chunked"
                writer.write(b"%x\r\n%b\r\n" % (len(step), step) if chunked else step)
                await writer.drain()
    if response.framing == "chunked":
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return True


def _head(response: Response) -> bytes:
    fields = list(response.headers)
    if response.framing == "length":
        size = sum(len(step) for step in response.steps if isinstance(step, bytes))
        fields.append(("Content-Length", str(size)))
    else:
        fields.append(("Transfer-Encoding", "chunked"))
    lines = [f"HTTP/1.1 {response.status} Said", *(f"{name}: {value}" for name, value in fields)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
