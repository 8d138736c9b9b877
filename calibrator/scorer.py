"""What a scorer is: text in, probability out.

Anything with a `name` and a `score_batch` can stand where the calibrator stands: the embedded
cross-encoder, a bigger checkpoint, a server over HTTP, or the `FakeScorer` of tests and demos.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

IMAGE_CHARACTERS = 800  # that an image stands for, which is some 200 tokens or more
WITH_OTHERS: Final = "+opinion@"
"""In the name of what gives numbers that know other replies: between the calibrator and a hash."""
LOGPROBS: Final = "logprobs"
IN_WORDS: Final = " in words"  # behind the name of a judge that had to say a number
PRIOR: Final = "judge-prior"
"""In the name of a number that a judge moved by the prior, before labels say what it is worth."""
_WITH_SIGNALS: Final = re.compile(r"\+(judge|logprobs|judge-logprobs|judge-prior)@[0-9a-f]+$")


@dataclass(slots=True)  # as `Item`
class ToolUse:
    """A reply in a conversation with tools, as it was sent: what a text of it leaves out or cuts.

    It calls tools, or it is text where tools were offered or used; `has_calls` tells which.

    Everything is in the form of OpenAI's chat and is referred to, never copied; nothing in it was
    checked, for a model writes what it likes.
    """

    messages: Sequence[Any]  # before the reply: instructions, turns, calls and their results
    tools: Sequence[Any]  # that were offered, or ()
    message: Mapping[str, Any]  # of the assistant, as in chat: `content`, `tool_calls`, ...

    @property
    def has_calls(self) -> bool:
        """Whether the reply calls at least one tool, also in the legacy form, `function_call`."""
        return bool(self.message.get("tool_calls") or self.message.get("function_call"))


@dataclass(frozen=True, slots=True)
class OtherReply:
    """What another model, or the same one asked again, replied to the same question."""

    answer: str
    source_model: str | None = None
    tool_use: ToolUse | None = None


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a reply beyond texts; each signal may be absent.

    `judged` is P(correct) by a model that was asked to judge the reply, `judge` its name, with
    ` in words` behind it where it had to say a number. `logprobs` are the mean and the lowest
    natural log-probability of the reply's tokens, as its own model gave them.
    """

    judged: float | None = None
    judge: str = ""
    logprobs: tuple[float, float] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which signals are there; those of another judge, or given otherwise, are others."""
        judge = () if self.judged is None else (f"judge {self.judge}",)
        return judge if self.logprobs is None else (*judge, LOGPROBS)


NO_SIGNALS: Final = Signals()


@dataclass(slots=True)  # not frozen, which would double the time of making one
class Item:
    """One answered question, as text (paper B01: Q, A and the optional tags M)."""

    question: str
    answer: str
    source_model: str | None = None
    benchmark: str | None = None
    domain: str | None = None  # never shown to a model; a recalibration may go by it
    images: tuple[bytes, ...] = ()  # of the question, encoded files (PNG, JPEG, ...), in its order
    tool_use: ToolUse | None = None  # where the reply calls tools, or tools were there to be used
    others: tuple[OtherReply, ...] = ()  # to the same question, in any order
    alone: float | None = None  # the confidence without them, where it is known already
    signals: Signals = NO_SIGNALS  # a recalibration may go by them; no model is shown any
    messages: Sequence[Any] = ()  # before the reply, as in chat; checked against, never shown
    facts: tuple[str, ...] = ()  # texts of the operator that the question is about; the same


def known_name(name: str | None, known: Container[str]) -> str | None:
    """A model's name as it stands among known ones, in lower case; None where it does not.

    Servers and gateways put before it whose the model is: `meta-llama/Llama-3.1-8B-Instruct`.
    """
    name = (name or "").lower()
    if name in known:
        return name
    name = name.rpartition("/")[2]
    return name if name in known else None


@dataclass(frozen=True, slots=True)
class FieldDoubt:
    """An argument of a call that stands nowhere in the conversation; `mark` says so in words.

    `call` counts the calls of the reply from 0. `share` is what the value leaves of the confidence
    that the call would have if the user had named it, 0 to 1; None where that cannot be told.
    """

    name: str
    mark: str
    call: int
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that speaks against a call of a tool.

    `name` is one of `MARKS`, `argument` the argument that it is about
    (empty: the call as a whole), and `words` say it to a person.
    """

    name: str
    argument: str = ""
    words: str = ""


