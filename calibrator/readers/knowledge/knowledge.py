"""The knowledge of a small encoder about a short reply to a short question, as log-odds.

Tower and forest know how hard a question is. They do not know that Bern, not Zurich, is the
capital of Switzerland. An encoder trained on questions with their answers does, in part: the pieces
of a right answer have a meaning near that of the question. Only short factual replies are read,
which takes a few milliseconds, less where several are read together. A question is read once for
all replies to it. The log-odds are added to those of all other parts, with more weight where the
question is unlike the benchmarks whose difficulty is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.features.small_encoder import SmallEncoder
from calibrator.features.weights import Array, Floats, arrays_under
from calibrator.recalibration.curves import sigmoid

PREFIX = "knowledge."
ENCODER = "encoder."
MOST_CHARACTERS = 240  # characters of a question, and of a reply
MOST_PIECES = 46  # pieces read of each text; the encoder's positions without its marks
MOST_SENTENCES = 2
MOST_QUESTIONS = 1_024  # remembered questions, 2 kB each; then all are forgotten
AT_ONCE = 1_024  # pieces that go through the encoder together
SCALE_OF_VECTOR, SCALE_OF_PRODUCT = 4.0, 20.0  # bring the network's inputs to order 1
LIMIT = 4.0  # the largest absolute log-odds

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_OPTIONS = ("Options", "Choices")
_ASKS = re.compile(
    r"\b(?:who|whom|whose|which|when|where|what|name the"
    r"|how (?:many|much|long|far|old|tall|often|fast|big|large|high|deep))\b",
    re.IGNORECASE,
)
_TALKS = re.compile(r"\b(?:i|me|my|we|us|our|you|your|should|could)\b", re.IGNORECASE)


def is_short(question: str, answer: str) -> bool:
    """Return whether a reply of at most two sentences answers a short question without options.

    Both must be one line of 1 to 240 characters.
    """
    question, answer = question.strip(), answer.strip()
    return (
        0 < len(answer) <= MOST_CHARACTERS
        and 0 < len(question) <= MOST_CHARACTERS
        and "\n" not in question + answer
        and not any(word in question for word in _OPTIONS)
        and len(_SENTENCE.split(answer)) <= MOST_SENTENCES
    )


def asks_for_fact(question: str) -> bool:
    """Return whether a question asks for a fact, as `Who wrote Emma?` does.

    It must have a question word and no word about speaker or listener (`I`, `you`, `should`).
    """
    return bool(_ASKS.search(question)) and not _TALKS.search(question)


class Knowledge:
    """An encoder, small networks on its vectors of question and reply, and their weights.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load the encoder, the networks and their weights from arrays named without `knowledge.`.

        Raises KeyError for a missing array and ValueError for knowledge of another shape.
        """
        encoder = arrays_under(state, ENCODER)
        self.encoder = SmallEncoder(encoder)
        self.plain = frozenset(state["plain"].astype(int).tolist())  # pieces without content
        self.dropped = frozenset(state["dropped"].astype(int).tolist())  # pieces never read
        own = {k: a.astype(np.float32) for k, a in state.items() if not k.startswith(ENCODER)}
        count = sum(name.endswith(".cosines") for name in own)
        self.members = [Member({k: own[f"{at}.{k}"] for k in MEMBER}) for at in range(count)]
        self.gate, self.weights = own["gate"], own["weights"]  # (hidden + 1,), (3,)
        if not count or self.weights.shape != (3,):
            raise ValueError("knowledge of another shape")
        self._question_means: dict[
            tuple[int, ...], Floats
        ] = {}  # mean states of the last questions

    def shifts(
        self,
        texts: Sequence[tuple[str, str]],
        pieces: Sequence[tuple[Sequence[int], Sequence[int]]],
    ) -> NDArray[np.float64]:
        """Return the number to add to the log-odds of each reply, (B,).

        `texts` are (question, answer), `pieces` their word pieces. It is 0 unless the reply
        is short (`is_short`), its question asks for a fact, and a piece of the reply is
        read.
        """
        found = np.zeros(len(texts))
        read = {
            at: (tuple(self.drop_unread(pieces[at][0])), answer_pieces)
            for at, (question, answer) in enumerate(texts)
            if is_short(question, answer)
            and asks_for_fact(question)
            and (answer_pieces := self.drop_unread(pieces[at][1]))
        }
        for at, vectors in zip(read, self.vectors([*read.values()]), strict=True):
            found[at] = self._shift(vectors)
        return found

    def drop_unread(self, ids: Sequence[int]) -> list[int]:
        """Return the pieces of a text that are read: without `dropped`, at most 46."""
        return [each for each in ids if each not in self.dropped][:MOST_PIECES]

    def vectors(self, pairs: Sequence[tuple[tuple[int, ...], Sequence[int]]]) -> list[Floats]:
        """Return three vectors, (3, hidden), for each pair of pieces of a question and an answer.

        They are for the question, the answer, and the part of the answer that the question
        lacks. The means of new questions are remembered; at 1,024 questions all are
        forgotten.
        """
        question_means = {
            ids: known for ids, _ in pairs if (known := self._question_means.get(ids)) is not None
        }
        new = dict.fromkeys(ids for ids, _ in pairs if ids not in question_means)
        states = self._states([*new, *(answer for _, answer in pairs)])
        for ids, own in zip(new, states, strict=False):
            if len(self._question_means) >= MOST_QUESTIONS:
                self._question_means = {}
            question_means[ids] = self._question_means[ids] = own.mean(axis=0)
        return [
            vectors_of(question_means[question], answer_states, question, answer, self.plain)
            for (question, answer), answer_states in zip(pairs, states[len(new) :], strict=True)
        ]

    def _states(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the states of each text's pieces, (T, hidden), computed for several at a time."""
        most = AT_ONCE // (MOST_PIECES + 2)
        some = (texts[start : start + most] for start in range(0, len(texts), most))
        return [states for each in some for states in self.encoder(each)]

    def _shift(self, vectors: Floats) -> float:
        """Return the number to add to the log-odds of one reply, from its vectors (3, hidden).

        The gate, 0 to 1, grows for questions unlike those of benchmarks and gives the
        networks more weight.
        """
        least, more, middle = self.weights.tolist()
        gate = float(sigmoid(vectors[0] @ self.gate[:-1] + self.gate[-1]))
        return float((least + more * gate) * (self.odds(vectors) - middle))

    def odds(self, vectors: Floats) -> float:
        """Return the log-odds that the reply is right: the networks' mean within +-4 (`LIMIT`).

        `vectors` are the three of one reply, (3, hidden).
        """
        mean = float(np.mean([member.odds(vectors) for member in self.members]))
        return min(LIMIT, max(-LIMIT, mean))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Knowledge | None:
        """Load the arrays of a checkpoint's weights; None if none begins with `knowledge.`.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None


MEMBER = ("cosines", "asked", "added", "first", "first.bias", "second", "second.bias")


class Member:
    """One network: two cosines, a product of two projections, and a layer on all vectors."""

    def __init__(self, state: Mapping[str, Floats]) -> None:
        """Take the network's arrays, named as in `MEMBER`."""
        self.state = state

    def odds(self, vectors: Floats) -> float:
        """Return the network's log-odds that the reply is right, from three vectors (3, hidden).

        They are of question, answer and addition, as in `vectors_of`.
        """
        question, answer, added = vectors
        of = self.state
        cosines = np.array([question @ answer, question @ added, 1.0], np.float32)
        product = (of["asked"] @ question) @ (of["added"] @ added) * SCALE_OF_VECTOR**2
        inner = np.maximum(of["first"] @ network_input(vectors) + of["first.bias"], 0)
        last = inner @ of["second"] + of["second.bias"][0]
        return float(cosines @ of["cosines"] + product + last)


