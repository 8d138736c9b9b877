"""What the small encoder's network learns from: how much of it, and pairs of labelled rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from calibrator.knowledge.knowledge import is_short
from calibrator.knowledge.pairs import Pair, relation_pairs, single_pairs
from calibrator.rows.rows import Row
from calibrator.text.addressed_text import stripped
from calibrator.text.restated_question import without_question


@dataclass(frozen=True, slots=True)
class KnowledgeConfig:
    """How the small encoder is made and its network fitted.

    `least` is how much its log-odds count at a benchmark's question, `more` how much more at one
    that is unlike these.
    """

    layers: int = 4
    own_pairs: int = 100_000  # at most, of our own
    members: int = 2
    width: int = 64
    projected: int = 32
    steps: int = 130
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    replies: int = 2  # right, and wrong, ones of a training question
    questions: int = 500  # of a benchmark
    share_of_rows: float = 0.3  # pairs of training rows for each pair of ours
    weight_of_single: float = 3.0  # pairs of no relation
    least: float = 0.15
    more: float = 2.0


def own_pairs(config: KnowledgeConfig, seed: int) -> list[Pair]:
    """Pairs of our own, those of relations first."""
    found = [*relation_pairs(seed), *single_pairs()]
    if len(found) <= config.own_pairs:
        return found
    return random.Random(seed).sample(found, config.own_pairs)


def pairs_of_rows(rows: Sequence[Row], config: KnowledgeConfig, seed: int) -> list[Pair]:
    """Right and wrong short replies to the same training question."""
    rng = random.Random(seed)
    asked: dict[str, dict[str, tuple[list[str], list[str]]]] = defaultdict(dict)
    for row in rows:
        answer = without_question(row.question, stripped(row.answer))
        if row.tool_use is None and is_short(row.question, answer):
            replies = asked[row.benchmark or ""].setdefault(row.question, ([], []))
            replies[0 if row.correct else 1].append(answer)
    found = []
    for benchmark, questions in sorted(asked.items()):
        both = sorted(question for question, replies in questions.items() if all(replies))
        for question in rng.sample(both, min(len(both), config.questions)):
            right, wrong = (
                rng.sample(some, min(len(some), config.replies)) for some in questions[question]
            )
            found += [Pair(question, one, other, benchmark) for one in right for other in wrong]
    return found
