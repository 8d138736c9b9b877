"""The interface of a scorer: text in, probability out.

Anything with a `name` and a `score_batch` can replace the calibrator: the embedded cross-encoder, a
bigger checkpoint, a server over HTTP, or the `FakeScorer` of tests and demos.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

IMAGE_CHARACTERS = 800  # the size of an image, which is about 200 tokens or more
WITH_OTHERS: Final = "+opinion@"
"""The part of a scorer's name, before a hash, that marks numbers based on other replies."""
LOGPROBS: Final = "logprobs"
IN_WORDS: Final = " in words"  # follows the name of a judge that had to write a number
PRIOR: Final = "judge-prior"
"""The part of a name that marks numbers moved by a judge with prior weights, without labels."""
_WITH_SIGNALS: Final = re.compile(r"\+(judge|logprobs|judge-logprobs|judge-prior)@[0-9a-f]+$")


@dataclass(slots=True)  # not frozen, as `Item`
class ToolUse:
    """A reply in a conversation with tools, unabridged, where its text would leave parts out.

    It calls tools, or it is text where tools were offered or used; `has_calls` distinguishes them.
    Everything has the form of OpenAI's chat and is a reference, never a copy. Nothing in it is
    checked, since a model can write anything.
    """

    messages: Sequence[Any]  # before the reply: instructions, turns, calls and their results
    tools: Sequence[Any]  # the tools that were offered, or ()
    message: Mapping[str, Any]  # the assistant's, as in chat: `content`, `tool_calls`, ...

    @property
    def has_calls(self) -> bool:
        """Whether the reply calls at least one tool, also in the legacy form, `function_call`."""
        return bool(self.message.get("tool_calls") or self.message.get("function_call"))


@dataclass(frozen=True, slots=True)
class OtherReply:
    """The reply of another model, or of the same one asked again, to the same question."""

    answer: str
    source_model: str | None = None
    tool_use: ToolUse | None = None


@dataclass(frozen=True, slots=True)
class Signals:
    """The evidence on a reply beyond texts; each signal may be absent.

    `judged` is P(correct) by a model that judged the reply. `judge` is its name, followed by
    ` in words` where it had to answer with a number. `logprobs` are the mean and the lowest
    natural log-probability of the reply's tokens, from its own model.
    """

    judged: float | None = None
    judge: str = ""
    logprobs: tuple[float, float] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the signals present, such as `("judge gpt-4o in words", "logprobs")`.

        Each judge, and each way of judging, is a kind of its own. Empty without signals.
        """
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
    domain: str | None = None  # never shown to a model; a recalibration may use it
    images: tuple[bytes, ...] = ()  # the question's encoded files (PNG, JPEG, ...), in order
    tool_use: ToolUse | None = None  # set where the reply calls tools, or tools were available
    others: tuple[OtherReply, ...] = ()  # replies to the same question, in any order
    alone: float | None = None  # the confidence without `others`, where it is already known
    signals: Signals = NO_SIGNALS  # never shown to a model; a recalibration may use them
    messages: Sequence[Any] = ()  # before the reply, as in chat; compared with it, never shown
    facts: tuple[str, ...] = ()  # the operator's texts on the question; compared, never shown


def known_name(name: str | None, known: Container[str]) -> str | None:
    """Return a model's name in lower case as it is among the known ones, or None.

    An owner before it is left out unless the name is known with it, because servers and gateways
    add one: `meta-llama/Llama-3.1-8B-Instruct`. None for no name and for an unknown one.
    """
    name = (name or "").lower()
    if name in known:
        return name
    name = name.rpartition("/")[2]
    return name if name in known else None


@dataclass(frozen=True, slots=True)
class FieldDoubt:
    """An argument of a call that occurs nowhere in the conversation; `mark` says so in words.

    `call` counts the calls of the reply from 0. `share` is the part, from 0 to 1, of the confidence
    that remains, compared with the same call if the user had named the value; None where it is
    unknown.
    """

    name: str
    mark: str
    call: int
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """An objection to a call of a tool.

    `name` is one of `MARKS`. `argument` is the argument concerned, empty for the call as a whole,
    and `words` is the objection for a person.
    """

    name: str
    argument: str = ""
    words: str = ""

    @property
    def text(self) -> str:
        """The objection, after its argument if any: `role: the user named viewer`."""
        return f"{self.argument}: {self.words}" if self.argument else self.words


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
    "not_looked_up": "no read-only call came before this one",
}
"""Each mark with its meaning, the strongest first."""
LOW: Final = "low"
MEDIUM: Final = "medium"
HIGH: Final = "high"
RISKS: Final = (LOW, MEDIUM, HIGH)
"""How bad a wrong call would be, given the user's request."""


