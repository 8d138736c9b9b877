"""The inspector: the probability that a reply answers its question and agrees with itself.

Each check is a set of boosted trees on the traits from `relevance`, `working` and `wanted` and on
the traits that the tower reads. It was fitted on right replies against the same replies with one
kind of fault (`calibrator.lab.data.corruptions`), so it does not depend on the difficulty of a
question or the ability of a model. P(correct) is multiplied by the checks:

    P(correct) = P(right | in order) x P(in order),   P(in order) = product of the checks

since a reply that is no answer, or whose end contradicts its working, is wrong whatever the
question. A check begins with odds that a reply is in order (`prior`), so that only strong evidence
has an effect. It may multiply its trees' log-odds (`slope`), so that a small doubt changes little
and a strong doubt nearly rules the reply out.

For a long reply a check may also be evidence of P(right | in order): how well a text is worked out
to its end is informative for every kind of text, while tower and forest know only the kinds that
they learnt. So a share of the trees' log-odds beyond those of a typical long reply is added.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrator.features.traits import LENGTH, TRAITS, traits_of
from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.readers.inspection.relevance import COSINES, Pieces, relevance
from calibrator.readers.inspection.wanted import wanted_kinds
from calibrator.readers.inspection.working import NUMBER_STATED, OPTION_NAMED, working_traits
from calibrator.recalibration.curves import probability

Floats = NDArray[np.float32]
Array = NDArray[np.generic]

PREFIX = "inspector."
RELEVANCE = "relevance"  # the check that also learns from excerpts and plain requests
DOUBTED = 0.5  # P(in order) below which a check reports its finding
LIMIT = 1e6  # the largest absolute value of a trait
LONG = 400  # characters from which a reply's working and end are evidence of its correctness


def inspect(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    pieces: Pieces,
    traits: Floats | None = None,
) -> Floats:
    """Return all traits of one answered question, (SEEN,); finite for every text.

    `question_ids` and `answer_ids` are word pieces. `traits` are those of `traits_of` if they
    are already known; None computes them.
    """
    own = array("f", relevance(question, answer, question_ids, answer_ids, pieces))
    own.extend(working_traits(question, answer))
    own.extend(wanted_kinds(question, answer))
    own.frombytes((traits_of(question, answer) if traits is None else traits).tobytes())
    found = np.frombuffer(own, np.float32)
    found[np.isnan(found)] = 0
    np.maximum(found, -LIMIT, out=found)  # faster than `clip`
    np.minimum(found, LIMIT, out=found)
    return found


_NOTHING = Pieces(np.zeros((1, 1), np.int8), np.zeros(1, np.float32), np.zeros(1, np.float32))
SEEN = len(inspect("", "", [], [], _NOTHING))
_LENGTH = SEEN - TRAITS + LENGTH  # the column of the answer's length
_LONG = np.log1p(LONG)
_OF_WORKING = len(relevance("", "", [], [], _NOTHING))  # the first column of `working_traits`


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a reply, with the faults that teach it and the condition for it to apply.

    `finding` is the sentence for people about a doubted reply. `faults` are names of
    corruptions in the training data. `applies` is the column of the traits that must not be 0;
    None for every reply.
    """

    name: str
    finding: str
    faults: tuple[str, ...]
    applies: int | None = None

    def applies_to(self, seen: Floats) -> NDArray[np.bool_]:
        """Return which of the replies it checks, (B,), from their traits (B, SEEN)."""
        if self.applies is None:
            return np.ones(len(seen), dtype=np.bool_)
        return np.asarray(seen[:, self.applies] != 0)


CHECKS = (
    Check(
        RELEVANCE,
        "it does not answer the question",
        ("another question", "nearest question", "off topic", "echo"),
    ),
    Check(
        "number",
        "the final number is not what the working arrives at",
        ("last number", "working", "arrival"),
        _OF_WORKING + NUMBER_STATED,
    ),
    Check(
        "option",
        "the final option is not what the working argues for",
        ("final option", "argued option"),
        _OF_WORKING + OPTION_NAMED,
    ),
    Check("ending", "it breaks off before its end", ("cut off",)),
)


class Counts(NamedTuple):
    """The four numbers that turn a check's trees into a probability, all in log-odds."""

    prior: float  # log-odds that a reply is in order
    slope: float  # factor of the trees' log-odds
    share: float  # share of the log-odds beyond `middle` that is evidence for a long reply
    middle: float  # the trees' log-odds for a typical long reply


class Inspection(NamedTuple):
    """The result of an inspector for B replies."""

    in_order: NDArray[np.float64]  # (B,) P(a reply answers its question and agrees with itself)
    findings: list[tuple[str, ...]]  # the sentences of the checks that doubt a reply
    evidence: NDArray[np.float64]  # (B,) added to the log-odds of right, if in order


class Inspector:
    """The trees of each check that the training data could teach, and the word pieces they use.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load the checks that the arrays have, and the word pieces."""
        self.checks = [check for check in CHECKS if f"{check.name}.prior" in state]
        self.trees = [Trees(arrays_under(state, f"{check.name}."), SEEN) for check in self.checks]
        self.counts = [_counts(arrays_under(state, f"{check.name}.")) for check in self.checks]
        if not self.checks:
            raise ValueError("an inspector without a check")
        self.pieces = replace(Pieces.from_state(state), thresholds=self._thresholds())

    def _thresholds(self) -> list[list[float]]:
        """Return for each cosine the values with which the trees compare it, ascending."""
        columns = range(COSINES.start, COSINES.stop)
        return [sorted({x for each in self.trees for x in each.thresholds(at)}) for at in columns]

    def check_odds(self, seen: Floats) -> NDArray[np.float64]:
        """Return the trees' log-odds for each check, (checks, B), of traits (B, SEEN).

        They are nan for replies to which the check does not apply.
        """
        found = np.full((len(self.checks), len(seen)), np.nan)
        for check, trees, odds in zip(self.checks, self.trees, found, strict=True):
            at = np.flatnonzero(check.applies_to(seen))
            if len(at) == len(seen):
                odds[:] = trees.read(seen)
            elif len(at):
                odds[at] = trees.read(seen[at])
        return found

    def read(self, seen: Floats) -> Inspection:
        """Return P(in order), findings and evidence for replies with these traits, (B, SEEN).

        P(in order) is the product of the checks that apply, 1 without any. Evidence is 0
        for replies below 400 characters.
        """
        found = Inspection(np.ones(len(seen)), [()] * len(seen), np.zeros(len(seen)))
        is_long = (seen[:, _LENGTH] > _LONG).tolist()
        for at, row in enumerate(self.check_odds(seen).T.tolist()):
            in_order, evidence = 1.0, 0.0
            for check, counts, odds in zip(self.checks, self.counts, row, strict=True):
                if math.isnan(odds):
                    continue
                checked = probability(counts.slope * odds + counts.prior)
                in_order *= checked
                evidence += counts.share * (odds - counts.middle)
                if checked < DOUBTED:
                    found.findings[at] += (check.finding,)
            found.in_order[at] = in_order
            found.evidence[at] = evidence if is_long[at] else 0.0
        return found

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Inspector | None:
        """Load the arrays of a checkpoint; None if none begins with `inspector.`.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None


def _counts(state: Mapping[str, Array]) -> Counts:
    """Return the four numbers of one check. Raises KeyError for a missing one."""
    return Counts(*(float(state[name][0]) for name in Counts._fields))
