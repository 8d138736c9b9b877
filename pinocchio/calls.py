"""The confidences of tool calls, by the ids of the calls, for whoever decides whether one is run.

    seen = SeenCalls()
    client = OpenAI(base_url=URL, http_client=DefaultHttpxClient(event_hooks=seen.hooks))
    ...                               # whatever is built on the client
    seen.is_unsure(call_id, 0.9)      # no number counts as unsure

Listens at an HTTP client of the httpx family, where every framework's replies pass, whole or
streamed, and needs the standard library alone. `pinocchio.langchain`, `pinocchio.openai_agents` and
`pinocchio.pydantic_ai` make the predicates of these frameworks from it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from typing import Any

_MEMBER = "pinocchio"
_JSON, _EVENTS = "application/json", "text/event-stream"
_MOST_BYTES = 64 * 2**20  # of a reply that is read for its calls


class SeenCalls:
    """What the proxy said of the latest calls, at most `most` of them."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._confidences: OrderedDict[str, float] = OrderedDict()

    @property
    def hooks(self) -> dict[str, list[Any]]:
        """For `event_hooks` of a synchronous client."""
        return {"response": [self._listen]}

    @property
    def async_hooks(self) -> dict[str, list[Any]]:
        """For `event_hooks` of an asynchronous client."""
        return {"response": [self._listen_later]}

    def confidence(self, call_id: str) -> float | None:
        """P(correct) of the reply that made this call; None where the proxy gave no number, or the
        call was not seen here."""
        return self._confidences.get(call_id)

    def is_unsure(self, call_id: str, below: float) -> bool:
        """Whether the call has no confidence of at least `below`."""
        confidence = self.confidence(call_id)
        return confidence is None or confidence < below

    def note(self, call_id: str, confidence: float) -> None:
        """Keeps a confidence, in the place of the oldest one where there are too many."""
        self._confidences[call_id] = confidence
        self._confidences.move_to_end(call_id)
        while len(self._confidences) > self._most:
            self._confidences.popitem(last=False)

    def _listen(self, response: Any) -> None:
        self._listen_at(response, "SyncByteStream", _SYNC)

    async def _listen_later(self, response: Any) -> None:
        self._listen_at(response, "AsyncByteStream", _ASYNC)

    def _listen_at(self, response: Any, base: str, own: dict[str, Any]) -> None:
        if (reading := self._reading(response)) is None:
            return
        if response.is_closed:  # as a transport that keeps replies gives them, without a stream
            reading.add(response.content)
            reading.finish()
        else:
            response.stream = _heard(response.stream, reading, base, own)

    def _reading(self, response: Any) -> _Reading | None:
        """What reads a response; None where nothing can be said of a call."""
        headers = response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip()
        is_packed = "content-encoding" in headers  # the proxy sends nothing packed that it adds to
        return (
            None if is_packed or kind not in (_JSON, _EVENTS) else _Reading(self, kind == _EVENTS)
        )


class _Reading:
    """The body of one reply as it passes: its calls and what is said of them."""

    def __init__(self, seen: SeenCalls, is_stream: bool) -> None:
        self._seen = seen
        self._is_stream = is_stream
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= _MOST_BYTES:
            self._pieces.append(piece)

    def finish(self) -> None:
        """Notes the confidence of each call, once the client has read the body or closes it."""
        calls: dict[str, None] = {}
        confidence = None
        for document in self._documents():
            calls |= dict.fromkeys(_ids_of_calls(document))
            found = _confidence_in(document)
            confidence = confidence if found is None else found
        self._pieces.clear()
        if confidence is not None:
            for call_id in calls:
                self._seen.note(call_id, confidence)

    def _documents(self) -> Iterator[Any]:
        text = b"".join(self._pieces)
        parts = [text]
        if self._is_stream:
            parts = [line[5:] for line in text.splitlines() if line.startswith(b"data:")]
        for part in parts:
            try:
                yield json.loads(part)
            except (ValueError, RecursionError):  # [DONE], or an event that is not whole yet
                continue


def _confidence_in(document: Any) -> float | None:
    """The number in the member of a reply or of the event that finishes a stream; of several
    choices the lowest."""
    owners = (document, document.get("response")) if isinstance(document, dict) else ()
    for owner in owners:
        member = owner.get(_MEMBER) if isinstance(owner, dict) else None
        value = member.get("confidence") if isinstance(member, dict) else None
        if isinstance(value, int | float):
            return float(value)
    return None


def _ids_of_calls(part: Any) -> Iterator[str]:
    """The ids of calls in a reply or an event, of chat completions, responses or messages."""
    if isinstance(part, list):
        for each in part:
            yield from _ids_of_calls(each)
    if not isinstance(part, dict):
        return
    is_call = "function" in part or part.get("type") in ("tool_use", "custom")
    for name in ("id",) if is_call else ("call_id",):
        if isinstance(part.get(name), str):
            yield part[name]
    for name, each in part.items():
        if name != _MEMBER:
            yield from _ids_of_calls(each)


def _heard(stream: Any, reading: _Reading, base: str, own: dict[str, Any]) -> Any:
    """The body, which tells what passes; of the class of streams that its client demands."""
    kind = next(each for each in type(stream).__mro__ if each.__name__ == base)
    heard = type("HeardStream", (kind,), own)()
    heard.stream, heard.reading = stream, reading
    return heard


def _iterate(self: Any) -> Iterator[bytes]:
    for piece in self.stream:
        self.reading.add(piece)
        yield piece


async def _iterate_later(self: Any) -> AsyncIterator[bytes]:
    async for piece in self.stream:
        self.reading.add(piece)
        yield piece


def _close(self: Any) -> None:
    self.reading.finish()
    self.stream.close()


async def _close_later(self: Any) -> None:
    self.reading.finish()
    await self.stream.aclose()


_SYNC = {"__iter__": _iterate, "close": _close}
_ASYNC = {"__aiter__": _iterate_later, "aclose": _close_later}
