"""The evidence of other replies for and against one reply, as numbers.

The order of the other replies does not matter, and their number only through shares and logs.
Besides their text only the ability of their models is used, on the forest's scale, so no other
reply has to be scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calibrator.features.forest import NO_NAME
from calibrator.readers.opinion.answers import FinalAnswer, Kind

Outcome = Literal["agree", "differ", "untold"]
ROUNDED: Final = 5e-3  # relative difference of two numbers that may be the same, rounded
SAME_WORDS: Final = 0.75  # share of the shorter answer's words in the other, from which both agree
FEW_WORDS: Final = 6  # words of an answer that is searched for in a long reply
OTHER_WORDS: Final = 0.25  # share of such words up to which both differ
_OPPOSITES: Final = ({"yes", "no"}, {"true", "false"})
Floats = NDArray[np.float32]
MAX_OTHERS: Final = 8  # replies that are compared; more have no measurable effect
MOST_ODDS: Final = 6.0  # largest log-odds of a reply alone that the linear model reads
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The outcome and the similarity of two replies.

    `outcome` is `agree`, `differ`, or `untold` if the final answers cannot be compared.
    `shared` is the Jaccard index of their words that the question does not have. `contained` is
    the share of the smaller set of words that is in the other too. Both are 0 where a set is
    empty. `nearness` of two numbers is 1 for equal ones and falls to 0, and is 0 where there
    are no numbers.
    """

    outcome: Outcome
    shared: float
    contained: float
    nearness: float


def compare(one: FinalAnswer, other: FinalAnswer) -> AnswerComparison:
    """Return the comparison of two final answers, whose order does not matter.

    Words and numbers are compared too, even where the outcome is clear without them.
    """
    both = len(one.words & other.words)
    fewer = min(len(one.words), len(other.words))
    shared = both / max(1, len(one.words | other.words))
    contained = both / fewer if fewer else 0.0
    nearness = _nearness(one, other)
    return AnswerComparison(_outcome(one, other, contained, nearness), shared, contained, nearness)


def _outcome(one: FinalAnswer, other: FinalAnswer, contained: float, nearness: float) -> Outcome:
    """Return `agree`, `differ`, or `untold` if the final answers cannot be compared.

    Equal values of one kind agree; options, formulas, numbers and calls that are not equal
    differ. Answers in words agree if they share 75 % of the shorter one's words and differ up
    to 25 %. A reply without a final answer agrees with a short answer whose words it has.
    """
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
    """Return whether a long reply (`other`, without a final answer) has all words of a short one.

    `one` must be an answer of at most six words; otherwise False.
    """
    is_short = one.kind == "words" and 0 < len(one.words) <= FEW_WORDS
    return is_short and other.kind == "none" and one.words <= other.words


def _nearness(one: FinalAnswer, other: FinalAnswer) -> float:
    """Return 1 for equal or equally rounded numbers, falling to 0; 0 without two numbers.

    Whole numbers are only near 1 if they are equal.
    """
    if one.number is None or other.number is None:
        return 0.0
    gap, size = abs(one.number - other.number), max(abs(one.number), abs(other.number))
    if gap <= 1e-9 * max(1.0, size):
        return 1.0
    if gap <= ROUNDED * size and not (one.number.is_integer() and other.number.is_integer()):
        return 1.0
    return max(0.0, 0.9 - gap / size)


@dataclass(frozen=True, slots=True)
class Opinion:
    """One other reply to a question, for a comparison.

    It has its final answer, its model's ability (`NO_NAME` for an unknown model), the length of
    its text, and whether the same model gave the reply in question.
    """

    answer: FinalAnswer
    ability: float
    characters: int
    is_same_model: bool


