"""A stream that passes through live: every event at once, only the finish chunk waits for a score.

Nothing can be held here any more; the policy's rules were looked at before the first byte went
out. A score that misses its chunk can be asked for later, at `/pinocchio/v1/results/{request id}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.answer import error_event
from proxy.completion import Choice, StreamAssembler, annotate_event, json_object
from proxy.errors import ProxyError, UpstreamBrokenError
from proxy.outcome import Outcome
from proxy.sse import DONE, Event, EventReader, EventTooLargeError

Judge = Callable[[list[Choice], str | None], Awaitable[Outcome]]


class LiveStream:
    """Iterate it once for the bytes that go to the client.

    `judge` scores and decides for choices that are whole, from the model that upstream names;
    `pending` is what a finish chunk says when that takes longer than `wait_s`, and `attach`
    whether chunks say anything at all.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        judge: Judge,
        pending: Outcome,
        *,
        wait_s: float,
        attach: bool,
    ) -> None:
        self._chunks = chunks
        self._judge = judge
        self._pending = pending
        self._wait_s = wait_s
        self._attach = attach
        self._assembler = StreamAssembler()
        self._has_ended = False  # [DONE] or an error of upstream's own went by
        self._is_unreadable = False  # no stream of chunks; the bytes still belong to the client
        self._judged: list[asyncio.Task[Outcome]] = []
        self.failure: ProxyError | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reader = EventReader()
        try:
            async for part in self._chunks:
                if self._is_unreadable:
                    yield part
                    continue
                try:
                    events = reader.feed(part)
                except EventTooLargeError:
                    self._is_unreadable, events = True, []
                    yield reader.rest()
                for event in events:
                    yield await self._pass(event)
        except ProxyError as error:
            if self._is_unreadable:
                raise  # in the middle of an event nothing can be told
            self.failure = error
        if self.failure is None and self._is_cut():
            self.failure = UpstreamBrokenError("upstream's stream ended before its finish chunk")
        if self._has_ended:
            self.failure = None  # upstream had said all there was
        if self.failure is not None:
            yield error_event(self.failure)
        elif rest := reader.rest():
            yield rest

    async def outcomes(self) -> list[Outcome]:
        """What was found about the choices that finished, also what missed its chunk."""
        return list(await asyncio.gather(*self._judged))

    def _is_cut(self) -> bool:
        unfinished = any(choice.finish_reason is None for choice in self._assembler.choices())
        return unfinished and not self._is_unreadable and not self._has_ended

    async def _pass(self, event: Event) -> bytes:
        """The event's bytes; those of a finish chunk carry the outcome of its choice."""
        chunk = json_object(event.data) if event.data and event.data != DONE else None
        if chunk is None or "error" in chunk:
            self._has_ended = self._has_ended or chunk is not None or event.data == DONE
            return event.raw
        finished = [self._assembler.choice(index) for index in self._assembler.add(chunk)]
        if not finished:
            return event.raw
        task = asyncio.ensure_future(self._judge(finished, self._assembler.model))
        self._judged.append(task)
        if not self._attach:
            return event.raw
        await asyncio.wait({task}, timeout=self._wait_s)
        outcome = task.result() if task.done() else self._pending
        return annotate_event(event, outcome.member())
