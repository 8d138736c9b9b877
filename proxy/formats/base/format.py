"""The interface of a format, so that every scored surface is handled in the same way.

A format is one of the APIs that clients speak: chat completions, completions, responses, messages.
It knows the form of questions and of answers, whole and streamed, but nothing of HTTP, scores or
policies. Answers are read into choices whose messages have the form of chat messages. So the
calibrator's text and a policy's facts are found in one place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from calibrator import Question, messages_without_asides
from proxy.errors import ProxyError
from proxy.formats.base.edits import Editable, WantedJson
from proxy.formats.events.called import plain_text
from proxy.formats.events.readings import StreamReading
from proxy.http.wire.sse import Event

Mark = bytes | tuple[bytes, bytes]
"""A literal, or a literal and the pattern of what follows it."""

Json = dict[str, Any]
NOTICE_GAP = "\n\n"  # between a text and the notice after it
MOST_TOKENS = 1_000  # the limit of a short text, where a format requires one
MEMBER = "pinocchio"  # our only member in a completion or a finish event
Ending = Literal["stop", "content_filter"]


class Marks:
    """Literals, some with a pattern of what follows, that show which events must be examined.

    An event without a mark can be sent on unread. Each literal is searched separately, and mostly
    decides alone: one pattern with alternatives would take ten times as long.
    """

    def __init__(self, *marks: Mark) -> None:
        self._marks: list[tuple[bytes, re.Pattern[bytes] | None]] = [
            (mark, None) if isinstance(mark, bytes) else (mark[0], re.compile(mark[1]))
            for mark in marks
        ]

    def search(self, raw: bytes) -> int | None:
        """Return the index at which the first mark in `raw` begins, or None if there is none."""
        first = len(raw)
        for literal, follows in self._marks:
            at = raw.find(literal, 0, first)
            if at < 0:  # nearly always
                continue
            if follows is not None:
                while at >= 0 and follows.match(raw, at + len(literal)) is None:
                    at = raw.find(literal, at + len(literal), first)
            if at >= 0:
                first = at
        return first if first < len(raw) else None


@dataclass(slots=True)
class Choice:
    """One choice: its message in the form of chat completions, put together if it was streamed.

    Only `content`, `reasoning_content`, `refusal` and `tool_calls` of the message are read.
    """

    index: int
    message: Json = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: Json | None = None
    is_refusal: bool = False  # for a refusal without a text of its own
    is_part_unread: bool = False  # whether a stream had events that could not be read
    names: Mapping[str, tuple[str, ...]] | None = field(default=None, compare=False)
    """Other names by which a client may read a streamed call, by its name in the message."""
    _plain: tuple[str | None] | None = field(default=None, init=False, repr=False, compare=False)

    def plain_text(self) -> str | None:
        """Return the text of a message that has nothing else, such as calls; None for others.

        It is computed once.
        """
        if self._plain is None:
            self._plain = (plain_text(self.message),)
        return self._plain[0]


@dataclass(slots=True)  # not frozen, which would triple the time to create one
class EventMeaning:
    """What an event of a stream means: the choices that it finishes, and what else it is."""

    finished: tuple[int, ...] = ()
    is_end: bool = False  # no later event belongs to the answer
    is_error: bool = False
    calls_tool: bool = False  # has a part of a tool call
    bare: bytes | None = None  # an error's event without parts of an answer
    is_unread: bool = False  # it may contain anything, also a call


NOTHING = EventMeaning()
UNREAD = EventMeaning(is_unread=True)


def turns_in(messages: Any) -> list[Any]:
    """Return the contents of the user's messages, without tool results and empty ones.

    `messages` is that member of a request; the result is empty where it is no list.
    """
    items = messages if isinstance(messages, list) else []
    try:
        of_user = [message["content"] for message in items if message["role"] == "user"]
    except (KeyError, TypeError):  # one of them is no message
        pairs = [(m.get("role"), m.get("content")) for m in items if isinstance(m, dict)]
        of_user = [content for role, content in pairs if role == "user"]
    if {str}.issuperset(map(type, of_user)):
        return [*filter(None, of_user)]
    contents = [each if type(each) is str else _without_results(each) for each in of_user]
    return [*filter(None, contents)]


def last_users_text(messages: Any) -> str:
    """Return the text of the user's last turn, without tool results and an agent's additions.

    If the user says nothing, it is the text of the last message, or an empty string if there is
    none.
    """
    items = messages if isinstance(messages, list) else []
    for message in reversed(messages_without_asides(items)):
        is_users = isinstance(message, dict) and message.get("role") == "user"
        if is_users and (text := text_of(_without_results(message.get("content")))):
            return text
    last = items[-1] if items else None
    return text_of(last.get("content") if isinstance(last, dict) else None)


def text_of(content: Any) -> str:
    """Return the text of a message's content, its parts joined by blanks; empty for no text."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _without_results(content: Any) -> Any:
    """Return a message's content without its `tool_result` blocks; unchanged if it is no list."""
    if not isinstance(content, list):
        return content
    return [each for each in content if not _is_result(each)]


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


