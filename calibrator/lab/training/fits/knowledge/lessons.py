"""The lessons of the small encoder's network: its settings, and pairs of labelled rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from calibrator.lab.training.fits.knowledge.pairs import AnswerPair, relation_pairs, single_pairs
from calibrator.readers.knowledge.knowledge import is_short
from calibrator.rows.rows import Row
from calibrator.text.stripping import strip_addresses, without_question


@dataclass(frozen=True, slots=True)
class KnowledgeConfig:
    """The settings for making the small encoder and fitting its network.

    `least` is the weight of its log-odds for a benchmark's question, `more` the additional weight
    for a question unlike these.
    """

    layers: int = 4
    own_pairs: int = 100_000  # the most pairs of our own
    members: int = 2
    width: int = 64
    projected: int = 32
    steps: int = 130
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    replies: int = 2  # right ones, and wrong ones, of a training question
    questions: int = 500  # questions of a benchmark
    share_of_rows: float = 0.3  # pairs of training rows for each pair of our own
    weight_of_single: float = 3.0  # weight of pairs without a relation
    least: float = 0.15
    more: float = 2.0


def own_pairs(config: KnowledgeConfig, seed: int) -> list[AnswerPair]:
    """Return our own pairs of answers, those of relations first.

    If there are more than `config.own_pairs`, a random sample of this number in random order.
    """
    found = [*relation_pairs(seed), *single_pairs()]
    if len(found) <= config.own_pairs:
        return found
    return random.Random(seed).sample(found, config.own_pairs)


def pairs_of_rows(rows: Sequence[Row], config: KnowledgeConfig, seed: int) -> list[AnswerPair]:
    """Return pairs of a right and a wrong short reply to the same training question.

    Rows with tools and long replies or questions are left out. Each benchmark gives at most
    `config.questions` questions, and each of these at most `config.replies` right and as many wrong
    replies, in all combinations. The list is empty if no question has both. A row without a label
    counts as wrong.
    """
    rng = random.Random(seed)
    by_benchmark: dict[str, dict[str, tuple[list[str], list[str]]]] = defaultdict(dict)
    for row in rows:
        answer = without_question(row.question, strip_addresses(row.answer))
        if row.tool_use is None and is_short(row.question, answer):
            replies = by_benchmark[row.benchmark or ""].setdefault(row.question, ([], []))
            replies[0 if row.correct else 1].append(answer)
    found = []
    for benchmark, questions in sorted(by_benchmark.items()):
        both = sorted(question for question, replies in questions.items() if all(replies))
        for question in rng.sample(both, min(len(both), config.questions)):
            right, wrong = (
                rng.sample(some, min(len(some), config.replies)) for some in questions[question]
            )
            found += [
                AnswerPair(question, one, other, benchmark) for one in right for other in wrong
            ]
    return found
