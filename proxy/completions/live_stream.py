"""A stream that passes through live: every event at once, only what must wait for a score waits.

In `passthrough` that is the event that finishes a choice; nothing can be held any more, the
policy's rules were looked at before the first byte went out. In `buffer_tools` it is also
everything from the first part of a tool call on, which `settle` then decides about. A score that
misses its event can be asked for later, at `/pinocchio/v1/results/{request id}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proxy.completions import heartbeats
from proxy.errors import UNREADABLE_EVENT, ProxyError, UnreadableReplyError, UpstreamBrokenError
from proxy.exchange.outcome import Outcome
from proxy.formats import Assembler, Choice, Format, Sight
from proxy.formats.events.uniform_events import LEARNT_FROM, parted
from proxy.scoring.deadlines import Deadlines
from proxy.wire.sse import MAX_EVENTS, Event, EventReader, EventTooLargeError, data_of, hides_data

Judge = Callable[[list[Choice], Assembler], Awaitable[Outcome]]
Settle = Callable[[Assembler, list[Event], frozenset[int]], Awaitable[bytes]]
READ_AT_ONCE = 2**16  # bytes that may wait until they are looked into
MANY_EVENTS = 2**12  # bytes of so many that looking for marks in them costs more than reading them


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """An event, and which choices it finishes."""

    event: Event
    choices: tuple[int, ...]


class LiveStream:
    """Iterate `relay` once for the bytes that go to the client.

    `judge` scores and decides for choices that are whole, from the model that upstream names;
    `pending` is what a finish event says when that takes longer than `waits` allows, and `attach`
    whether events say anything at all. With `settle`, tool calls wait: it gets what has arrived,
    the events that were withheld and which of them finish a choice, and gives the bytes to send
    instead. What is kept of a stream to score it is at most `max_bytes`: a longer one goes on
    unscored, or ends in an error where tool calls wait.
    """

    def __init__(
        self,
        format: Format,
        judge: Judge,
        pending: Outcome,
        waits: Deadlines,
        *,
        attach: bool,
        max_bytes: int,
        settle: Settle | None = None,
    ) -> None:
        self._format = format
        self._judge = judge
        self._pending = pending
        self._waits = waits
        self._attach = attach
        self._max_bytes = max_bytes
        self._settle = settle
        self.assembler = format.assembler()
        self._reader = EventReader()
        self._unread: list[bytes] = []  # whole events that nobody has looked into
        self._unread_bytes = 0
        self._bytes = 0
        self._events = 0  # that were looked into
        self._withheld: list[Event] | None = None  # from the first part of a tool call on
        self._withheld_finishes: set[int] = set()
        self._ping_at = 0.0  # while events are withheld
        self._has_ended = False  # the format's end or an error of upstream's own went by
        self._has_failed = False  # an error of upstream's own went by
        self._is_opaque = False  # not looked into any more; the bytes still belong to the client
        self._judged: list[asyncio.Task[Outcome]] = []
        self.is_settled = False
        self.reason = "client_left"  # why there is no outcome, if there is none

    async def relay(
        self, chunks: AsyncIterator[bytes], in_upstream: AbstractContextManager[None]
    ) -> AsyncIterator[bytes]:
        """What the client gets for upstream's `chunks`; they are waited for `in_upstream`."""
        failure: ProxyError | None = None
        try:
            while True:
                with in_upstream:
                    part = await anext(chunks, None)
                if part is None:
                    break
                passing, looked_into = self._parted(self._take(part))
                if passing:
                    yield passing
                for piece in self._look_into(looked_into):
                    yield piece if isinstance(piece, bytes) else await self._finish(piece)
        except ProxyError as error:
            if self._is_opaque:
                raise  # in the middle of an event nothing can be told
            failure = error
            self._has_ended = self._has_ended and not isinstance(error, UnreadableReplyError)
        if not self._is_opaque:
            if last := self._end(failure):
                yield last
            elif self._withheld is not None:
                async for piece in self._settled(self._withheld):
                    yield piece

    @property
    def is_judged(self) -> bool:
        """Whether nothing is still being found out about the choices that finished."""
        return all(task.done() for task in self._judged)

    async def judgements(self) -> None:
        """Waits for what is still being found out."""
        await asyncio.gather(*self._judged)

    def outcomes(self) -> list[Outcome]:
        """What was found about the choices that finished, also what missed its event."""
        return [task.result() for task in self._judged]

    def _take(self, part: bytes) -> bytes:
        """The whole events in what has arrived; what cannot be kept any longer is let go."""
        if self._is_opaque:
            return part
        self._bytes += len(part)
        if self._bytes > self._max_bytes:
            self._give_up(f"a stream is larger than {self._max_bytes} bytes (limits.max_body)")
            return self._reader.rest() + part
        if self._events > MAX_EVENTS:
            self._give_up(f"a stream has more than {MAX_EVENTS} events")
            return self._reader.rest() + part
        try:
            return self._reader.take(part)
        except EventTooLargeError as error:
            self._give_up(str(error))
            return self._reader.rest()

    def _give_up(self, why: str) -> None:
        """Keeps nothing any more; raises UpstreamBrokenError where a policy had to decide on it."""
        self.reason = "too_long"
        if self._settle is not None:
            raise UpstreamBrokenError(why)
        self._is_opaque = True
        self._unread.clear()
        self.assembler = self._format.assembler()

    def _parted(self, ready: bytes) -> tuple[bytes, bytes]:
        """What may go on at once, and what must be looked at before: from the first mark on."""
        if self._is_opaque or not ready:
            return ready, b""
        if self._settle is not None:  # nobody's spelling of a call may pass
            return b"", ready
        read = self._take_alike(ready) if len(ready) > MANY_EVENTS else 0
        unread = ready[read:]
        if (mark := self._format.marks.search(unread)) is not None:
            begins = 0 if unread.find(b"\r") >= 0 else unread.rfind(b"\n\n", 0, mark) + 2
            unread = unread[:begins] if begins > 1 else b""
        self._unread.append(unread)
        self._unread_bytes += len(unread)
        if self._unread_bytes > READ_AT_ONCE:
            self._read_up()
        passing = read + len(unread)
        return ready[:passing], ready[passing:]

    def _take_alike(self, ready: bytes) -> int:
        """How many bytes of many events that came at once are text for sure; it is taken in.

        Where nothing is known yet, the first of these events tell what text looks like.
        """
        self._read_up()
        if taken := self.assembler.take_alike(ready):
            return taken
        first, others = parted(ready, LEARNT_FROM)
        if self._format.marks.search(first) is not None:
            return 0
        self._unread.append(first)
        self._read_up()
        return len(first) + self.assembler.take_alike(others)

    def _read_up(self) -> None:
        """Looks into the events that have gone by."""
        raw = b"".join(self._unread)
        self._events += raw.count(b"\n\n")
        if raw and (rest := self.assembler.add_unmarked(raw)):
            for event in self._reader.split(rest):
                self.assembler.add(event)
        self._unread.clear()
        self._unread_bytes = 0

    def _look_into(self, ready: bytes) -> Iterator[bytes | FinishEvent]:
        """What of these events goes on, and those that have to wait for their outcome."""
        if not ready:
            return
        self._read_up()
        passing: list[bytes] = []
        for event in self._reader.split(ready):
            sight = self.assembler.add(event)
            self._events += 1
            if self._settle is not None and (sight.is_unread or hides_data(event)):
                if passing:
                    yield b"".join(passing)
                raise UnreadableReplyError(UNREADABLE_EVENT)
            raw = event.raw if self._settle is None else self._sifted(event, sight)
            self._has_ended = self._has_ended or sight.is_end
            self._has_failed = self._has_failed or sight.is_error
            if raw and sight.finished:
                if passing:
                    yield b"".join(passing)  # the text before a finish does not wait with it
                    passing.clear()
                yield FinishEvent(event, sight.finished)
            elif raw:
                passing.append(raw)
        if passing:
            yield b"".join(passing)
        elif self._withheld is not None and self._is_time_to_ping():
            yield heartbeats.STREAM_PING

    def _sifted(self, event: Event, sight: Sight) -> bytes:
        """What of an event goes on at once where calls wait: nothing, from the first call on."""
        if self._has_failed:  # what upstream says after its error is not decided on
            return b"" if sight.calls_tool or sight.finished else event.raw
        is_withheld = self._withheld is not None or sight.calls_tool
        if sight.is_error:
            self._withheld = None  # of half an answer only the error is told
            return sight.bare if is_withheld and sight.bare is not None else event.raw
        if not is_withheld:
            return event.raw
        if self._withheld is None:
            self._withheld = []
            self._is_time_to_ping()
        if sight.finished:
            self._withheld_finishes.add(len(self._withheld))
        self._withheld.append(event)
        return b""

    def _is_time_to_ping(self) -> bool:
        """Whether the client has heard nothing for so long; sets when it will be next time."""
        now = asyncio.get_running_loop().time()
        is_time = now >= self._ping_at
        if is_time:
            self._ping_at = now + heartbeats.PING_EVERY_S
        return is_time

    async def _finish(self, finish: FinishEvent) -> bytes:
        """The finish event's bytes, which carry the outcome of its choices."""
        choices = self.assembler.choices(finish.choices)
        task = asyncio.ensure_future(self._judge(choices, self.assembler))
        self._judged.append(task)
        if not self._attach:
            return finish.event.raw
        await self._until_done(task)
        outcome = task.result() if task.done() else self._pending
        return self._format.annotated(finish.event, outcome.member())

    async def _until_done(self, task: asyncio.Task[Outcome]) -> None:
        """Or until it has taken too long."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        task.add_done_callback(end)
        self._waits.add(end, loop)
        try:
            await over
        finally:
            self._waits.discard(end)

    def _end(self, failure: ProxyError | None) -> bytes:
        """The last bytes for the client when upstream has sent all it will; none where the events
        that were withheld are to be settled."""
        self._read_up()
        rest = self._reader.rest()
        if self._has_ended and failure is not None:
            failure = None  # upstream had said all there was
        if rest and failure is None and self._settle is not None:
            failure, rest = self._take_rest(rest)
        if failure is None and self._withheld is not None and not self.assembler.choices():
            failure = UnreadableReplyError(UNREADABLE_EVENT)
        if failure is None and self._withheld is not None and self._is_cut():
            failure = UpstreamBrokenError("upstream's stream ended before its finish chunk")
        if failure is not None:
            self.reason = self.reason if self.reason == "too_long" else "stream_broke_off"
            return self._format.error_event(failure)
        if self._withheld is not None:
            return b""
        self.reason = "upstream_error" if self._has_failed else "no_finish_chunk"
        return rest

    def _take_rest(self, rest: bytes) -> tuple[ProxyError | None, bytes]:
        """Looks into what upstream ended without a blank line, which some clients read; what is
        wrong with it, and what of it goes on."""
        event = Event(rest, data_of(rest))
        sight = self.assembler.add(event)
        if sight.is_unread or hides_data(event):
            return UnreadableReplyError(UNREADABLE_EVENT), b""
        passing = self._sifted(event, sight)
        self._has_failed = self._has_failed or sight.is_error
        return None, passing

    async def _settled(self, withheld: list[Event]) -> AsyncIterator[bytes]:
        """Decides on a stream with tool calls, now that it is whole."""
        assert self._settle is not None  # or nothing were withheld
        self.is_settled = True
        finishes = frozenset(self._withheld_finishes)
        work = asyncio.ensure_future(self._settle(self.assembler, withheld, finishes))
        try:
            async for piece in heartbeats.pings_until(work):
                yield piece
        except ProxyError as error:
            yield self._format.error_event(error)

    def _is_cut(self) -> bool:
        return any(choice.finish_reason is None for choice in self.assembler.choices())