def network_input(vectors: Floats) -> Floats:
    """Return the layer's input, (.., 5 * hidden), for vectors (.., 3, hidden).

    It has the three vectors and the products of the question with the addition and the answer,
    scaled.
    """
    question, answer, added = (vectors[..., at, :] for at in range(3))
    near = SCALE_OF_PRODUCT * question * added, SCALE_OF_PRODUCT * question * answer
    read: Floats = np.concatenate([question, added, answer, *near], axis=-1)
    return read * np.float32(SCALE_OF_VECTOR)


def vectors_of(
    question_mean: Floats,
    answer_states: Floats,
    question: Sequence[int],
    answer: Sequence[int],
    plain: frozenset[int],
) -> Floats:
    """Return the vectors of question, answer and addition, (3, hidden), each of length 1.

    `question_mean` is the mean of the states of the question's pieces, (hidden,), and
    `answer_states` has the states of the answer's, (T, hidden). `plain` are pieces without
    content. The addition is the mean of the answer's pieces that have content and are not in the
    question; of all if there are none. In a whole sentence these are the answer proper, in a
    short one all of it.
    """
    known = plain.union(question)
    # The first state is that of a mark.
    at = [place for place, each in enumerate(answer, start=1) if each not in known]
    means = np.stack(
        [
            question_mean,
            answer_states.mean(axis=0),
            (answer_states[at] if at else answer_states).mean(axis=0),
        ]
    )
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))