@dataclass(frozen=True, slots=True)
class CallNotes:
    """The notes on one call besides its confidence.

    These are its marks, the strongest first, and its risk, of `RISKS`, with reasons in words.
    """

    marks: tuple[Mark, ...] = ()
    risk: str = LOW
    reasons: tuple[str, ...] = ()


def read_notes(values: Iterable[Mapping[str, Any]]) -> tuple[CallNotes, ...]:
    """Return the notes on calls from the values that `dataclasses.asdict` made of them, in order.

    Raises KeyError, TypeError and the like for other values.
    """
    return tuple(
        CallNotes(
            tuple(Mark(one["name"], one["argument"], one["words"]) for one in each["marks"]),
            each["risk"],
            tuple(each["reasons"]),
        )
        for each in values
    )


@dataclass(frozen=True, slots=True)
class UnsupportedSentence:
    """A sentence of a reply that its context does not support, and the words that show it.

    `kind` is `missing` if the context does not mention them, `contradicted` if it contradicts them.
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
"""The possible bases of a confidence; `likeness` alone means that nothing was checked."""


def basis_with(basis: Iterable[str], *more: str) -> tuple[str, ...]:
    """Return the names of `basis` and `more`, each once, in the order of `BASES`.

    A basis lists what a confidence rests on, such as `("context", "calls")`. Unknown names are
    dropped.
    """
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
"""The acts of a reply; `unknown` says that it does not know, `data` is JSON, CSV or the like."""


@dataclass(slots=True)  # not frozen, as `Item`
class Score:
    """P(correct) of one item, 0 to 1; higher is more certain.

    `score` is the model's output (softmax over the two label logits, paper B09), and `confidence`
    the same after recalibration. `is_truncated` is true where only a part of the text was read.
    `because` has a few plain facts that speak against the reply, where the scorer knows any. Where
    replies of others were read, `alone` is the confidence without them, and `compared` states for
    each whether it agrees, differs, or cannot be compared. Where signals moved the confidence,
    `unaided` is the one without them, and `calibrator` the name of the scorer with them. `fields`
    are arguments of calls that occur nowhere, where the scorer can recognize them. `notes` has the
    marks and the risk of each call of the reply, in their order; None where nobody looked.
    `support` is the probability that the context supports the reply, None where there is no
    context, and `unsupported` has the sentences that it does not support. `basis` lists the bases
    of the confidence, of `BASES`. `act` is the reply's act, of `ACTS`. `needs_facts` is true for a
    short factual question that only outside evidence can settle, and `is_unfamiliar` for a kind of
    task that the scorer was not trained on. `unread` names the part that was not read, as one
    machine-readable word such as `context_not_read`, where `is_truncated`.
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
    unsupported: tuple[UnsupportedSentence, ...] = ()
    basis: tuple[str, ...] = (LIKENESS,)
    act: str = "answer"
    needs_facts: bool = False
    is_unfamiliar: bool = False
    unread: str = ""
    notes: tuple[CallNotes, ...] | None = None


