"""The confidences of tool calls by their ids, for code that decides whether to run them.

    seen = SeenCalls()
    client = OpenAI(base_url=URL, http_client=DefaultHttpxClient(event_hooks=seen.hooks))
    ...                               # any code that uses the client
    seen.is_unsure(call_id, 0.3)      # no number counts as unsure

It listens at an HTTP client of the httpx family, which all frameworks' replies pass through, whole
or streamed, and needs only the standard library. `pinocchio.langchain`, `pinocchio.openai_agents`
and `pinocchio.pydantic_ai` build the predicates of these frameworks on it.

Where the proxy gave no number, or there is no proxy, `SeenCalls(judge=Pinocchio())` scores chat
completions in this process, once for each reply. This is optional, because a calibrator takes
seconds to load, and memory.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

_MEMBER = "pinocchio"
_JSON, _EVENTS = "application/json", "text/event-stream"
_BY_ID = ("tool_use", "custom", "mcp_approval_request")  # kinds of calls with an `id`
_MOST_BYTES = 64 * 2**20  # of one reply; a longer one is cut


class Judge(Protocol):
    """An object that scores a reply, such as `pinocchio.Pinocchio`."""

    def score(self, response: Any, *, messages: Any, tools: Any) -> float: ...


@dataclass(frozen=True, slots=True)
class SeenCall:
    """The known facts about a call; `request_id` is that of the reply which makes it.

    `marks` are the signs that it is wrong, each with the argument that it is about or an empty
    text, and `risk` is low, medium or high. Both are None where the proxy gave neither.
    """

    confidence: float | None = None
    name: str | None = None
    request_id: str | None = None
    marks: tuple[tuple[str, str], ...] | None = None
    risk: str | None = None


class SeenCalls:
    """The proxy's facts about the latest calls, at most `most` of them.

    `judge` scores chat completions that came without a number.
    """

    def __init__(self, most: int = 10_000, *, judge: Judge | None = None) -> None:
        """Keep the latest `most` calls; `judge` scores chat completions without a number."""
        self._most = most
        self._judge = judge
        self._calls: OrderedDict[str, SeenCall] = OrderedDict()

    @property
    def hooks(self) -> dict[str, list[Any]]:
        """The `event_hooks` of a synchronous client."""
        return {"response": [self._listen]}

    @property
    def async_hooks(self) -> dict[str, list[Any]]:
        """The `event_hooks` of an asynchronous client."""
        return {"response": [self._listen_later]}

    def confidence(self, call_id: str) -> float | None:
        """Return P(correct) of the reply that made this call.

        Return None where the proxy gave no number, or the call was not seen here.
        """
        return self.get(call_id).confidence

    def get(self, call_id: str) -> SeenCall:
        """Return the facts about a call; all of them are None for a call that was not seen."""
        return self._calls.get(call_id, SeenCall())

    def is_unsure(self, call_id: str, below: float) -> bool:
        """Return whether the call has no confidence, or one below `below`."""
        confidence = self.confidence(call_id)
        return confidence is None or confidence < below

    def note(
        self,
        call_id: str,
        confidence: float | None,
        name: str | None = None,
        request_id: str | None = None,
        marks: tuple[tuple[str, str], ...] | None = None,
        risk: str | None = None,
    ) -> None:
        """Keep the facts about a call, and drop the oldest calls beyond the limit `most`."""
        self._calls[call_id] = SeenCall(confidence, name, request_id, marks, risk)
        self._calls.move_to_end(call_id)
        while len(self._calls) > self._most:
            self._calls.popitem(last=False)

    def judged(self, request_body: bytes, documents: list[Any]) -> float | None:
        """Return the judge's P(correct) of a chat completion; None without a judge, or if it fails.

        `documents` is the reply: one JSON object, or the events of a stream in their order.
        """
        if self._judge is None:
            return None
        try:
            request = json.loads(request_body)
            reply = documents[0] if len(documents) == 1 else _put_together(documents)
            tools = request.get("tools")
            return float(self._judge.score(reply, messages=request["messages"], tools=tools))
        except Exception:  # a judge may raise anything; the call then counts as unsure
            return None

    def _listen(self, response: Any) -> None:
        """Read the body of an httpx response for calls: the hook of a synchronous client."""
        self._listen_at(response, "SyncByteStream", _SYNC)

    async def _listen_later(self, response: Any) -> None:
        """Read the body of a response for calls: the hook of an asynchronous client."""
        self._listen_at(response, "AsyncByteStream", _ASYNC)

    def _listen_at(self, response: Any, base: str, methods: dict[str, Any]) -> None:
        """Replace the stream of a response by one that also reads it for calls.

        A response that is closed already is read at once; one whose body cannot hold calls is left
        alone. `base` is the name of httpx's class of streams, `methods` are the methods of the new
        stream.
        """
        if (reading := self._reading(response)) is None:
            return
        if response.is_closed:  # a caching transport returns replies without a stream
            reading.add(response.content)
            reading.finish()
        else:
            response.stream = _record_body(response.stream, reading, base, methods)

    def _reading(self, response: Any) -> _Reading | None:
        """Return a reader of the response's body, or None for a body that cannot hold calls.

        Only unpacked JSON and server-sent events are read.
        """
        headers = response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip()
        is_packed = "content-encoding" in headers  # the proxy packs no body it adds to
        if is_packed or kind not in (_JSON, _EVENTS):
            return None
        request = getattr(response, "_request", None)  # `request` raises where there is none
        request_body = getattr(request, "_content", b"")  # empty for a streamed body
        return _Reading(self, kind == _EVENTS, request_body)


class _Reading:
    """The body of one reply as it passes through, read for its calls and their facts."""

    def __init__(self, seen: SeenCalls, is_stream: bool, request_body: bytes) -> None:
        """Begin to read a reply to a request; its body is empty if it was streamed."""
        self._seen = seen
        self._is_stream = is_stream
        self._request_body = request_body
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Keep a piece of the body, unless the reply is longer than `_MOST_BYTES`."""
        self._size += len(piece)
        if self._size <= _MOST_BYTES:
            self._pieces.append(piece)

    def finish(self) -> None:
        """Note the facts about each call of the body, which the client has read or closes."""
        calls: dict[str, str | None] = {}
        confidence = request_id = None
        notes: dict[str, tuple[tuple[tuple[str, str], ...], str | None]] = {}
        documents = list(self._documents())
        self._pieces.clear()
        for document in documents:
            calls |= {id: name or calls.get(id) for id, name in _calls_in(document)}
            member = _member_in(document)
            confidence = _number(member.get("confidence"), confidence)
            request_id = member.get("request_id", request_id)
            notes |= _notes_in(member)
        if calls and confidence is None:
            confidence = self._seen.judged(self._request_body, documents)
        for id, name in calls.items():
            marks, risk = notes.get(id, (None, None))
            self._seen.note(id, confidence, name, request_id, marks, risk)

    def _documents(self) -> Iterator[Any]:
        """Yield the JSON values in the body: the reply itself, or each event of a stream.

        Events that are no JSON, such as `[DONE]`, are passed over.
        """
        text = b"".join(self._pieces)
        parts = [text]
        if self._is_stream:
            parts = [line[5:] for line in text.splitlines() if line.startswith(b"data:")]
        for part in parts:
            try:
                yield json.loads(part)
            except (ValueError, RecursionError):  # [DONE], or an event that is not whole yet
                continue