MARKS: Final = {
    "not_in_conversation": "nobody said the value: not the user, no result, no instruction",
    "swapped": "values are under each other's arguments, or the direction is turned round",
    "other_choice": "the user named another of the values that are allowed",
    "contrary": "the call does the contrary of what was asked",
    "other_number": "the request gives another number in this unit, or asks for a part",
    "other_date": "the request names another day or another time",
    "other_record": "the user asked for another of the things that were listed",
    "other_tool": "another tool that was offered does what the user asked for",
    "wider": "the call does it to more than the user named",
    "ruled_out": "the user said not to do it",
    "unasked_change": "the user only asked to look, and the call cannot be undone",
    "placeholder": "a value that stands in for one that nobody knows",
    "schema": "the call does not fit the tool's schema",
    "impossible_date": "a date is not in the calendar, or a range ends before it starts",
    "limit_passed": "a number, a time or a date is beyond a limit in the instructions",
    "repeated": "the same call has been made already",
    "failed_before": "the same call has failed already",
    "unconfirmed": "the instructions ask for a confirmation first",
    "not_looked_up": "nothing was looked up before",
}
"""Each mark with its meaning, the strongest first."""
LOW: Final = "low"
MEDIUM: Final = "medium"
HIGH: Final = "high"
RISKS: Final = (LOW, MEDIUM, HIGH)
"""How bad a wrong call would be, seen beside what the user asked for."""


@dataclass(frozen=True, slots=True)
class CallNotes:
    """What is known of one call besides its confidence: its marks, the strongest first, and its
    risk, of `RISKS`, with reasons in words."""

    marks: tuple[Mark, ...] = ()
    risk: str = LOW
    reasons: tuple[str, ...] = ()


