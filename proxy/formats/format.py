"""What the way of a completion asks of a format, so that every scored surface goes the same way.

A format is one of the APIs that clients speak: chat completions, completions, responses, messages.
It knows how a question is put and how an answer looks, whole and streamed; nothing of HTTP, scores
or policies. Answers are read into choices whose messages have the form of a chat message, so that
the calibrator's text and a policy's facts are found in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from calibrator import Question, messages_without_asides, without_attribution
from proxy.errors import ProxyError
from proxy.formats.called import plain_text
from proxy.formats.edits import Editable, WantedJson
from proxy.formats.events.markers import Marks
from proxy.formats.events.readings import StreamReading
from proxy.wire.sse import Event

Json = dict[str, Any]
NOTICE_GAP = "\n\n"  # between a text and the notice behind it
MOST_TOKENS = 1_000  # of a short text, where a format wants to be told
MEMBER = "pinocchio"  # the one member of ours in a completion or a finish event
Ending = Literal["stop", "content_filter"]


@dataclass(slots=True)
class Choice:
    """One choice: its message as chat completions have it, put together if it was streamed.

    Of the message `content`, `reasoning_content`, `refusal` and `tool_calls` are looked at.
    """

    index: int
    message: Json = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: Json | None = None
    is_refusal: bool = False  # where no text of a refusal says so
    names: Mapping[str, tuple[str, ...]] | None = field(default=None, compare=False)
    """By the name of a call in the message, the others that its stream may be read to give."""
    _plain: tuple[str | None] | None = field(default=None, init=False, repr=False, compare=False)

    def plain_text(self) -> str | None:
        """The text of a message in which there is nothing else; None of another."""
        if self._plain is None:
            self._plain = (plain_text(self.message),)
        return self._plain[0]


@dataclass(slots=True)  # not frozen, which would triple the time of making one
class Sight:
    """What an event of a stream means: the choices that it finishes, and whether it is more."""

    finished: tuple[int, ...] = ()
    is_end: bool = False  # nothing that follows belongs to the answer
    is_error: bool = False
    calls_tool: bool = False  # a part of a tool call
    bare: bytes | None = None  # an error's event without the parts of an answer that are in it
    is_unread: bool = False  # there may be anything in it, a call too


NOTHING = Sight()
UNREAD = Sight(is_unread=True)


def turns_in(messages: Any) -> list[Any]:
    """The contents of a user's messages, without what tools gave back."""
    listed = messages if isinstance(messages, list) else []
    try:
        of_user = [message["content"] for message in listed if message["role"] == "user"]
    except (KeyError, TypeError):  # one is no message
        told = [(m.get("role"), m.get("content")) for m in listed if isinstance(m, dict)]
        of_user = [content for role, content in told if role == "user"]
    if {str}.issuperset(map(type, of_user)):
        return [*filter(None, of_user)]
    said = [each if type(each) is str else _without_results(each) for each in of_user]
    return [*filter(None, said)]


def last_users_text(messages: Any) -> str:
    """Return the text of the user's last turn, without results of tools and what a coding agent
    adds; of the last message where the user says nothing, and an empty string without any."""
    listed = messages if isinstance(messages, list) else []
    for message in reversed(messages_without_asides(listed)):
        is_users = isinstance(message, dict) and message.get("role") == "user"
        if is_users and (text := text_of(_without_results(message.get("content")))):
            return text
    last = listed[-1] if listed else None
    return text_of(last.get("content") if isinstance(last, dict) else None)


def text_of(content: Any) -> str:
    """Return the text of a message's content, whatever else is in it."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def own_instructions(instructions: Any) -> Any:
    """Return instructions, a text or blocks, without the line that a coding agent's client adds."""
    if isinstance(instructions, str):
        return without_attribution(instructions)
    if not isinstance(instructions, list):
        return instructions
    kept = []
    for block in instructions:
        text = block.get("text") if isinstance(block, dict) else None
        left = without_attribution(text) if isinstance(text, str) else None
        if left is None or left == text:
            kept.append(block)
        elif left:
            kept.append({**block, "text": left})
    return kept


