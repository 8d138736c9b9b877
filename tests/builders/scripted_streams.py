"""Streams whose every byte and pause a test decides, and a client that reads them as they arrive.

with ScriptedUpstream() as upstream:
    upstream.steps = [*TEXT, *call("send_email", '{"to":'), Wait(), finish("tool_calls"), DONE]
    with RawStream(proxy.port, {"model": "m", "stream": True, ...}) as stream:
        stream.until(b"look")
        upstream.last.proceed()
        rest = stream.rest()
"""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from proxy.exchange.exchange import Exchange
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, proxies, question, until
from tests.servers.faulty_upstream import (
    DONE,
    EVENTS,
    FaultyUpstream,
    Received,
    Response,
    Step,
    event,
)

Json = dict[str, Any]
CHAT = "/v1/chat/completions"
PATIENCE_S = 30  # longer than anything takes, even on a busy machine
QUIET_S = 0.1  # time for what was sent before to arrive


# The upstream


class ScriptedUpstream(FaultyUpstream):
    """Answers every request with the steps of its model in `by_model`, or else with `steps`."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def respond(self, request: Received) -> Response:
        steps = self.by_model.get(str(request.json().get("model")), self.steps)
        return Response(steps, headers=EVENTS, framing="chunked")

    def forget(self) -> None:
        super().forget()
        self.steps: Iterable[Step] = ()
        self.by_model: dict[str, Iterable[Step]] = {}

    @property
    def step_bytes(self) -> bytes:
        """The bytes of `steps`, without the pauses."""
        return b"".join(step for step in self.steps if isinstance(step, bytes))

    def is_left(self, within_s: float = 2) -> bool:
        """Whether the last request's connection is closed in time, before its steps have ended."""
        return self.last.is_cut_off(within_s)


@contextmanager
def proxies_before(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartProxy]:
    """Yield a function that starts a proxy in front of the upstream, or returns a running one.

    A running proxy is returned if it has the same options.
    """

    def make(upstream: Json | None = None, **options: Any) -> LiveProxy:
        folder = tmp_path_factory.mktemp("proxy")
        spoken = {"speaks": "both", **(upstream or {})}
        return LiveProxy(base_url, folder, upstream=spoken, **options)

    base_url = upstream.base_url
    with proxies(make) as start:
        yield start


# Chunks of chat completions


