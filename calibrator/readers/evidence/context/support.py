"""The probability that the context of a reply supports it, and its unsupported sentences.

Boosted trees judge the features of the whole reply (`comparison`). A cross-encoder, six layers of
all-MiniLM-L6-v2, reads the pieces of the reply that the context covers least, each as `[CLS]
context [SEP] request [SEP] reply [SEP]`. Their log-odds are added. Trees that saw both relied on
the reader too much for texts that it had learnt from, and ranked unseen sources worse
(`calibrator/readers/evidence/README.md`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.features.small_encoder import SmallEncoder
from calibrator.features.trees import Trees
from calibrator.features.weights import Array, Floats, arrays_under
from calibrator.readers.evidence.context.comparison import (
    FEATURES,
    ContextComparison,
    compare,
    sentences_of,
)
from calibrator.readers.evidence.context.passages import FREQUENT, Passages, stem, words_of
from calibrator.readers.evidence.conversation import Conversation
from calibrator.recalibration.curves import log_odds, probability
from calibrator.scorer import UnsupportedSentence
from calibrator.text.word_pieces import CLS, SEP

PREFIX: Final = "context.reader."
CONTEXT_WORDS: Final = 85  # words of a context that are chosen for one piece of a reply
CONTEXT_PIECES: Final = 112
REQUEST_PIECES: Final = 28
REQUEST_HEAD: Final = 6  # pieces from the beginning of a longer request; the rest is its end
REPLY_PIECES: Final = 64
WORD_BITS: Final = 4
LABELS: Final = ("entail", "neutral", "contradict")
Cutter = Callable[[Sequence[str]], list[Sequence[int]]]
"""Cuts texts into word pieces."""
MIN_PIECE_WORDS: Final = 6  # a sentence with fewer words says too little alone
MIN_FACT_WORDS: Final = 6  # a context with fewer words supports no reply
SEARCHED: Final = 4_000  # characters that are searched
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
_INSTRUCTS: Final = re.compile(
    r"^\W*(?:you are|you're|you will|you must|you should|you can|you have|your (?:task|job|role"
    r"|name|goal|answers?)|act as|answer|reply|respond|use|be |speak|write|return|give|provide"
    r"|always|never|do not|don't|avoid|keep|make sure|ensure|please|help|assist|if (?:you|the"
    r" (?:answer|user|question|documents?|context|information))|only (?:answer|use|reply|respond)"
    r"|today is|stay|remember|follow|think|below|here (?:is|are)|the following|based on|context"
    r"|documents?|policy|rules?|instructions?|note)\b[^\n]*$",
    re.IGNORECASE,
)
# words of the user's earlier turns together; fewer are talk, and no context
MIN_USER_WORDS: Final = 30
MIN_DOCUMENT_WORDS: Final = 20  # a shorter text beside a question belongs to the question
_NO_DOCUMENT: Final = re.compile(
    r"^\W{0,3}[A-E][.):]\W?\s|^\W{0,3}\(?1[.)]\s.*\n\W{0,3}\(?2[.)]\s"  # options, numbered choices
    r"|```|\$[^$\n]+\$|\\\\|\\frac|^\s*(?:def|class|import|#include|public|function)\b"
    r"|^\W*(?:sample )?(?:inputs?|outputs?|constraints|examples?)\b[ \d]*:?\s*$"
    r"|\bCREATE TABLE\b|\"(?:parameters|properties)\"\s*:",
    re.MULTILINE | re.IGNORECASE,
)
TREES: Final = "context.trees."
WEIGHTS: Final = "context.weights"
"""Three numbers: the weight of the reader's log-odds beside the trees', a slope and a base."""
MOST_READ: Final = 4  # pieces of one reply
REQUEST_WEIGHT: Final = 0.6  # weight of the request beside the reply when passages are chosen
LIMIT: Final = 8.0  # largest log-odds in either direction
MOST_REPORTED: Final = 5  # sentences that are reported
MOST_WORDS: Final = 8  # words of one sentence that are reported
DOUBTED: Final = 0.5  # support below which sentences are reported
CONTRADICTED: Final = 0.5  # least P(contradict) of a contradicted piece
MOST_WITH_QUESTION: Final = 15  # words of a piece that is read together with the question
MOST_REQUEST: Final = 2_000  # last characters of a request that are searched for a question
_QUESTION: Final = re.compile(r"[^.!?\n]*\?")
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a reply, the context that was chosen for it, and the question, or ""."""

    context: str
    request: str
    reply: str


