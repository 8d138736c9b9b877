"""Comparison of the final answers of two replies to one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from calibrator.readers.opinion.answers import FinalAnswer

Outcome = Literal["agree", "differ", "untold"]

ROUNDED: Final = 5e-3  # relative difference of two numbers that may be the same, rounded
SAME_WORDS: Final = 0.75  # share of the shorter answer's words in the other, from which both agree
FEW_WORDS: Final = 6  # words of an answer that is searched for in a long reply
OTHER_WORDS: Final = 0.25  # share of such words up to which both differ
_OPPOSITES: Final = ({"yes", "no"}, {"true", "false"})


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The outcome and the similarity of two replies.

    `shared` is the Jaccard index of their words that the question does not have. `contained` is the
    share of the smaller set of words that is in the other too. Both are 0 where a set is empty.
    `nearness` of two numbers is 1 for equal ones and falls to 0, and is 0 where there are no
    numbers.
    """

    outcome: Outcome
    shared: float
    contained: float
    nearness: float


def compare(one: FinalAnswer, other: FinalAnswer) -> AnswerComparison:
    """Return the comparison of two answers, whose order does not matter."""
    both = len(one.words & other.words)
    fewer = min(len(one.words), len(other.words))
    shared = both / max(1, len(one.words | other.words))
    contained = both / fewer if fewer else 0.0
    nearness = _nearness(one, other)
    return AnswerComparison(_outcome(one, other, contained, nearness), shared, contained, nearness)


def _outcome(one: FinalAnswer, other: FinalAnswer, contained: float, nearness: float) -> Outcome:
    """Return whether two final answers agree or differ, or that this cannot be told."""
    if "none" in (one.kind, other.kind):
        return "agree" if _stands_in(one, other) or _stands_in(other, one) else "untold"
    if one.kind == other.kind and one.value == other.value:
        return "agree"
    if one.number is not None and other.number is not None:
        return "agree" if nearness == 1.0 else "differ"
    if "calls" in (one.kind, other.kind):
        return "differ"  # the calls differ, or one has none
    if one.kind == other.kind == "claim":
        return "differ" if {one.value, other.value} in _OPPOSITES else "untold"
    if one.kind == other.kind and one.kind in ("option", "formula"):
        return "differ"
    if not one.words or not other.words:
        return "untold"
    if contained >= SAME_WORDS:
        return "agree"
    return "differ" if contained <= OTHER_WORDS else "untold"


def _stands_in(one: FinalAnswer, other: FinalAnswer) -> bool:
    """Return whether a long reply has all words of a short answer."""
    is_short = one.kind == "words" and 0 < len(one.words) <= FEW_WORDS
    return is_short and other.kind == "none" and one.words <= other.words


def _nearness(one: FinalAnswer, other: FinalAnswer) -> float:
    """Return 1 for equal or equally rounded numbers, falling to 0; 0 without two numbers."""
    if one.number is None or other.number is None:
        return 0.0
    gap, size = abs(one.number - other.number), max(abs(one.number), abs(other.number))
    if gap <= 1e-9 * max(1.0, size):
        return 1.0
    if gap <= ROUNDED * size and not (one.number.is_integer() and other.number.is_integer()):
        return 1.0
    return max(0.0, 0.9 - gap / size)