def read_notes(values: Iterable[Mapping[str, Any]]) -> tuple[CallNotes, ...]:
    """Return the notes that `dataclasses.asdict` made values of; raises KeyError and the like."""
    return tuple(
        CallNotes(
            tuple(Mark(one["name"], one["argument"], one["words"]) for one in each["marks"]),
            each["risk"],
            tuple(each["reasons"]),
        )
        for each in values
    )


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A sentence of a reply that its context does not support, and the words that show it.

    `kind` is `missing` if the context says nothing of them, `contradicted` if it says otherwise.
    """

    sentence: str
    words: tuple[str, ...] = ()
    kind: str = "missing"


CONTEXT: Final = "context"
COMPUTED: Final = "computed"
FACTS: Final = "facts"
OPINIONS: Final = "opinions"
CALLS: Final = "calls"
LIKENESS: Final = "likeness"
BASES: Final = (CONTEXT, COMPUTED, FACTS, OPINIONS, CALLS, LIKENESS)
"""What a confidence can be based on; `likeness` alone means that nothing was checked."""


def basis_with(basis: Iterable[str], *more: str) -> tuple[str, ...]:
    """Return a basis with more in it, each once, in the order of `BASES`; unknown names go."""
    named = {*basis, *more}
    return tuple(each for each in BASES if each in named)


ACTS: Final = (
    "answer",
    "refusal",
    "clarification",
    "unknown",
    "small_talk",
    "apology",
    "translation",
    "summary",
    "code",
    "data",
)
"""What a reply does; `unknown` says that it does not know, `data` is JSON, CSV or the like."""


@dataclass(slots=True)  # as `Item`
class Score:
    """P(correct) of one item, 0 to 1, higher = surer.

    `score` is what the model says (softmax over the two label logits, paper B09), `confidence`
    the same after recalibration. `is_truncated` says that only a part of the text was read.
    `because` are a few plain facts that speak against it, where the scorer can tell any. Where
    replies of others were read, `alone` is the confidence without them, and `compared` says of each
    whether it agrees, differs, or whether that cannot be told. Where signals moved the confidence,
    `unaided` is the one without them, and `calibrator` the name of what gave it. `fields` are
    arguments of calls that stand nowhere, where the scorer can tell them apart. `notes` has the
    marks and the risk of each call of the reply, in their order; None where nobody looked.

    `support` is the probability that the context supports the reply, None where there is no
    context, and `unsupported` the sentences that it does not support. `basis` lists what the
    confidence is based on, of `BASES`. `act` is what the reply does, of `ACTS`. `needs_facts` is
    true for a short factual question that only outside evidence can settle, and `is_unfamiliar`
    for a kind of task that the scorer was not trained on. `unread` names the part that was not
    read, as one machine word such as `context_not_read`, where `is_truncated`.
    """

    score: float
    confidence: float
    is_truncated: bool = False
    because: tuple[str, ...] = ()
    alone: float | None = None
    compared: tuple[str, ...] = ()
    unaided: float | None = None
    calibrator: str = ""
    fields: tuple[FieldDoubt, ...] = ()
    support: float | None = None
    unsupported: tuple[Unsupported, ...] = ()
    basis: tuple[str, ...] = (LIKENESS,)
    act: str = "answer"
    needs_facts: bool = False
    is_unfamiliar: bool = False
    unread: str = ""
    notes: tuple[CallNotes, ...] | None = None


class Scorer(Protocol):
    """Scores items; may block for milliseconds, never called on an event loop."""

    @property
    def name(self) -> str:
        """Checkpoint and recalibration, e.g. `embedded@3f2a`: the provenance of every score."""
        ...

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """One score for each item, in order; raises CalibratorError."""
        ...


def nothing() -> None:
    """What other threads wait for, if they wait for nothing."""


class _ApartScorer(Protocol):
    """A scorer whose `computes_apart` is true."""

    def score_batch(
        self, items: Sequence[Item], meanwhile: Callable[[], None] = ...
    ) -> list[Score]: ...


def score_meanwhile(
    scorer: Scorer, items: Sequence[Item], meanwhile: Callable[[], None]
) -> list[Score]:
    """As `score_batch`; `meanwhile` is what other threads wait for.

    A scorer that computes without Python's lock calls it as it begins to, which it says by an
    attribute `computes_apart`: so those threads run beside it. For any other it comes first.
    """
    if getattr(scorer, "computes_apart", False):
        return cast(_ApartScorer, scorer).score_batch(items, meanwhile)
    meanwhile()
    return scorer.score_batch(items)


def reads_images(scorer: Scorer) -> bool:
    """Whether it looks at `Item.images`, which it says by an attribute of this name.

    A scorer that does not must not be given any: its score would be of another question.
    """
    return bool(getattr(scorer, "reads_images", False))


def reads_tool_use(scorer: Scorer) -> bool:
    """Whether it looks at `Item.tool_use`, which it says by an attribute of this name.

    A scorer that does not reads the same calls in `Item.answer`, as text.
    """
    return bool(getattr(scorer, "reads_tool_use", False))


def opinion_of(scorer: Scorer) -> str:
    """The provenance of a score that knows other replies, such as `embedded@3f2a+opinion@9c1d`,
    which it says by an attribute `opinion`; empty for a scorer that reads no `Item.others`."""
    return str(getattr(scorer, "opinion", ""))


def signals_of(scorer: Scorer) -> str:
    """The name of the weights that join `Item.signals` to its numbers, which it says by an
    attribute `signals`; empty for a scorer that has none."""
    return str(getattr(scorer, "signals", ""))


def with_answer_characters(scorer: Scorer, characters: int) -> Scorer:
    """The scorer shown so many characters of an answer, which it gives by a method of this name;
    the scorer itself where it has no such bound."""
    bounded = getattr(scorer, "with_answer_characters", None)
    return cast(Scorer, bounded(characters)) if bounded is not None else scorer


def knows_others(name: str) -> bool:
    """Whether numbers of this name know what others replied."""
    return WITH_OTHERS in name


def without_others(name: str) -> str:
    """What gives the number of the reply alone: `embedded@3f2a+opinion@9c1d` -> `embedded@3f2a`."""
    return name.partition(WITH_OTHERS)[0]


def knows_signals(name: str) -> bool:
    """Whether numbers of this name know a judge or log-probabilities."""
    return without_signals(name) != name


def without_signals(name: str) -> str:
    """What gives the number that signals moved: `embedded@3f2a+judge@9c1d` -> `embedded@3f2a`."""
    return _WITH_SIGNALS.sub("", name)


def has_prior(name: str) -> bool:
    """Return whether numbers of this name know a judge by the prior alone."""
    return knows_signals(name) and f"+{PRIOR}@" in name


def provenance(scorer: Scorer, score: Score) -> str:
    """What a score stands on: the scorer alone, or with it the replies of others, or signals."""
    return score.calibrator or (scorer.name if score.alone is None else opinion_of(scorer))


def batch_characters_of(scorer: Scorer) -> int:
    """How much text, after padding, a batch should hold, which it says by `batch_characters`."""
    return int(getattr(scorer, "batch_characters", 16_000))


def batches_at_a_time(scorer: Scorer) -> int:
    """How many it may be given at a time, each on a thread; an attribute `concurrency` says so.

    One that computes takes one; one that waits for a server may take several.
    """
    return int(getattr(scorer, "concurrency", 1))


@dataclass(frozen=True, slots=True)
class FakeScorer:
    """Gives every item the same confidence; `fake:0.73` in a configuration."""

    confidence: float

    @property
    def name(self) -> str:
        return f"fake:{self.confidence:g}"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [Score(self.confidence, self.confidence) for _ in items]
