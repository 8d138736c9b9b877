"""Measures the sensitivity of a scorer on pairs of replies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from calibrator.lab.data.corruptions import KINDS
from calibrator.lab.judging.sensitivity.everyday import everyday_figures, everyday_items
from calibrator.lab.judging.sensitivity.figures import (
    KindFigures,
    Sensitivity,
    figures_of_kind,
    mean_of_kind,
)
from calibrator.lab.judging.sensitivity.pairs import MAX_PAIRS, SEED, ReplyPair, pairs_of
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items
from calibrator.scorer import Item, Scorer


def sensitivity_of(
    scorer: Scorer,
    rows: Sequence[Row],
    *,
    max_pairs: int = MAX_PAIRS,
    seed: int = SEED,
    progress: Callable[[int], None] = lambda _: None,
) -> Sensitivity:
    """Measure a scorer on the right replies of labelled rows and on the everyday questions.

    Right replies are compared with the same ones made wrong, at most `max_pairs` for each benchmark
    and kind, the same ones for a `seed`. Rows without a usable right reply leave only the everyday
    figures. `progress` is called with the number of replies scored since the last call.
    """
    return measure(scorer, pairs_of(rows, max_pairs, seed), progress)


def measure(
    scorer: Scorer, pairs: Sequence[ReplyPair], progress: Callable[[int], None] = lambda _: None
) -> Sensitivity:
    """Score pairs and everyday questions, and return the figures of each kind and benchmark.

    The scorer sees the model's name and no benchmark. `progress` is called with the number of
    replies scored since the last call.
    """
    rights = _rights(pairs)
    items = _items(pairs)
    found = score_items(scorer, items, progress)
    confidence = np.array([score.confidence for score in found])
    place = {identity: number for number, identity in enumerate(rights)}
    right = confidence[[place[id(pair.right)] for pair in pairs]]
    changed = confidence[len(rights) : len(rights) + len(pairs)]
    members: dict[tuple[bool, str], dict[str, list[int]]] = {}
    for number, pair in enumerate(pairs):
        of_kind = members.setdefault((pair.is_call, pair.kind), defaultdict(list))
        of_kind[pair.benchmark].append(number)
    figures: list[KindFigures] = []
    for (is_call, kind), by_benchmark in sorted(members.items(), key=_place):
        each = [
            figures_of_kind(kind, name, right[at], changed[at], is_call=is_call)
            for name, at in sorted(by_benchmark.items())
        ]
        figures += [*each, mean_of_kind(each)]
    everyday = everyday_figures(confidence[len(rights) + len(pairs) :])
    return Sensitivity(scorer.name, figures, everyday)


def _place(member: tuple[tuple[bool, str], object]) -> tuple[bool, int, str]:
    """Return a sort key: kinds for text in the order of `KINDS`, then those for calls by name.

    `member` is ((is_call, kind), anything). Raises ValueError for an unknown kind for text.
    """
    (is_call, kind), _ = member
    return is_call, 0 if is_call else list(KINDS).index(kind), kind


def items_to_score(pairs: Sequence[ReplyPair]) -> int:
    """Return how many replies `measure` scores, for a progress bar."""
    return len(_rights(pairs)) + len(pairs) + len(everyday_items())


def _rights(pairs: Sequence[ReplyPair]) -> dict[int, Row]:
    """Return each right row once, by its `id()`, in order of first appearance.

    Several pairs may change the same row.
    """
    return {id(pair.right): pair.right for pair in pairs}


def _items(pairs: Sequence[ReplyPair]) -> list[Item]:
    """Return the items that `measure` scores: right rows, changed ones, everyday answers."""
    return [
        *(row.item("served") for row in _rights(pairs).values()),
        *(pair.changed.item("served") for pair in pairs),
        *everyday_items(),
    ]