class Scorer(Protocol):
    """Scores items. It may block for milliseconds and is never called on an event loop."""

    @property
    def name(self) -> str:
        """The checkpoint and its recalibration, such as `embedded@3f2a`."""
        ...

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order. Raises CalibratorError."""
        ...


def do_nothing() -> None:
    """Do nothing, as the default of `meanwhile`."""


class _ApartScorer(Protocol):
    """A scorer whose `computes_apart` is true."""

    def score_batch(
        self, items: Sequence[Item], meanwhile: Callable[[], None] = ...
    ) -> list[Score]: ...


def score_meanwhile(
    scorer: Scorer, items: Sequence[Item], meanwhile: Callable[[], None]
) -> list[Score]:
    """Return the scores of the items and call `meanwhile` once, so that other threads can run.

    `meanwhile` takes and returns nothing. A scorer with a true attribute `computes_apart` computes
    without Python's lock: it calls `meanwhile` as it begins to, so that the threads run beside it.
    For any other scorer `meanwhile` is called first. Raises CalibratorError as the scorer does.
    """
    if getattr(scorer, "computes_apart", False):
        return cast(_ApartScorer, scorer).score_batch(items, meanwhile)
    meanwhile()
    return scorer.score_batch(items)


def reads_images(scorer: Scorer) -> bool:
    """Return whether a scorer reads `Item.images`: its attribute `reads_images`, else False.

    Other scorers must not be given any images, since they would score another question.
    """
    return bool(getattr(scorer, "reads_images", False))


def reads_tool_use(scorer: Scorer) -> bool:
    """Return whether a scorer reads `Item.tool_use`: its attribute `reads_tool_use`, else False.

    Other scorers read the same calls in `Item.answer`, as text.
    """
    return bool(getattr(scorer, "reads_tool_use", False))


def opinion_of(scorer: Scorer) -> str:
    """Return the name of scores for which other replies were read.

    This is the scorer's attribute `opinion`, such as `embedded@3f2a+opinion@9c1d`; "" for a scorer
    that reads no `Item.others`.
    """
    return str(getattr(scorer, "opinion", ""))


def signals_of(scorer: Scorer) -> str:
    """Return the name of the weights that join `Item.signals` to a scorer's confidences.

    This is its attribute `signals`; "" for a scorer that has none.
    """
    return str(getattr(scorer, "signals", ""))


def with_answer_characters(scorer: Scorer, characters: int) -> Scorer:
    """Return a scorer that reads at most this many characters of an answer.

    The scorer itself is returned where it has no method `with_answer_characters`, and so no such
    limit.
    """
    bounded = getattr(scorer, "with_answer_characters", None)
    return cast(Scorer, bounded(characters)) if bounded is not None else scorer


def knows_others(name: str) -> bool:
    """Return whether a name, such as `a@1+opinion@9c1d`, says that other replies were read."""
    return WITH_OTHERS in name


def without_others(name: str) -> str:
    """Return a scorer's name without the mark of other replies.

    That is the part from `+opinion@` on: `embedded@3f2a+opinion@9c1d` gives `embedded@3f2a`.
    """
    return name.partition(WITH_OTHERS)[0]


def knows_signals(name: str) -> bool:
    """Return whether a scorer's name says that signals moved its numbers.

    It ends like `a@1+judge@9c1d`. Signals are a judge's number and log-probabilities.
    """
    return without_signals(name) != name


def without_signals(name: str) -> str:
    """Return a scorer's name without the mark of signals at its end.

    `embedded@3f2a+judge@9c1d` gives `embedded@3f2a`; other names are returned unchanged.
    """
    return _WITH_SIGNALS.sub("", name)


def has_prior(name: str) -> bool:
    """Return whether a name ends in `+judge-prior@` and a hash.

    Such numbers weigh a judge by prior weights, which were fitted on no labels of the deployment.
    """
    return knows_signals(name) and f"+{PRIOR}@" in name


def provenance(scorer: Scorer, score: Score) -> str:
    """Return the name of the calibrator that gave a score, other replies and signals included.

    It is `score.calibrator` if set, else the scorer's `opinion` where other replies changed the
    score, else the scorer's name.
    """
    return score.calibrator or (scorer.name if score.alone is None else opinion_of(scorer))


def batch_characters_of(scorer: Scorer) -> int:
    """Return the most characters that a batch of a scorer may have after padding.

    This is its attribute `batch_characters`, by default 16,000.
    """
    return int(getattr(scorer, "batch_characters", 16_000))


def batches_at_a_time(scorer: Scorer) -> int:
    """Return how many batches a scorer takes at a time, each on a thread.

    This is its attribute `concurrency`, by default 1. A scorer that computes takes one. A scorer
    that waits for a server may take several.
    """
    return int(getattr(scorer, "concurrency", 1))


@dataclass(frozen=True, slots=True)
class FakeScorer:
    """Gives every item the same confidence; `fake:0.73` in a configuration."""

    confidence: float

    @property
    def name(self) -> str:
        """The name in a configuration, such as `fake:0.73`."""
        return f"fake:{self.confidence:g}"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Return the same score and confidence for each item."""
        return [Score(self.confidence, self.confidence) for _ in items]