@dataclass(frozen=True, slots=True)
class Opinions:
    """One reply with the other replies to its question, as the second stage reads them.

    `odds` are its log-odds of being correct by its text alone; its model's ability, its final
    answer and its length in characters follow. `comparisons` has one for each of the first
    `MAX_OTHERS` others, in their order.
    """

    odds: float
    ability: float
    answer: FinalAnswer
    characters: int
    others: Sequence[Opinion]
    comparisons: tuple[AnswerComparison, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Set `comparisons`."""
        found = tuple(compare(self.answer, each.answer) for each in self.others[:MAX_OTHERS])
        object.__setattr__(self, "comparisons", found)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of the comparison with each of the others, in their order."""
        return [each.outcome for each in self.comparisons]

    def is_informative(self) -> bool:
        """Return whether it has a final answer and agrees with or differs from another reply."""
        return self.answer.kind != "none" and any(each != "untold" for each in self.outcomes())


def evidence(reply: Opinions) -> list[float]:
    """Return the trees' input for one reply that has at least one other, (EVIDENCE,).

    It has the reply's log-odds, shares of others that agree and differ, abilities of their
    models, similarities of words, lengths and kinds of answers.
    """
    others, found, answer = reply.others[:MAX_OTHERS], reply.comparisons, reply.answer
    agree = [o for o, c in zip(others, found, strict=True) if c.outcome == "agree"]
    differ = [o for o, c in zip(others, found, strict=True) if c.outcome == "differ"]
    count, length = len(others), math.log1p(reply.characters)
    rival = _largest_group(differ)
    return [
        reply.odds,
        reply.ability,
        len(agree) / count,
        len(differ) / count,
        math.log1p(len(agree)),
        math.log1p(len(differ)),
        _best_ability(agree),
        _best_ability(differ),
        _best_ability(others),
        len(rival) / count,
        _best_ability(rival),
        sum(other.is_same_model for other in others) / count,
        *_similarities(found),
        length,
        length - sum(math.log1p(o.characters) for o in others) / count,
        *(float(answer.kind == kind) for kind in KINDS),
        sum(other.answer.kind == "none" for other in others) / count,
        sum(other.answer.kind == answer.kind for other in others) / count,
    ]


def plain_evidence(reply: Opinions) -> list[float]:
    """Return the linear model's input for one reply that has at least one other, (PLAIN,).

    Unlike the trees it reads no kinds of answers and no lengths, which reveal a benchmark. An
    unknown ability counts for nothing.
    """
    others, outcomes = reply.others[:MAX_OTHERS], reply.outcomes()
    count, agree, differ = len(others), outcomes.count("agree"), outcomes.count("differ")
    shares = agree / count, differ / count
    ablest = max(other.ability for other in others)
    able = ablest if ablest > NO_NAME else 0.0
    ahead = able - reply.ability if min(ablest, reply.ability) > NO_NAME else 0.0
    return [
        min(max(reply.odds, -MOST_ODDS), MOST_ODDS),
        *shares,
        math.log1p(agree),
        math.log1p(differ),
        *(share * able for share in shares),
        *(share * ahead for share in shares),
        sum(each.shared for each in reply.comparisons) / count,
        sum(each.contained for each in reply.comparisons) / count,
    ]


def _best_ability(others: Sequence[Opinion]) -> float:
    """Return the ability of the ablest model; -4, far below all, if there are no others."""
    return max((other.ability for other in others), default=-4.0)


def _similarities(found: Sequence[AnswerComparison]) -> list[float]:
    """Return five numbers: mean and maximum of `shared`, of `contained`, and the largest nearness.

    `found` must not be empty.
    """
    count = len(found)
    return [
        sum(each.shared for each in found) / count,
        max(each.shared for each in found),
        sum(each.contained for each in found) / count,
        max(each.contained for each in found),
        max(each.nearness for each in found),
    ]


def _largest_group(others: Sequence[Opinion]) -> list[Opinion]:
    """Return the largest group of others that agree with one of them; [] without others."""
    groups = [
        [other for other in others if compare(one.answer, other.answer).outcome == "agree"]
        for one in others
    ]
    return max(groups, key=len, default=[])


_NOBODY = Opinion(FinalAnswer("none"), 0.0, 0, is_same_model=False)


_EMPTY = Opinions(0.0, 0.0, FinalAnswer("none"), 0, [_NOBODY])


EVIDENCE: Final = len(evidence(_EMPTY))


PLAIN: Final = len(plain_evidence(_EMPTY))
