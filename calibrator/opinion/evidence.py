"""Evidence: what the replies of others say for and against one reply, as numbers.

Each number is the same in whatever order the others come, and none depends on how many there are
beyond their shares and logs. What is known of the others beside their text is how able their model
is, on the forest's scale, so that nobody else's reply has to be scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from calibrator.features.forest import NO_NAME
from calibrator.opinion.answers import Answer, Kind
from calibrator.opinion.comparison import Comparison, Outcome, compare

Floats = NDArray[np.float32]

MAX_OTHERS: Final = 8  # that are compared; more add nothing that could be measured
MOST_ODDS: Final = 6.0  # of a reply alone, that the linear model goes by
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Opinion:
    """One other reply: what it comes to, how able its model is (`NO_NAME` for an unknown one), the
    length of its text, and whether the same model gave it that gave the reply in question."""

    answer: Answer
    ability: float
    characters: int
    is_same_model: bool


@dataclass(frozen=True, slots=True)
class Opinions:
    """One reply as the stage sees it: its log-odds of being correct by its text alone, how able its
    model is, what it comes to, its length, and the other replies to its question.

    `comparisons` has one for each of the first `MAX_OTHERS` others, in their order.
    """

    odds: float
    ability: float
    answer: Answer
    characters: int
    others: Sequence[Opinion]
    comparisons: tuple[Comparison, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = tuple(compare(self.answer, each.answer) for each in self.others[:MAX_OTHERS])
        object.__setattr__(self, "comparisons", found)

    def outcomes(self) -> list[Outcome]:
        """How each of the others compares with it, in their order."""
        return [each.outcome for each in self.comparisons]

    def can_be_told(self) -> bool:
        """Whether it has a final answer and agrees with or differs from one of them at least."""
        return self.answer.kind != "none" and any(each != "untold" for each in self.outcomes())


def evidence(reply: Opinions) -> list[float]:
    """What the trees read of one reply that has at least one other, (EVIDENCE,)."""
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
        _best(agree),
        _best(differ),
        _best(others),
        len(rival) / count,
        _best(rival),
        sum(other.is_same_model for other in others) / count,
        *_alike(found),
        length,
        length - sum(math.log1p(o.characters) for o in others) / count,
        *(float(answer.kind == kind) for kind in KINDS),
        sum(other.answer.kind == "none" for other in others) / count,
        sum(other.answer.kind == answer.kind for other in others) / count,
    ]


def plain_evidence(reply: Opinions) -> list[float]:
    """What the linear model reads of one reply that has at least one other, (PLAIN,).

    Unlike the trees it knows no kinds of answers and no lengths, which tell a benchmark; an ability
    that is not known counts for nothing.
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


def _best(others: Sequence[Opinion]) -> float:
    """The ability of the ablest, far below every ability where there is none."""
    return max((other.ability for other in others), default=-4.0)


def _alike(found: Sequence[Comparison]) -> list[float]:
    count = len(found)
    return [
        sum(each.shared for each in found) / count,
        max(each.shared for each in found),
        sum(each.contained for each in found) / count,
        max(each.contained for each in found),
        max(each.nearness for each in found),
    ]


def _largest_group(others: Sequence[Opinion]) -> list[Opinion]:
    """The most of them that agree with one of them."""
    groups = [
        [other for other in others if compare(one.answer, other.answer).outcome == "agree"]
        for one in others
    ]
    return max(groups, key=len, default=[])


_NOBODY = Opinion(Answer("none"), 0.0, 0, is_same_model=False)
_UNTOLD = Opinions(0.0, 0.0, Answer("none"), 0, [_NOBODY])
EVIDENCE: Final = len(evidence(_UNTOLD))
PLAIN: Final = len(plain_evidence(_UNTOLD))
