"""A stream that passes through live, without IO: bytes in; bytes, finished choices and calls out.

In `passthrough` only the event that finishes a choice waits for its score; nothing can be held any
more, the policy's rules were looked at before the first byte went out. In `buffer_tools`, where
calls are gated, everything from the first part of a tool call on is withheld and decided on at the
end. A score that misses its event can be asked for later, at `/pinocchio/v1/results/{request id}`;
how long the event waits for it is said in `job.py` (`Job.score`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proxy.errors import UNREADABLE_EVENT, ProxyError, UnreadableReplyError, UpstreamBrokenError
from proxy.formats import Format, Sight
from proxy.formats.events.uniform_events import LEARNT_FROM, TRIES, parted
from proxy.upstreams.upstream import Arriving
from proxy.wire.http import Client
from proxy.wire.sse import MAX_EVENTS, Event, EventReader, EventTooLargeError, data_of, hides_data

READ_AT_ONCE = 2**16  # bytes that may wait until they are looked into
LOOKS_AHEAD = 8  # into parts that came alone, to learn what the others look like
MANY_EVENTS = 2**12  # bytes of so many that looking for marks in them costs more than reading them


@dataclass(slots=True)
class Finished:
    """An event, and which choices it finishes."""

    event: Event
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Withholding:
    """Says that from here on events wait for a decision, so that the client hears nothing."""


class LiveStream:
    """Reads one stream: `feed` it what arrives, `end` it when that is all.

    What is kept of a stream to score it is at most `max_bytes`: a longer one goes on unscored, or
    ends in an error where calls are gated.
    """

    def __init__(self, format: Format, *, max_bytes: int, gates_calls: bool = False) -> None:
        self._format = format
        self._max_bytes = max_bytes
        self._gates_calls = gates_calls
        self.assembler = format.assembler()
        self.assembler.reading.is_strict = gates_calls
        self._reader = EventReader()
        self._unread: list[bytes] = []  # whole events that nobody has looked into
        self._unread_bytes = 0
        self._bytes = 0
        self._events = 0  # that were looked into
        self._looks_left = LOOKS_AHEAD
        self._withheld: list[Event] | None = None  # from the first part of a tool call on
        self._withheld_finishes: set[int] = set()
        self._has_ended = False  # the format's end or an error of upstream's own went by
        self._has_failed = False  # an error of upstream's own went by
        self.is_opaque = False  # not looked into any more; the bytes still belong to the client
        self.reason = "client_left"  # why there is no outcome, if there is none

    def feed(self, part: bytes) -> Iterator[bytes | Finished | Withholding]:
        """Yields what goes on at once, and the events that wait for the outcome of their choices.

        Raises ProxyError for what cannot be read or kept where calls are gated.
        """
        passing, marked = self._parted(self._take(part))
        if passing:
            yield passing
        withheld_before = self.withholds()
        yield from self._look_into(marked)
        if self.withholds() and not withheld_before:
            yield Withholding()

    def takes(self, part: bytes) -> bool:
        """Take in a part of events that go on as they came; False, and nothing has changed, for one
        that only `feed` can tell what to do with."""
        size = len(part)
        is_bounded = self._bytes + size <= self._max_bytes and self._events <= MAX_EVENTS
        if self._gates_calls or self.is_opaque or not is_bounded:
            return False
        if self._unread and self._looks_left:
            self._looks_left -= 1
            self._read_up()  # and what text looks like may be known
        if not self._unread and self._reader.is_empty() and self.assembler.add_alike(part):
            self._events += part.count(b"\n\n")
        elif self._is_plain(part):
            self._unread.append(part)
            self._unread_bytes += size
        else:
            return False
        self._bytes += size
        return True

    def _is_plain(self, part: bytes) -> bool:
        """Whether `feed` would give a part as it is, and read nothing before."""
        is_little = self._unread_bytes + len(part) <= READ_AT_ONCE and len(part) <= MANY_EVENTS
        return is_little and self._reader.is_whole(part) and self._format.marks.search(part) is None

    def end(self, failure: ProxyError | None = None) -> bytes:
        """Return the last bytes for the client; none where events are withheld.

        `failure` is why upstream's stream broke off, or what was wrong with it.
        """
        if self._has_ended and not isinstance(failure, UnreadableReplyError):
            failure = None  # upstream had said all there was
        self._read_up()
        rest = b"" if self.is_opaque else self._reader.rest()
        if rest and failure is None and self._gates_calls:
            failure, rest = self._take_rest(rest)
        if failure is None and self._withheld is not None:
            failure = self._problem_of_withheld()
        if failure is not None:
            self.reason = self.reason if self.reason == "too_long" else "stream_broke_off"
            self._withheld = None
            return self._format.error_event(failure)
        if self._withheld is not None:
            return b""
        if not self.is_opaque:
            self.reason = "upstream_error" if self._has_failed else "no_finish_chunk"
        return rest

    def withholds(self) -> bool:
        """Whether events wait for a decision."""
        return self._withheld is not None

    def withheld(self) -> tuple[list[Event], frozenset[int]]:
        """Return the events that wait, and which of them finish a choice."""
        return self._withheld or [], frozenset(self._withheld_finishes)

    def _take(self, part: bytes) -> bytes:
        """The whole events in what has arrived; what cannot be kept any longer is let go."""
        if self.is_opaque:
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
        if self._gates_calls:
            raise UpstreamBrokenError(why)
        self.is_opaque = True
        self._unread.clear()
        self.assembler = self._format.assembler()

    def _parted(self, ready: bytes) -> tuple[bytes, bytes]:
        """What may go on at once, and what must be looked at before: from the first mark on."""
        if self.is_opaque or not ready:
            return ready, b""
        if self._gates_calls:  # nobody's spelling of a call may pass
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
        read = 0
        for events in (LEARNT_FROM, TRIES - LEARNT_FROM):
            first, others = parted(ready[read:], events)
            if self._format.marks.search(first) is not None:
                break
            self._unread.append(first)
            self._read_up()
            read += len(first)
            if taken := self.assembler.take_alike(others):
                return read + taken
        return read

    def _read_up(self) -> None:
        """Looks into the events that have gone by."""
        if not self._unread:
            return
        raw = b"".join(self._unread)
        self._events += raw.count(b"\n\n")
        if raw and (rest := self.assembler.add_unmarked(raw)):
            for event in self._reader.split(rest):
                self.assembler.add(event)
        self._unread.clear()
        self._unread_bytes = 0

    def _look_into(self, ready: bytes) -> Iterator[bytes | Finished]:
        """What of these events goes on, and those that have to wait for their outcome."""
        if not ready:
            return
        self._read_up()
        passing: list[bytes] = []
        for event in self._reader.split(ready):
            sight = self.assembler.add(event)
            self._events += 1
            if self._gates_calls and self._is_unreadable(event, sight):
                if passing:
                    yield b"".join(passing)
                raise UnreadableReplyError(UNREADABLE_EVENT)
            raw = event.raw if not self._gates_calls else self._sifted(event, sight)
            self._has_ended = self._has_ended or sight.is_end
            self._has_failed = self._has_failed or sight.is_error
            if raw and sight.finished:
                if passing:
                    yield b"".join(passing)  # the text before a finish does not wait with it
                    passing.clear()
                yield Finished(event, sight.finished)
            elif raw:
                passing.append(raw)
        if passing:
            yield b"".join(passing)

    def _is_unreadable(self, event: Event, sight: Sight) -> bool:
        """Whether clients might read something else in an event than we do."""
        is_hidden = sight.is_unread or hides_data(event)
        return is_hidden or self.assembler.reading.is_ambiguous(event)

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
        if sight.finished:
            self._withheld_finishes.add(len(self._withheld))
        self._withheld.append(event)
        return b""

    def _take_rest(self, rest: bytes) -> tuple[ProxyError | None, bytes]:
        """Looks into what upstream ended without a blank line, which some clients read; what is
        wrong with it, and what of it goes on."""
        event = Event(rest, data_of(rest))
        sight = self.assembler.add(event)
        if self._is_unreadable(event, sight):
            return UnreadableReplyError(UNREADABLE_EVENT), b""
        passing = self._sifted(event, sight)
        self._has_failed = self._has_failed or sight.is_error
        return None, passing

    def _problem_of_withheld(self) -> ProxyError | None:
        """Return why what is withheld cannot be decided on."""
        choices = self.assembler.choices()
        if not choices:
            return UnreadableReplyError(UNREADABLE_EVENT)
        if any(choice.finish_reason is None for choice in choices):
            return UpstreamBrokenError("upstream's stream ended before its finish chunk")
        return None


class ShortWay:
    """The way of a stream from upstream's connection to the client's in one step.

    Nearly every event goes on as it came, and only its bytes are looked at before. Where nothing
    waits on the way, it does not wake the request's task, which would pass it through a dozen
    coroutines: most of what a delta costs that arrives alone. What is not plain, and all that comes
    while a client is slow, is left to the task.
    """

    __slots__ = ("_chunks", "_client", "_in_upstream", "_stream")

    def __init__(
        self, stream: LiveStream, chunks: Arriving, in_upstream: AbstractContextManager[None]
    ) -> None:
        """`in_upstream` is the time in which the reader of the chunks waits for them."""
        self._stream, self._chunks, self._in_upstream = stream, chunks, in_upstream

    def open(self, client: Client) -> None:
        """Begins, as the head of the reply is out."""
        self._client = client
        self._chunks.leave_to(self._take)

    def _take(self, part: bytes) -> bool:
        self._in_upstream.__exit__(None, None, None)  # what happens here is our time
        client = self._client
        is_taken = bool(part) and client.takes_parts() and self._stream.takes(part)
        if is_taken:
            client.write_part(part)
        self._in_upstream.__enter__()
        return is_taken