def assemble(
    context: Sequence[int], request: Sequence[int], reply: Sequence[int]
) -> tuple[list[int], int]:
    """Return (a row of word pieces for the encoder, the index at which its second text begins).

    The row is CLS, context, SEP, request, SEP, reply, SEP; the arguments are word pieces of the
    three texts. Context and reply are cut at their end and the request in its middle; an empty
    request is left out with its SEP.
    """
    request_pieces = list(request)
    if len(request_pieces) > REQUEST_PIECES:
        request_pieces = [
            *request_pieces[:REQUEST_HEAD],
            *request_pieces[REQUEST_HEAD - REQUEST_PIECES :],
        ]
    first = [CLS, *context[:CONTEXT_PIECES], SEP]
    second = [*request_pieces, SEP] if request_pieces else []
    return [*first, *second, *reply[:REPLY_PIECES], SEP], len(first)


class ContextReader:
    """A cross-encoder that reads passages and returns the probabilities of `LABELS`.

    `cut` cuts texts into word pieces. Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array], cut: Cutter) -> None:
        """Load the encoder and its head, (3, 2 * hidden), from a checkpoint's arrays."""
        inner = {name: array for name, array in state.items() if not name.startswith("head")}
        self._encoder = SmallEncoder(inner)
        self._head = state["head"].astype(np.float32)  # (3, 2 * hidden)
        self._bias = state["head.bias"].astype(np.float32)
        self._cut = cut
        if self._head.shape != (len(LABELS), 2 * self._encoder.hidden_size):
            raise ValueError("a head of another shape")

    def read(self, passages: Sequence[Passage]) -> NDArray[np.float64]:
        """Return P(entail), P(neutral), P(contradict) of each passage, (B, 3).

        (0, 3) without passages.
        """
        if not passages:
            return np.zeros((0, len(LABELS)))
        texts = [text for each in passages for text in (each.context, each.request, each.reply)]
        pieces = self._cut(texts)
        rows = [assemble(*pieces[at : at + 3]) for at in range(0, len(pieces), 3)]
        states = self._encoder.states([row for row, _ in rows], [start for _, start in rows])
        pooled: Floats = np.stack([np.concatenate([x[0], x.mean(axis=0)]) for x in states])
        logits = (pooled @ self._head.T + self._bias).astype(np.float64)
        grown = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def facts_of(rules: str) -> str:
    """Return a system message without sentences that instruct, such as `You are a waiter`.

    Sentences are joined by line breaks. Instructions of 240 characters or more are kept,
    because they may hold facts.
    """
    parts = [part for part in _SENTENCE.split(rules) if part.strip()]
    kept = [part for part in parts if not (len(part) < 240 and _INSTRUCTS.match(part.strip()))]
    return "\n".join(kept)


def own_document(conversation: Conversation) -> str:
    """Return the document that the request contains beside its instruction, or "".

    A document is separated by an empty line and has at least 20 words. Options, formulas, code
    and descriptions of tools are part of the question.
    """
    request = conversation.request
    if "\n\n" not in request or _NO_DOCUMENT.search(request[:SEARCHED]):
        return ""
    document = conversation.document
    return document if len(words_of(document[:SEARCHED])) >= MIN_DOCUMENT_WORDS else ""


