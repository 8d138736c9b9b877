"""A live stream, without IO: bytes go in; bytes, finished choices and withheld calls come out.

In `passthrough` only the event that finishes a choice waits for its score; nothing can be held,
because the policy's rules were checked before the first byte was sent. In `buffer_tools`, which
gates calls, everything from the first part of a tool call on is withheld and decided on at the end.
A score that misses its event can be fetched later, at `/pinocchio/v1/results/{request id}`;
`job.py` (`Job.score`) says how long the event waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proxy.errors import UNREADABLE_EVENT, ProxyError, UnreadableReplyError, UpstreamBrokenError
from proxy.formats import EventMeaning, Format
from proxy.formats.events.merging import LEARNT_FROM, TRIES, split_events
from proxy.http.wire.http import BodyWriter
from proxy.http.wire.sse import (
    MAX_EVENTS,
    Event,
    EventReader,
    EventTooLargeError,
    data_of,
    hides_data,
)
from proxy.http.wire.upstream import ReplyPieces

READ_AT_ONCE = 2**16  # bytes that may wait until they are parsed
LOOKS_AHEAD = 8  # single parts that are parsed early, to learn the form of the others
MANY_EVENTS = 2**12  # bytes above which a search for marks costs more than parsing


@dataclass(slots=True)
class FinishEvent:
    """An event, and the indices of the choices that it finishes."""

    event: Event
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WithholdMarker:
    """A marker that from here on events wait for a decision, and the client receives nothing."""


class LiveStream:
    """Reads a stream: `feed` it with the parts that arrive, and `end` it after the last one.

    At most `max_bytes` of a stream are kept to score it: a longer one goes on unscored, or ends in
    an error if calls are gated.
    """

    def __init__(self, format: Format, *, max_bytes: int, gates_calls: bool = False) -> None:
        self._format = format
        self._max_bytes = max_bytes
        self._gates_calls = gates_calls
        self.assembler = format.assembler()
        self.assembler.reading.is_strict = gates_calls
        self._reader = EventReader()
        self._unread: list[bytes] = []  # whole events that are not parsed yet
        self._unread_bytes = 0
        self._bytes = 0
        self._events = 0  # parsed events
        self._looks_left = LOOKS_AHEAD
        self._withheld: list[Event] | None = None  # events from the first part of a tool call on
        self._withheld_finishes: set[int] = set()
        self._has_ended = False  # whether the format's end or an error of upstream has arrived
        self._has_failed = False  # whether an error of upstream has arrived
        self.is_opaque = False  # whether bytes are passed on without being parsed
        self.reason = "client_left"  # why there is no outcome, if there is none

    def feed(self, part: bytes) -> Iterator[bytes | FinishEvent | WithholdMarker]:
        """Read a part of upstream's stream; yields what follows for the client.

        That is bytes that go on at once, FinishEvents that wait for their choices' outcome, and a
        WithholdMarker when the first tool call is withheld. Raises ProxyError for events that
        cannot be read or kept although calls wait for decisions.
        """
        passing, marked = self._split_ready(self._take(part))
        if passing:
            yield passing
        withheld_before = self.withholds()
        yield from self._parse_events(marked)
        if self.withholds() and not withheld_before:
            yield WithholdMarker()

    def takes(self, part: bytes) -> bool:
        """Read a part whose events all go on unchanged; returns whether it is such a part.

        If not, nothing has changed, and the part has to go to `feed`.
        """
        size = len(part)
        is_bounded = self._bytes + size <= self._max_bytes and self._events <= MAX_EVENTS
        if self._gates_calls or self.is_opaque or not is_bounded:
            return False
        if self._unread and self._looks_left:
            self._looks_left -= 1
            self._parse_unread()  # afterwards the form of text may be known
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
        """Return whether a part can go on unchanged without being parsed first.

        It is whole events without marks of an end or a call, and little is waiting to be parsed.
        """
        is_little = self._unread_bytes + len(part) <= READ_AT_ONCE and len(part) <= MANY_EVENTS
        return is_little and self._reader.is_whole(part) and self._format.marks.search(part) is None

    def end(self, failure: ProxyError | None = None) -> bytes:
        """Return the last bytes for the client; none if events still wait for a decision.

        `failure` says why upstream's stream broke off or was wrong. It becomes an error event,
        unless upstream's answer was complete.
        """
        if self._has_ended and not isinstance(failure, UnreadableReplyError):
            failure = None  # upstream's answer was complete
        self._parse_unread()
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
        """Return whether events of tool calls wait for a decision."""
        return self._withheld is not None

    def waiting_events(self) -> tuple[list[Event], frozenset[int]]:
        """Return the events that wait, and the indices of those that finish a choice."""
        return self._withheld or [], frozenset(self._withheld_finishes)

    def _take(self, part: bytes) -> bytes:
        """Return the events that a part completes; all bytes if the stream is too large to keep.

        Raises UpstreamBrokenError where it is too large and calls wait for decisions.
        """
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
        """Keep nothing of the stream from now on, so that it is passed on without a score.

        `why` is the text of the UpstreamBrokenError that is raised if a policy must decide on it.
        """
        self.reason = "too_long"
        if self._gates_calls:
            raise UpstreamBrokenError(why)
        self.is_opaque = True
        self._unread.clear()
        self.assembler = self._format.assembler()

    def _split_ready(self, ready: bytes) -> tuple[bytes, bytes]:
        """Split events into those that go on at once, and the rest that must be parsed first.

        The rest begins with the first event that may end a choice or call a tool. All is rest if
        calls wait for decisions; nothing if the stream is not kept.
        """
        if self.is_opaque or not ready:
            return ready, b""
        if self._gates_calls:  # no spelling of a call may pass
            return b"", ready
        read = self._take_alike(ready) if len(ready) > MANY_EVENTS else 0
        unread = ready[read:]
        if (mark := self._format.marks.search(unread)) is not None:
            begins = 0 if unread.find(b"\r") >= 0 else unread.rfind(b"\n\n", 0, mark) + 2
            unread = unread[:begins] if begins > 1 else b""
        self._unread.append(unread)
        self._unread_bytes += len(unread)
        if self._unread_bytes > READ_AT_ONCE:
            self._parse_unread()
        passing = read + len(unread)
        return ready[:passing], ready[passing:]

    def _take_alike(self, ready: bytes) -> int:
        """Read the leading events that are certainly plain text, and return their size in bytes.

        If the form of text is unknown, the first of these events are parsed to learn it.
        """
        self._parse_unread()
        if taken := self.assembler.take_alike(ready):
            return taken
        read = 0
        for events in (LEARNT_FROM, TRIES - LEARNT_FROM):
            first, others = split_events(ready[read:], events)
            if self._format.marks.search(first) is not None:
                break
            self._unread.append(first)
            self._parse_unread()
            read += len(first)
            if taken := self.assembler.take_alike(others):
                return read + taken
        return read

    def _parse_unread(self) -> None:
        """Parse the events that have been passed on."""
        if not self._unread:
            return
        raw = b"".join(self._unread)
        self._events += raw.count(b"\n\n")
        if raw and (rest := self.assembler.add_unmarked(raw)):
            for event in self._reader.split(rest):
                self.assembler.add(event)
        self._unread.clear()
        self._unread_bytes = 0

    def _parse_events(self, ready: bytes) -> Iterator[bytes | FinishEvent]:
        """Parse events; yields bytes that go on, and FinishEvents that wait for their outcome.

        Raises UnreadableReplyError for an unreadable event while calls wait for decisions.
        """
        if not ready:
            return
        self._parse_unread()
        pieces: list[bytes] = []
        for event in self._reader.split(ready):
            meaning = self.assembler.add(event)
            self._events += 1
            if self._gates_calls and self._is_unreadable(event, meaning):
                if pieces:
                    yield b"".join(pieces)
                raise UnreadableReplyError(UNREADABLE_EVENT)
            raw = event.raw if not self._gates_calls else self._passable_bytes(event, meaning)
            self._has_ended = self._has_ended or meaning.is_end
            self._has_failed = self._has_failed or meaning.is_error
            if raw and meaning.finished:
                if pieces:
                    yield b"".join(pieces)  # the text before a finish does not have to wait
                    pieces.clear()
                yield FinishEvent(event, meaning.finished)
            elif raw:
                pieces.append(raw)
        if pieces:
            yield b"".join(pieces)

    def _is_unreadable(self, event: Event, meaning: EventMeaning) -> bool:
        """Return whether clients might read an event differently than we do."""
        is_hidden = meaning.is_unread or hides_data(event)
        return is_hidden or self.assembler.reading.is_ambiguous(event)

    def _passable_bytes(self, event: Event, meaning: EventMeaning) -> bytes:
        """Return the bytes of an event that go on at once while calls wait for decisions.

        Empty for the first event of a call and those after it, which are kept. After an error of
        upstream nothing is decided on any more, and only events without calls go on.
        """
        if self._has_failed:  # nothing is decided on after an error of upstream
            return b"" if meaning.calls_tool or meaning.finished else event.raw
        is_withheld = self._withheld is not None or meaning.calls_tool
        if meaning.is_error:
            self._withheld = None  # only the error of an incomplete answer is passed on
            return meaning.bare if is_withheld and meaning.bare is not None else event.raw
        if not is_withheld:
            return event.raw
        if self._withheld is None:
            self._withheld = []
        if meaning.finished:
            self._withheld_finishes.add(len(self._withheld))
        self._withheld.append(event)
        return b""

    def _take_rest(self, rest: bytes) -> tuple[ProxyError | None, bytes]:
        """Parse the last bytes of a stream that have no blank line after them, as some clients do.

        Returns the error in them or None, and the bytes that go on.
        """
        event = Event(rest, data_of(rest))
        meaning = self.assembler.add(event)
        if self._is_unreadable(event, meaning):
            return UnreadableReplyError(UNREADABLE_EVENT), b""
        passing = self._passable_bytes(event, meaning)
        self._has_failed = self._has_failed or meaning.is_error
        return None, passing

    def _problem_of_withheld(self) -> ProxyError | None:
        """Return the error why the withheld calls cannot be decided on, or None.

        That is a stream without choices, or with a choice that has no end.
        """
        choices = self.assembler.choices()
        if not choices:
            return UnreadableReplyError(UNREADABLE_EVENT)
        if any(choice.finish_reason is None for choice in choices):
            return UpstreamBrokenError("upstream's stream ended before its finish chunk")
        return None


class ShortWay:
    """The direct path of a stream from upstream's connection to the client's.

    Nearly all events go on unchanged after a look at their bytes. If nothing waits, the request's
    task is not woken, which would pass them through a dozen coroutines, most of the cost of a delta
    that arrives alone. Parts that are not plain, and all parts while a client is slow, are left to
    the task.
    """

    __slots__ = ("_chunks", "_client", "_in_upstream", "_stream")

    def __init__(
        self, stream: LiveStream, chunks: ReplyPieces, in_upstream: AbstractContextManager[None]
    ) -> None:
        """Set up the path; `in_upstream` measures the time in which the chunks' reader waits."""
        self._stream, self._chunks, self._in_upstream = stream, chunks, in_upstream

    def open(self, client: BodyWriter) -> None:
        """Begin to write parts directly to the client, once the reply's head has been sent."""
        self._client = client
        self._chunks.leave_to(self._take)

    def _take(self, part: bytes) -> bool:
        """Write a part of the stream to the client at once, and return whether that was done.

        False, with nothing written, for an empty part, a part that is not plain, or while the
        client is slow; then the request's task handles it.
        """
        self._in_upstream.__exit__(None, None, None)  # this is our own time
        client = self._client
        is_taken = bool(part) and client.takes_parts() and self._stream.takes(part)
        if is_taken:
            client.write_part(part)
        self._in_upstream.__enter__()
        return is_taken