def _member_in(document: Any) -> dict[str, Any]:
    """Return the member `pinocchio` of a reply, or of the event that ends a stream; {} without one.

    Its confidence is the lowest of several choices.
    """
    owners = (document, document.get("response")) if isinstance(document, dict) else ()
    for owner in owners:
        member = owner.get(_MEMBER) if isinstance(owner, dict) else None
        if isinstance(member, dict):
            return member
    return {}


def _notes_in(
    member: dict[str, Any],
) -> dict[str, tuple[tuple[tuple[str, str], ...], str | None]]:
    """Return the marks and the risk of each call in a member `pinocchio`, by the call's id.

    A mark is a pair of its name and the argument that it is about, such as `("not_in_request",
    "amount")`; the risk is `low`, `medium` or `high`, or None.
    """
    found = {}
    choices = member.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        calls = choice.get("calls") if isinstance(choice, dict) else None
        for call in calls if isinstance(calls, list) else ():
            marks = call.get("marks", [])
            pairs = tuple((str(m.get("mark")), str(m.get("argument", ""))) for m in marks)
            if isinstance(call.get("id"), str):
                found[call["id"]] = pairs, call.get("risk")
    return found


def _number(value: Any, otherwise: float | None) -> float | None:
    """Return an int, float or bool as a float, or `otherwise`, also for a text such as `"0.9"`."""
    return float(value) if isinstance(value, int | float) else otherwise