def documents_of(conversation: Conversation) -> list[str]:
    """Return the texts that a reply may rely on; [] if they hold hardly a fact.

    They are the operator's facts, however short, then the system messages without instructions,
    earlier turns of the user (if they have 30 words), results, and the document in the request.
    All but the operator's are left out if they have fewer than six content words together.
    """
    user_texts = [turn.text for turn in conversation.earlier if turn.role == "user"]
    if sum(len(words_of(text[:SEARCHED])) for text in user_texts) < MIN_USER_WORDS:
        user_texts = []
    own = own_document(conversation)
    found = [facts_of(conversation.rules), *user_texts, *conversation.results, own]
    found = [text for text in found if text.strip()]
    facts = {word for text in found for word in words_of(text[:SEARCHED]) if word not in FREQUENT}
    return [*conversation.facts, *(found if len(facts) >= MIN_FACT_WORDS else [])]


def pieces_of(reply: str) -> list[str]:
    """Return the sentences of a reply; one with fewer than six words is joined with the next one.

    A short last one is joined with the one before.
    """
    found: list[str] = []
    is_short = False
    for sentence in sentences_of(reply):
        if is_short:
            found[-1] = f"{found[-1]} {sentence}"
        else:
            found.append(sentence)
        is_short = len(words_of(found[-1])) < MIN_PIECE_WORDS
    if is_short and len(found) > 1:
        last = found.pop()
        found[-1] = f"{found[-1]} {last}"
    return found


def most_doubtful(pieces: Sequence[str], covered: Sequence[float], count: int) -> list[int]:
    """Return the indexes of the `count` pieces that the context covers least, in text order.

    `covered` is the share of each piece's words that the context has.
    """
    order = sorted(range(len(pieces)), key=lambda at: (covered[at], at))
    return sorted(order[:count])


@dataclass(slots=True)
class Judgement:
    """The support of one reply by its context, and the sentences without support.

    `support` is a probability. `unsupported` is empty if the reply counts as supported.
    """

    support: float
    unsupported: tuple[UnsupportedSentence, ...] = ()
    is_complete: bool = True  # whether the whole reply and context were read
    features: Sequence[float] = ()  # one value for each of `comparison.FEATURES`


@dataclass(slots=True)
class SupportReading:
    """A reply being judged: its comparison, its pieces, and those that the reader reads.

    `chosen` are the indexes of those pieces, and `passages` what the reader gets for each.
    """

    comparison: ContextComparison
    pieces: list[str]
    chosen: list[int]
    passages: list[Passage]
    is_complete: bool
    found: list[list[float]] = field(
        default_factory=list
    )  # probabilities of the reader for each chosen piece


