"""A stream that passes through live: every event at once, only what must wait for a score waits.

In `passthrough` that is the event that finishes a choice; nothing can be held any more, the policy's
rules were looked at before the first byte went out. In `buffer_tools` it is also everything from the
first part of a tool call on, which `settle` then decides about. A score that misses its event can be
asked for later, at `/pinocchio/v1/results/{request id}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.errors import ProxyError, UpstreamBrokenError
from proxy.formats import Assembler, Choice, Format, Sight
from proxy.heartbeats import pings_until
from proxy.outcome import Outcome
from proxy.sse import Event, EventReader, EventTooLargeError

Judge = Callable[[list[Choice], str | None], Awaitable[Outcome]]
Settle = Callable[[Assembler, list[Event], frozenset[int]], Awaitable[bytes]]
READ_AT_ONCE = 2**16  # bytes that may wait until they are looked into


class LiveStream:
    """Iterate `relay` once for the bytes that go to the client.

    `judge` scores and decides for choices that are whole, from the model that upstream names;
    `pending` is what a finish event says when that takes longer than `wait_s`, and `attach` whether
    events say anything at all. With `settle`, tool calls wait: it gets what has arrived, the events
    that were withheld and which of them finish a choice, and gives the bytes to send instead. What
    is kept of a stream to score it is at most `max_bytes`.
    """

    def __init__(
        self,
        format: Format,
        judge: Judge,
        pending: Outcome,
        *,
        wait_s: float,
        attach: bool,
        max_bytes: int,
        settle: Settle | None = None,
    ) -> None:
        self._format = format
        self._judge = judge
        self._pending = pending
        self._wait_s = wait_s
        self._attach = attach
        self._max_bytes = max_bytes
        self._settle = settle
        self.assembler = format.assembler()
        self._reader = EventReader()
        self._unread: list[bytes] = []  # whole events that nobody has looked into
        self._unread_bytes = 0
        self._bytes = 0
        self._withheld: list[Event] | None = None  # from the first part of a tool call on
        self._withheld_finishes: set[int] = set()
        self._has_ended = False  # the format's end or an error of upstream's own went by
        self._is_opaque = False  # not looked into any more; the bytes still belong to the client
        self._judged: list[asyncio.Task[Outcome]] = []
        self.failure: ProxyError | None = None
        self.is_settled = False
        self.reason = "no_finish_chunk"  # why there is no outcome, if there is none

    async def relay(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for part in chunks:
                ready = self._take(part)
                if self._is_opaque or not self._concerns_us(ready):
                    if ready:
                        yield ready
                    continue
                async for piece in self._look_into(ready):
                    yield piece
        except ProxyError as error:
            if self._is_opaque:
                raise  # in the middle of an event nothing can be told
            self.failure = error
        async for piece in self._end():
            yield piece

    async def outcomes(self) -> list[Outcome]:
        """What was found about the choices that finished, also what missed its event."""
        return list(await asyncio.gather(*self._judged))

    def _take(self, part: bytes) -> bytes:
        """The whole events in what has arrived; what cannot be kept any longer is let go."""
        if self._is_opaque:
            return part
        self._bytes += len(part)
        try:
            if self._bytes > self._max_bytes:
                raise EventTooLargeError(f"a stream is larger than {self._max_bytes} bytes")
            return self._reader.take(part)
        except EventTooLargeError as error:
            if self._settle is not None:  # a policy has to decide on what is in it
                raise UpstreamBrokenError(str(error)) from error
            is_whole = self._bytes > self._max_bytes
            self._is_opaque, self.reason = True, "too_long"
            self._unread.clear()
            self.assembler = self._format.assembler()
            return self._reader.rest() + part if is_whole else self._reader.rest()

    def _concerns_us(self, ready: bytes) -> bool:
        """Whether an event is among them that must be looked at before it goes on."""
        if self._withheld is not None or self._format.marks.search(ready):
            return True
        self._unread.append(ready)
        self._unread_bytes += len(ready)
        if self._unread_bytes > READ_AT_ONCE:
            self._read_up()
        return False

    def _read_up(self) -> None:
        """Looks into the events that have gone by."""
        for event in self._reader.split(b"".join(self._unread)):
            self.assembler.add(event)
        self._unread.clear()
        self._unread_bytes = 0

    async def _look_into(self, ready: bytes) -> AsyncIterator[bytes]:
        self._read_up()
        passing: list[bytes] = []
        for event in self._reader.split(ready):
            sight = self.assembler.add(event)
            self._has_ended = self._has_ended or sight.is_end
            if self._withhold(event, sight):
                continue
            if sight.finished:
                if passing:
                    yield b"".join(passing)  # the text before a finish does not wait with it
                    passing.clear()
                yield await self._finish(event, sight)
            else:
                passing.append(event.raw)
        if passing:
            yield b"".join(passing)

    def _withhold(self, event: Event, sight: Sight) -> bool:
        """Keeps an event back if a tool call has begun and tool calls have to wait."""
        if self._settle is None or (self._withheld is None and not sight.calls_tool):
            return False
        self._withheld = self._withheld or []
        if sight.is_error:
            self._withheld.clear()  # of half an answer only the error is told
            event = event if sight.bare is None else Event(sight.bare, event.data)
        if sight.finished:
            self._withheld_finishes.add(len(self._withheld))
        self._withheld.append(event)
        return True

    async def _finish(self, event: Event, sight: Sight) -> bytes:
        """The finish event's bytes, which carry the outcome of its choices."""
        choices = [c for c in self.assembler.choices() if c.index in sight.finished]
        task = asyncio.ensure_future(self._judge(choices, self.assembler.model))
        self._judged.append(task)
        if not self._attach:
            return event.raw
        await asyncio.wait({task}, timeout=self._wait_s)
        outcome = task.result() if task.done() else self._pending
        return self._format.annotated(event, outcome.member())

    async def _end(self) -> AsyncIterator[bytes]:
        """What the client gets when upstream has sent all it will."""
        if self._is_opaque:
            return
        self._read_up()
        if self._has_ended:
            self.failure = None  # upstream had said all there was
        elif self.failure is None and self._withheld is not None and self._is_cut():
            self.failure = UpstreamBrokenError("upstream's stream ended before its finish chunk")
        if self.failure is not None:
            self.reason = "stream_broke_off"
            yield self._format.error_event(self.failure)
            return
        if self._withheld is not None:
            async for piece in self._settled(self._withheld):
                yield piece
        if rest := self._reader.rest():
            yield rest

    async def _settled(self, withheld: list[Event]) -> AsyncIterator[bytes]:
        """Decides on a stream with tool calls, now that it is whole."""
        if self._settle is None or not self._withheld_finishes:
            yield b"".join(event.raw for event in withheld)  # an error of upstream's own
            return
        self.is_settled = True
        finishes = frozenset(self._withheld_finishes)
        work = asyncio.ensure_future(self._settle(self.assembler, withheld, finishes))
        try:
            async for piece in pings_until(work):
                yield piece
        except ProxyError as error:
            yield self._format.error_event(error)

    def _is_cut(self) -> bool:
        return any(choice.finish_reason is None for choice in self.assembler.choices())
