"""A study in which answers are swapped between models while the name stays (paper L04).

For every question with right and wrong replies, each reply is scored again under the name of every
model that replied to it: (answer, slot) pairs. If the score follows the answer, it ranks right
answers above wrong ones whatever the name; if it follows the name, that AUROC falls to chance. The
paper has 14,687 pairs and an AUROC of 0.705.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.studies.studies import Study, entry_of
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items
from calibrator.scorer import Scorer

MAX_PAIRS = 15_000  # about as many as in the paper
SEED = 20_261_123
OWN, SWAPPED, ALL = "the model's own answer", "another model's answer", "all pairs (L04)"


def answer_pairs(
    rows: Sequence[Row], max_pairs: int = MAX_PAIRS, seed: int = SEED
) -> list[tuple[Row, Row]]:
    """Return (answer, slot) pairs: a reply, and the row whose model's name it is scored under.

    Both answer the same question, which has right and wrong replies. Whole questions are taken in a
    random order, except those that would exceed `max_pairs` or have one model only. Replies without
    a model's name or a label are left out; a model has one slot for each question.
    """
    by_question: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.model and row.correct is not None:
            by_question[row.question_id].append(row)
    mixed = [each for each in by_question.values() if len({row.correct for row in each}) == 2]
    random.Random(seed).shuffle(mixed)
    pairs: list[tuple[Row, Row]] = []
    for replies in mixed:
        slots = list({row.model: row for row in reversed(replies)}.values())[::-1]
        if len(slots) < 2 or len(pairs) + len(slots) * len(replies) > max_pairs:
            continue
        pairs += [(answer, slot) for slot in slots for answer in replies]
    return pairs


def answer_swap(
    scorer: Scorer,
    rows: Sequence[Row],
    max_pairs: int = MAX_PAIRS,
    progress: Callable[[int], None] = lambda _: None,
) -> Study:
    """Score every pair; return a study with three entries: own names, other names, all pairs.

    Labels are those of the answers; the reference is the same answers under their own models'
    names. `progress` gets the number of items just scored. Raises JudgingError where no question
    has right and wrong replies by two models.
    """
    pairs = answer_pairs(rows, max_pairs)
    if not pairs:
        raise JudgingError(
            "no question has a right and a wrong reply by two named models to be swapped"
        )
    scored_rows = [replace(answer, model=slot.model) for answer, slot in pairs]
    found = score_items(scorer, [row.item("served") for row in scored_rows], progress)
    confidence = np.array([score.confidence for score in found])
    is_own = np.array([answer.model == slot.model for answer, slot in pairs])
    own = {id(pairs[at][0]): confidence[at] for at in np.flatnonzero(is_own)}
    reference = np.array([own[id(answer)] for answer, _ in pairs])
    entries = []
    for label, chosen in ((OWN, is_own), (SWAPPED, ~is_own), (ALL, np.ones(len(pairs), bool))):
        at = np.flatnonzero(chosen)
        judged = [scored_rows[i] for i in at]
        entries.append(entry_of(label, 0, judged, confidence[at], reference[at]))
    return Study("answer-swap", scorer.name, entries)