def _without_results(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [each for each in content if not _is_result(each)]


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


class NoAnswerError(Exception):
    """An object of a format that is no answer: one that is not there yet, or a failure told so.

    `part` is the member that may hold a piece of an answer all the same.
    """

    def __init__(self, reason: str, part: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason  # a machine word
        self.part = part


class Assembler(Protocol):
    """Puts a stream's events together into choices, as the clients' own accumulators do."""

    model: str | None  # the answering model's name, as upstream gives it
    reading: StreamReading  # how events are parsed

    def add(self, event: Event) -> Sight: ...

    def add_unmarked(self, raw: bytes) -> bytes:
        """Takes in whole events in which no mark is found, as many from the first on as it can at
        once; gives back the others, of which each has to be added."""
        return raw

    def take_alike(self, raw: bytes) -> int:
        """Takes in the events at the beginning that add nothing but text, as one before them did;
        gives their bytes, of which there may be none."""
        return 0

    def add_alike(self, raw: bytes) -> bool:
        """Takes in events that add nothing but text, all of them, as one before them did; False for
        any others."""
        return False

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        """What has arrived, in the order of their indices; unfinished ones too, or `only` some."""
        ...

    def completion(self) -> Json:
        """What the same reply would have been, had it not been streamed."""
        ...

    def continued(self, completion: Json, payload: Json) -> list[bytes]:
        """The completion as what follows on the events before the first part of a tool call.

        As `Format.events`, but for what a client that has those events must not be told again.
        """
        ...


class Format(Protocol):
    """One format; see the modules beside this one."""

    name: str  # in logs, records and README
    path: str  # after `/v1`
    held_prefix: str  # of the ids of held replies
    fetch_path: str  # after `/v1`, where a held reply is fetched by its id
    marks: Marks
    """Found in every event that finishes a choice, ends the stream, is an error or calls a tool."""

    # the request

    def question(self, payload: Json) -> Question:
        """The question as the calibrator reads it; raises NotScorableError."""
        ...

    def last_question(self, payload: Json) -> str:
        """What the user said last, for a reviewer; an empty string where that is no text."""
        ...

    def user_turns(self, payload: Json) -> list[Any]:
        """What the user said, turn by turn; what tools gave back is no turn of the user's."""
        ...

    def conversation(self, payload: Json) -> tuple[Any, Any]:
        """The instructions of a request, and its messages or the one text that is asked."""
        ...

    def wanted_json(self, payload: Json) -> WantedJson | None:
        """The JSON that the answer's text must be; None where the client takes any text."""
        ...

    def count(self, payload: Json) -> int:
        """How many choices are asked for."""
        ...

    def wants_schema(self, payload: Json) -> bool:
        """Whether a reply in prose would break what the client wants to parse."""
        ...

    def text_request(self, model: str, instructions: str, text: str) -> Json:
        """A request of our own: a model is to say something short about a text, not streamed."""
        ...

    asks_logprobs: Mapping[str, Any]
    """The members of a request that ask for the log-probabilities of the answer's tokens."""

    def without_effects(self, payload: Json) -> Json | None:
        """The members to change in the request so that another model answers it once and nothing
        is left behind; None where upstream would act on it all the same."""
        ...

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return the members to change in the request so that a model replies again, after its own
        reply and what is wrong with it. Calls in the reply get `problems` as their results. None
        where the format, or this reply, has no place for that."""
        ...

    # the answer

    def choices(self, completion: Json) -> list[Choice]:
        """An empty list when it is no completion of this format; raises NoAnswerError."""
        ...

    def editable(self, completion: Json) -> Editable:
        """What a person may change in it; raises KeyError, TypeError or AttributeError where it is
        upstream's own idea of the format."""
        ...

    def assembler(self) -> Assembler: ...

    def annotated(self, event: Event, member: Mapping[str, Any]) -> bytes:
        """A finish event with our member; its bytes as they are where it takes none."""
        ...

    # what stands in place of an answer

    def restated(self, completion: Json, text: str, ending: Ending) -> Json:
        """The completion with `text` in place of its content and tool calls."""
        ...

    def noticed(self, completion: Json, notice: str) -> Json | None:
        """The completion with a notice behind its text; None where it has no text."""
        ...

    def placeholder(self, text: str, *, id: str, created: int, model: str) -> Json:
        """A completion that says `text` and ends as one that a filter cut."""
        ...

    def events(self, completion: Json, payload: Json) -> list[bytes]:
        """The completion as a stream, as the request wants it; a member goes to the finish."""
        ...

    def error_body(self, error: ProxyError) -> bytes: ...

    def error_event(self, error: ProxyError) -> bytes:
        """How a failure is told when a stream's status is out: nothing follows it."""
        ...