def _calls_in(part: Any) -> Iterator[tuple[str, str | None]]:
    """Yield the id and the name (or None) of each call in a reply or an event, however deep.

    The reply may be of chat completions, responses or messages; other values yield nothing.
    """
    if isinstance(part, list):
        for each in part:
            yield from _calls_in(each)
    if not isinstance(part, dict):
        return
    function = part.get("function") or part.get("custom")
    is_call = "function" in part or part.get("type") in _BY_ID
    for key in ("id",) if is_call else ("call_id",):
        if isinstance(part.get(key), str):
            owner = function if isinstance(function, dict) else part
            name = owner.get("name")
            yield part[key], name if isinstance(name, str) else None
    for key, each in part.items():
        if key != _MEMBER:
            yield from _calls_in(each)


def _put_together(events: list[Any]) -> dict[str, Any]:
    """Return the first choice of a streamed chat completion, in the form of a whole completion."""
    calls: dict[int, dict[str, Any]] = {}
    text = ""
    choices = [each for event in events for each in event.get("choices", ())]
    for delta in (each["delta"] for each in choices if not each.get("index")):
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or ():
            new = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(piece.get("index", 0), new)
            call["id"] = piece.get("id") or call["id"]
            function = piece.get("function") or {}
            call["function"]["name"] = function.get("name") or call["function"]["name"]
            call["function"]["arguments"] += function.get("arguments") or ""
    message = {"role": "assistant", "content": text or None, "tool_calls": [*calls.values()]}
    model = next((event["model"] for event in events if event.get("model")), None)
    return {"model": model, "choices": [{"index": 0, "message": message}]}


def _record_body(stream: Any, reading: _Reading, base: str, methods: dict[str, Any]) -> Any:
    """Return a stream that passes on the bytes of `stream`, and gives each piece to `reading`.

    Its class has these `methods` and derives from the class named `base`, which the client
    requires.
    """
    kind = next(each for each in type(stream).__mro__ if each.__name__ == base)
    recorded = type("ReadStream", (kind,), methods)()
    recorded.stream, recorded.reading = stream, reading
    return recorded


def _iterate(self: Any) -> Iterator[bytes]:
    """Yield the pieces of the body, and give each to the reader first."""
    for piece in self.stream:
        self.reading.add(piece)
        yield piece


async def _iterate_later(self: Any) -> AsyncIterator[bytes]:
    """Yield the pieces of the body, and give each to the reader first."""
    async for piece in self.stream:
        self.reading.add(piece)
        yield piece


def _close(self: Any) -> None:
    """Note the calls that were read, then close the stream."""
    self.reading.finish()
    self.stream.close()


async def _close_later(self: Any) -> None:
    """Note the calls that were read, then close the stream."""
    self.reading.finish()
    await self.stream.aclose()


_SYNC = {"__iter__": _iterate, "close": _close}
_ASYNC = {"__aiter__": _iterate_later, "aclose": _close_later}