def chunk(delta: Json, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2099"}
    return event({**head, "choices": [choice], **more})


def finish(reason: str = "stop", index: int = 0, **more: Any) -> bytes:
    return chunk({}, reason, index, **more)


def text(*pieces: str, index: int = 0) -> list[bytes]:
    """Return the chunks of a text: one with the role, then one for each piece."""
    opening = chunk({"role": "assistant", "content": "", "refusal": None}, index=index)
    return [opening, *(chunk({"content": piece}, index=index) for piece in pieces)]


def call(
    name: str, *arguments: str, number: int = 0, index: int = 0, opening: Json | None = None
) -> list[bytes]:
    """Return the chunks of a tool call: its opening, then its arguments piece by piece."""
    function = {"name": name, "arguments": ""}
    first = {"index": number, "id": f"call_{number}", "type": "function", "function": function}
    pieces = [{"index": number, "function": {"arguments": piece}} for piece in arguments]
    opened = chunk({**(opening or {}), "tool_calls": [first]}, index=index)
    return [opened, *(chunk({"tool_calls": [piece]}, index=index) for piece in pieces)]


TEXT = text("Let me ", "look. ")
USAGE = event({"id": "chatcmpl-1", "model": "m-2099", "choices": [], "usage": {"total_tokens": 7}})


def email(confidence: str) -> list[bytes]:
    """Return the chunks of a call whose arguments contain its confidence."""
    return call("send_email", '{"to": "ann",', f' "about": "p={confidence}"}}')


CALLS = finish("tool_calls")
SURE = [*TEXT, *email("0.9"), CALLS, DONE]
UNSURE = [*TEXT, *email("0.1"), CALLS, DONE]
SEEN = b"".join(TEXT)  # what a client has received before the call


def call_policy(
    then: str, when: str = "tools: any, confidence: {below: 0.3}", more: str = ""
) -> str:
    """Return a policy that does `then` with unsure tool calls."""
    rule = f"{{name: unsure calls, when: {{{when}}}, then: {then}}}"
    return f"version: 1\nname: desk\n{more}\nrules: [{rule}]\ndefault: deliver\n"


def has_no_call(body: bytes) -> bool:
    """Whether the body contains no part of the call that `email` makes."""
    return not any(word in body for word in (b"send_email", b"ann", b"call_0", b"tool_calls"))


def data_in(stream: bytes) -> list[Json]:
    """Return the JSON objects in the data of all events, in any format."""
    return [json.loads(li[6:]) for li in stream.splitlines() if li.startswith(b"data: {")]


# The client


@dataclass
class RawStream:
    """One POST on a bare socket and the body of its reply as it arrives; a context that closes it.

    With `receive_bytes`, the client's system accepts no more than about that before it is read.
    """

    port: int
    body: Json
    path: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    receive_bytes: int | None = None

    def __enter__(self) -> RawStream:
        self._socket = socket.socket()
        if self.receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(("127.0.0.1", self.port))
        body = json.dumps(self.body).encode()
        fields = {
            "host": f"127.0.0.1:{self.port}",
            "content-type": "application/json",
            "authorization": "Bearer sk-client",
            "anthropic-version": "2023-06-01",
            "content-length": str(len(body)),
            **self.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket.sendall(f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        self._wire = bytearray()
        self.seen = bytearray()  # of the body
        self.status = 0
        self.fields: dict[str, str] = {}
        self.is_whole = False
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def head(self) -> int:
        """Return the status as soon as the head has arrived."""
        while not self.status:
            assert self._more() or self.status, "the connection was closed"
        return self.status

    def until(self, wanted: bytes) -> bytes:
        """Return the body so far as soon as it contains these bytes."""
        while wanted not in self.seen:
            is_on = self._more() or wanted in self.seen
            assert is_on, f"it ended before {wanted!r}: {bytes(self.seen)!r}"
        return bytes(self.seen)

    def for_a_while(self, seconds: float = QUIET_S) -> bytes:
        """Return the body after reading for this many seconds."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                if not self._more():
                    break
            except TimeoutError:
                break
        self._socket.settimeout(PATIENCE_S)
        return bytes(self.seen)

    def rest(self) -> bytes:
        """Return the whole body, or the part that arrived; `is_whole` says which."""
        while self._more():
            pass
        return bytes(self.seen)

    def _more(self) -> bool:
        """Read the next bytes; return False at the end of the body or the connection."""
        if self.is_whole:
            return False
        try:
            data = self._socket.recv(2**18)
        except ConnectionError:
            data = b""
        self._wire += data
        if not self.status:
            self._read_head()
        if self.status:
            self._read_chunks()
        return bool(data) and not self.is_whole

    def _read_head(self) -> None:
        head, end, rest = bytes(self._wire).partition(b"\r\n\r\n")
        if end:
            first, *lines = head.decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in lines)
            self.fields = {name.lower(): value.strip() for name, _, value in pairs}
            self.status = int(first.split()[1])
            self._wire = bytearray(rest)

    def _read_chunks(self) -> None:
        if (length := self.fields.get("content-length")) is not None:
            self.seen, self.is_whole = self._wire, len(self._wire) == int(length)
            return
        while (end := self._wire.find(b"\r\n")) >= 0 and not self.is_whole:
            size = int(self._wire[:end], 16)
            if len(self._wire) < end + 2 + size + 2:
                return
            self.seen += self._wire[end + 2 : end + 2 + size]
            del self._wire[: end + 2 + size + 2]
            self.is_whole = size == 0


def streamed(proxy: LiveProxy, body: Json | None = None, path: str = CHAT) -> RawStream:
    """Return the reply to a request, read to its end and closed."""
    with RawStream(proxy.port, body or stream_request(), path) as stream:
        stream.head()
        stream.rest()
    return stream


def stream_request(prompt: str = "do it", model: str = "m", **fields: Any) -> Json:
    return question(prompt, model, stream=True, **fields)


# What is known afterwards


def recorded(proxy: LiveProxy, request_id: str) -> Json:
    """Return the one row of a request.

    Fails if there is none, or more than one, after a while.
    """
    rows: list[Json] = []

    def is_there() -> bool:
        with sqlite3.connect(proxy.store_path) as database:
            database.row_factory = sqlite3.Row
            found = database.execute("SELECT * FROM exchanges WHERE request_id = ?", (request_id,))
            rows[:] = [dict(row) for row in found]
        database.close()
        return bool(rows)

    until(is_there)
    [row] = rows
    return row


def result(proxy: LiveProxy, request_id: str) -> Json:
    """Return the result stored under a request's id once it is no longer `pending`."""
    path = f"/pinocchio/v1/results/{request_id}"
    until(lambda: proxy.http.get(path).json()["status"] != "pending")
    found: Json = proxy.http.get(path).json()
    return found


def accumulated(proxy: LiveProxy, **fields: Any) -> ChatCompletion:
    """Return the completion that the official client accumulates from a stream."""
    messages: Any = [{"role": "user", "content": "do it"}]
    with proxy.openai.chat.completions.stream(model="m", messages=messages, **fields) as stream:
        for _ in stream:
            pass
        return stream.current_completion_snapshot


def only_choice(completion: ChatCompletion) -> Any:
    [choice] = completion.choices
    assert choice.message.role == "assistant"
    return choice


def closings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each exchange that closes from now on appends its request id."""
    closed: list[str] = []
    close = Exchange.close

    def counted(exchange: Exchange, *arguments: Any) -> None:
        closed.append(exchange.request_id)
        close(exchange, *arguments)

    monkeypatch.setattr(Exchange, "close", counted)
    return closed