class NoAnswerError(Exception):
    """An object of a format that is no answer: one that is not finished, or reports a failure.

    `part` is the member that may hold a piece of an answer nevertheless.
    """

    def __init__(self, reason: str, part: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason  # a machine word
        self.part = part


class Assembler(Protocol):
    """Puts a stream's events together into choices, as the clients' own accumulators do."""

    model: str | None  # the answering model's name, as upstream gives it
    reading: StreamReading  # how events are parsed
    has_unread: bool = False  # whether an event came that may hold a part of the answer, unread

    def note_unread(self, meaning: EventMeaning) -> EventMeaning:
        """Remember in `has_unread` whether an event was not read, and return its meaning."""
        self.has_unread = self.has_unread or meaning.is_unread
        return meaning

    def add(self, event: Event) -> EventMeaning:
        """Add one event and return what it means."""
        ...

    def add_unmarked(self, raw: bytes) -> bytes:
        """Add whole events without a mark, as many from the beginning as is possible at once.

        Returns the bytes of the others, each of which has to be added by `add`.
        """
        return raw

    def take_alike(self, raw: bytes) -> int:
        """Add the events at the beginning of `raw` that have nothing but text, like an earlier one.

        Returns the number of their bytes, which may be 0.
        """
        return 0

    def add_alike(self, raw: bytes) -> bool:
        """Add the events in `raw` if all of them have nothing but text, like an earlier one.

        Returns whether they have; if not, nothing is added.
        """
        return False

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        """Return the choices that have arrived, sorted by index, also unfinished ones.

        With `only`, those with these indices.
        """
        ...

    def completion(self) -> Json:
        """Return the completion that the same reply would have been without a stream."""
        ...

    def continue_stream(self, completion: Json, payload: Json) -> list[bytes]:
        """Return `completion` as the events that follow those before the first part of a tool call.

        It is like `Format.events`, but without what a client that has those events must not get
        twice.
        """
        ...


class Format(Protocol):
    """One of the formats that clients speak; the modules beside this one have one class each."""

    name: str  # in logs, records and README
    path: str  # after `/v1`
    held_prefix: str  # prefix of the ids of held replies
    fetch_path: str  # after `/v1`, where a held reply is fetched by its id
    marks: Marks
    """The marks of events that finish a choice, end the stream, are errors or call a tool.

    Each such event has one.
    """

    # the request

    def question(self, payload: Json) -> Question:
        """Return a request's question as the calibrator reads it.

        Raises NotScorableError, with the reason, where it cannot be read.
        """
        ...

    def last_question(self, payload: Json) -> str:
        """Return the user's last text, for a reviewer; an empty string if there is no text."""
        ...

    def user_turns(self, payload: Json) -> list[Any]:
        """Return what the user said, turn by turn, as the request has it, without tool results."""
        ...

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        """Return (the instructions of a request, its messages or its one text), as it has them.

        Each is None if it is missing.
        """
        ...

    def wanted_json(self, payload: Json) -> WantedJson | None:
        """Return the JSON that the answer's text must be, or None if the client takes any text."""
        ...

    def count(self, payload: Json) -> int:
        """Return how many choices are requested."""
        ...

    def wants_schema(self, payload: Json) -> bool:
        """Return whether the client wants an answer that it can parse, not prose."""
        ...

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        """Return a request of our own for a short answer about a text, not streamed."""
        ...

    asks_logprobs: Mapping[str, Any]
    """The members of a request that ask for the log-probabilities of the answer's tokens."""

    def without_effects(self, payload: Json) -> Json | None:
        """Return the members to change so that another model can answer the request.

        With them, it answers once and leaves nothing behind. Returns None where upstream would act
        on the request even so, and an empty dict where nothing has to be changed.
        """
        ...

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return the members to change in the request so that a model revises its reply.

        The request then ends with the reply and its `problems`, which calls in the reply get as
        their results. Returns None if the format, or this reply, has no place for them.
        """
        ...

    # the answer

    def choices(self, completion: Json) -> list[Choice]:
        """Return the choices of a completion, or an empty list if it has another format.

        Raises NoAnswerError.
        """
        ...

    def editable(self, completion: Json) -> Editable:
        """Return what a person may change in a completion.

        Raises KeyError, TypeError or AttributeError where upstream deviates from the format.
        """
        ...

    def assembler(self) -> Assembler:
        """Return a new assembler for one stream of this format."""
        ...

    def annotate_event(self, event: Event, member: Mapping[str, Any]) -> bytes:
        """Return a finish event with our member, or its bytes unchanged where it can hold none."""
        ...

    # replacements of an answer

    def replace_text(self, completion: Json, text: str, ending: Ending) -> Json:
        """Return the completion with `text` in place of every choice's content and tool calls.

        `ending` is the finish reason that the choices get.
        """
        ...

    def add_notice(self, completion: Json, notice: str) -> Json | None:
        """Return the completion with a notice after its text, or None where it has no text."""
        ...

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """Return a completion that says `text` and ends like one that a content filter cut."""
        ...

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        """Return the completion as a stream's events, as the request wants it.

        Our member is in the finish event.
        """
        ...

    def error_body(self, error: ProxyError) -> bytes:
        """Return an error as the body of a reply in this format."""
        ...

    def error_event(self, error: ProxyError) -> bytes:
        """Return the event that reports a failure in a stream that has begun.

        No event follows it.
        """
        ...
