"""The probability that the context of a reply supports it, and its unsupported sentences.

Boosted trees judge the features of the whole reply (`comparison`), and the reader its most doubtful
pieces (`reader`). Their log-odds are added. Trees that saw both relied on the reader too much for
texts that it had learnt from, and ranked unseen sources worse
(`calibrator/readers/evidence/README.md`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibrator.features.trees import Trees
from calibrator.features.weights import Array, arrays_under
from calibrator.readers.evidence.context.comparison import FEATURES, ContextComparison, compare
from calibrator.readers.evidence.context.passages import FREQUENT, Passages, stem, words_of
from calibrator.readers.evidence.context.pieces import documents_of, most_doubtful, pieces_of
from calibrator.readers.evidence.context.reader import (
    CONTEXT_WORDS,
    PREFIX,
    ContextReader,
    Cutter,
    Passage,
)
from calibrator.readers.evidence.conversation import Conversation
from calibrator.recalibration.curves import log_odds, probability
from calibrator.scorer import UnsupportedSentence

TREES: Final = "context.trees."
WEIGHTS: Final = "context.weights"
"""Three numbers: the weight of the reader's log-odds beside the trees', a slope and a base."""

MOST_READ: Final = 4  # pieces of one reply
REQUEST_WEIGHT: Final = 0.6  # weight of the request beside the reply when passages are chosen
LIMIT: Final = 8.0  # largest log-odds in either direction
MOST_TOLD: Final = 5  # sentences that are reported
MOST_WORDS: Final = 8  # words of one sentence that are reported
DOUBTED: Final = 0.5  # support below which sentences are reported
CONTRADICTED: Final = 0.5  # least P(contradict) of a contradicted piece
MOST_WITH_QUESTION: Final = 15  # words of a piece that is read together with the question
MOST_REQUEST: Final = 2_000  # last characters of a request that are searched for a question
_QUESTION: Final = re.compile(r"[^.!?\n]*\?")
_SPACE: Final = re.compile(r"\s+")


@dataclass(slots=True)
class Judgement:
    """The support of one reply by its context, and the sentences without support."""

    support: float
    unsupported: tuple[UnsupportedSentence, ...] = ()
    is_complete: bool = True  # whether the whole reply and context were read
    features: Sequence[float] = ()  # one value for each of `comparison.FEATURES`


@dataclass(slots=True)
class SupportReading:
    """A reply being judged: its comparison, its pieces, and the pieces that the reader reads."""

    comparison: ContextComparison
    pieces: list[str]
    chosen: list[int]
    passages: list[Passage]
    is_complete: bool
    found: list[list[float]] = field(
        default_factory=list
    )  # probabilities of the reader for each chosen piece


class Support:
    """A judge of replies by their context. Raises KeyError or ValueError for unfit arrays."""

    def __init__(self, state: Mapping[str, Array], cut: Cutter) -> None:
        self._reader = ContextReader(arrays_under(state, PREFIX), cut)
        self._trees = Trees(arrays_under(state, TREES), len(FEATURES))
        self._weight, self._slope, self._base = state[WEIGHTS].tolist()

    @classmethod
    def from_state(cls, state: Mapping[str, Array], cut: Cutter) -> Support | None:
        """Load the arrays of a checkpoint; None if they have no such part."""
        return cls(state, cut) if any(name.startswith(TREES) for name in state) else None

    def judge(self, replies: Sequence[tuple[Conversation, str]]) -> list[Judgement | None]:
        """Judge replies by their conversations; None for each without a context to rely on."""
        readings = [reading_of(conversation, reply) for conversation, reply in replies]
        known = [each for each in readings if each is not None]
        passages = [passage for each in known for passage in each.passages]
        told = self._reader.read(passages).tolist()
        at = 0
        for each in known:
            each.found = told[at : at + len(each.passages)]
            at += len(each.passages)
        if not known:
            return [None] * len(readings)
        rows = np.array([each.comparison.values for each in known], np.float32)
        read = [self._weight * entailment(each) for each in known]
        odds = (self._slope * (self._trees.read(rows) + read) + self._base).tolist()
        judged = iter([_judgement(each, value) for each, value in zip(known, odds, strict=True)])
        return [None if each is None else next(judged) for each in readings]


def reading_of(conversation: Conversation, reply: str) -> SupportReading | None:
    """Prepare a reply to be read with its context; None without a context or a sentence."""
    documents = documents_of(conversation)
    pieces = pieces_of(reply)
    if not documents or not pieces:
        return None
    passages = Passages(documents)
    request = conversation.instruction
    comparison = compare(reply, passages, request)
    chosen = most_doubtful(pieces, [_coverage(piece, passages) for piece in pieces], MOST_READ)
    asked = []
    for at in chosen:
        queries = [(pieces[at], 1.0), (request, REQUEST_WEIGHT)]
        context = "\n".join(passages.closest_units(queries, CONTEXT_WORDS))
        asked.append(Passage(context, question_beside(request, pieces[at]), pieces[at]))
    is_complete = comparison.is_complete and passages.is_complete and conversation.is_complete
    return SupportReading(comparison, pieces, chosen, asked, is_complete)


def question_beside(request: str, piece: str) -> str:
    """Return the question to read a piece of a reply with; empty for a whole statement.

    A short reply ("Yes", "In 1998") has a meaning only with its question. Instructions ("Summarize
    this") are no part of a claim: with them the reader judges every piece as not mentioned.
    """
    if len(words_of(piece)) > MOST_WITH_QUESTION:
        return ""
    found = _QUESTION.findall(request[-MOST_REQUEST:])
    return found[-1].strip() if found else ""


def entailment(reading: SupportReading) -> float:
    """Return the log-odds that the context entails the pieces that were read.

    A soft minimum: minus the logarithm of the mean odds against entailment. One doubtful piece
    decides, and several count for more than one.
    """
    odds = [_bound_odds(log_odds(found[0])) for found in reading.found]
    return -math.log(sum(math.exp(-each) for each in odds) / len(odds))


def _judgement(reading: SupportReading, odds: float) -> Judgement:
    """Return the judgement of a reply whose support has these log-odds."""
    support = probability(_bound_odds(odds))
    unsupported = _unsupported_sentences(reading) if support < DOUBTED else ()
    return Judgement(support, unsupported, reading.is_complete, reading.comparison.values)


def _unsupported_sentences(reading: SupportReading) -> tuple[UnsupportedSentence, ...]:
    """Return the sentences that are not supported, the most doubtful piece first."""
    found: list[UnsupportedSentence] = []
    order = sorted(range(len(reading.chosen)), key=lambda at: reading.found[at][0])
    for at in order:
        entailed, _, against = reading.found[at]
        if entailed >= DOUBTED and found:
            break
        piece = reading.pieces[reading.chosen[at]]
        kind = "contradicted" if against >= CONTRADICTED else "missing"
        found.append(
            UnsupportedSentence(_short_text(piece), _words(piece, reading.comparison, kind), kind)
        )
    return tuple(found[:MOST_TOLD])


def _words(piece: str, comparison: ContextComparison, kind: str) -> tuple[str, ...]:
    """Return the words of a piece that its context lacks, or that it contradicts."""
    told: list[str] = []
    for sentence in comparison.sentences:
        if sentence.text in piece:
            told += sentence.missing
            told += sentence.opposed if kind == "contradicted" else []
            told += sentence.far if kind == "contradicted" else []
    return tuple(dict.fromkeys(told))[:MOST_WORDS]


def _short_text(text: str, most: int = 300) -> str:
    """Return a text on one line, cut to `most` characters."""
    line = _SPACE.sub(" ", text).strip()
    return line if len(line) <= most else line[: most - 2].rstrip() + " .."


def _coverage(piece: str, passages: Passages) -> float:
    """Return the share of a piece's words that occur in the context."""
    own = {stem(word) for word in words_of(piece) if word not in FREQUENT}
    return len(own & passages.rarity.keys()) / len(own) if own else 1.0


def _bound_odds(odds: float) -> float:
    """Return log-odds within `LIMIT`."""
    return min(max(odds, -LIMIT), LIMIT)