class Support:
    """A judge of replies by their context.

    `state` has the arrays of a checkpoint with their prefixes; `cut` cuts texts into word
    pieces. Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array], cut: Cutter) -> None:
        """Load the reader, the trees and their weights from a checkpoint's arrays."""
        self._reader = ContextReader(arrays_under(state, PREFIX), cut)
        self._trees = Trees(arrays_under(state, TREES), len(FEATURES))
        self._weight, self._slope, self._base = state[WEIGHTS].tolist()

    @classmethod
    def from_state(cls, state: Mapping[str, Array], cut: Cutter) -> Support | None:
        """Load the arrays of a checkpoint; None if they have no trees for contexts.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        return cls(state, cut) if any(name.startswith(TREES) for name in state) else None

    def judge(self, replies: Sequence[tuple[Conversation, str]]) -> list[Judgement | None]:
        """Judge replies by their conversations; None for each without a context to rely on.

        `replies` are (conversation, reply). None also for a reply without a word.
        """
        readings = [reading_of(conversation, reply) for conversation, reply in replies]
        known = [each for each in readings if each is not None]
        passages = [passage for each in known for passage in each.passages]
        probabilities = self._reader.read(passages).tolist()
        at = 0
        for each in known:
            each.found = probabilities[at : at + len(each.passages)]
            at += len(each.passages)
        if not known:
            return [None] * len(readings)
        rows = np.array([each.comparison.values for each in known], np.float32)
        read = [self._weight * entailment(each) for each in known]
        odds = (self._slope * (self._trees.read(rows) + read) + self._base).tolist()
        judged = iter([_judgement(each, value) for each, value in zip(known, odds, strict=True)])
        return [None if each is None else next(judged) for each in readings]


def reading_of(conversation: Conversation, reply: str) -> SupportReading | None:
    """Prepare a reply to be read with its context; None without a context or a sentence.

    The field `found` of the result is still empty; `Support.judge` sets it.
    """
    documents = documents_of(conversation)
    pieces = pieces_of(reply)
    if not documents or not pieces:
        return None
    passages = Passages(documents)
    request = conversation.instruction
    comparison = compare(reply, passages, request)
    chosen = most_doubtful(pieces, [_coverage(piece, passages) for piece in pieces], MOST_READ)
    to_read = []
    for at in chosen:
        queries = [(pieces[at], 1.0), (request, REQUEST_WEIGHT)]
        context = "\n".join(passages.closest_units(queries, CONTEXT_WORDS))
        to_read.append(Passage(context, question_beside(request, pieces[at]), pieces[at]))
    is_complete = comparison.is_complete and passages.is_complete and conversation.is_complete
    return SupportReading(comparison, pieces, chosen, to_read, is_complete)


def question_beside(request: str, piece: str) -> str:
    """Return the request's last question if the piece of a reply is short, else "".

    A short reply ("Yes", "In 1998"; up to 15 words) has a meaning only with its question.
    Instructions ("Summarize this") are no part of a claim: with them the reader judges every
    piece as not mentioned.
    """
    if len(words_of(piece)) > MOST_WITH_QUESTION:
        return ""
    found = _QUESTION.findall(request[-MOST_REQUEST:])
    return found[-1].strip() if found else ""


def entailment(reading: SupportReading) -> float:
    """Return the log-odds that the context entails the pieces that were read.

    A soft minimum: minus the logarithm of the mean odds against entailment. One doubtful piece
    decides, and several count for more than one. `reading.found` must be set.
    """
    odds = [_bound_odds(log_odds(found[0])) for found in reading.found]
    return -math.log(sum(math.exp(-each) for each in odds) / len(odds))


def _judgement(reading: SupportReading, odds: float) -> Judgement:
    """Return the judgement of a reply whose support has these log-odds.

    Sentences without support are reported only if the support is below 0.5.
    """
    support = probability(_bound_odds(odds))
    unsupported = _unsupported_sentences(reading) if support < DOUBTED else ()
    return Judgement(support, unsupported, reading.is_complete, reading.comparison.values)


def _unsupported_sentences(reading: SupportReading) -> tuple[UnsupportedSentence, ...]:
    """Return the pieces that are not supported, the most doubtful one first.

    The most doubtful one is always reported, further ones if P(entail) is below 0.5; at most
    five. Their kind is `contradicted` or `missing`.
    """
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
    return tuple(found[:MOST_REPORTED])


def _words(piece: str, comparison: ContextComparison, kind: str) -> tuple[str, ...]:
    """Return the words of a piece that its context lacks, at most eight, each once.

    For the kind `contradicted` also words whose opposite the context has and numbers from
    elsewhere in the context. `comparison` is that of the whole reply.
    """
    words: list[str] = []
    for sentence in comparison.sentences:
        if sentence.text in piece:
            words += sentence.missing
            words += sentence.opposed if kind == "contradicted" else []
            words += sentence.far if kind == "contradicted" else []
    return tuple(dict.fromkeys(words))[:MOST_WORDS]


def _short_text(text: str, most: int = 300) -> str:
    """Return a text on one line; one longer than `most` characters is cut and ends with " .."."""
    line = _SPACE.sub(" ", text).strip()
    return line if len(line) <= most else line[: most - 2].rstrip() + " .."


def _coverage(piece: str, passages: Passages) -> float:
    """Return the share of a piece's content words that occur in the context; 1.0 without any."""
    own = {stem(word) for word in words_of(piece) if word not in FREQUENT}
    return len(own & passages.rarity.keys()) / len(own) if own else 1.0


def _bound_odds(odds: float) -> float:
    """Return log-odds within +-8 (`LIMIT`)."""
    return min(max(odds, -LIMIT), LIMIT)
