"""The measurement of a scorer on traffic: every kind, every set, means, and the effect of edits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from calibrator.lab.judging.baselines.overlap import tfidf_cosines, word_shares
from calibrator.lab.judging.evaluation.traffic.figures import (
    ALL,
    SETS,
    EditEffect,
    Traffic,
    TrafficFigures,
    change_of,
    figures_of,
    mean_figures,
)
from calibrator.lab.judging.evaluation.traffic.probes import EDITS, EditProbe
from calibrator.lab.judging.evaluation.traffic.sets import TrafficSet
from calibrator.metrics.metrics import Floats
from calibrator.rows.rows import Row, labels_of
from calibrator.rows.scores import score_items
from calibrator.scorer import Item, Score, Scorer

EVERY_SET = "mean of all sets"
UNSEEN_SETS = "mean of sets that training did not see"
OTHER_SETS = "mean of the others"
MIN_ROWS = 10  # least rows of a set in a mean


def replies_to_score(sets: Sequence[TrafficSet], probes: Sequence[EditProbe]) -> int:
    """Return how many replies `measure_traffic` scores, for a progress bar.

    A reply that is the start of several edits counts once among the edits.
    """
    return sum(len(one.rows) for one in sets) + len(_items_of(probes))


def measure_traffic(
    scorer: Scorer,
    sets: Sequence[TrafficSet],
    probes: Sequence[EditProbe],
    left_out: Collection[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Traffic:
    """Score all replies of sets and probes with their conversations, and return the figures.

    The scorer sees the model's name and no benchmark. `left_out` names sets that the checkpoint's
    training did not see. `progress` is called with the number of replies scored since the last
    call. The figures are those of each set or kind, then the means over sets.
    """
    items = [row.item("served") for one in sets for row in one.rows]
    probed = _items_of(probes)
    scores = score_items(scorer, [*items, *probed.values()], progress)
    figures: list[TrafficFigures] = []
    at = 0
    for one in sets:
        end = at + len(one.rows)
        figures += _of_set(one, items[at:end], scores[at:end], left_out)
        at = end
    confidence_of = dict(zip(probed, (score.confidence for score in scores[at:]), strict=True))
    return Traffic(scorer.name, [*figures, *_means(figures)], _changes(probes, confidence_of))


def _of_set(
    one: TrafficSet, items: Sequence[Item], scores: Sequence[Score], left_out: Collection[str]
) -> list[TrafficFigures]:
    """Return a list of one entry for a set, or for pairs one for each kind and one for all.

    `items` and `scores` are those of its rows; `left_out` names sets that training did not see.
    """
    baselines = word_shares(items), tfidf_cosines(items)
    if one.group == SETS:
        found = _figures(one, one.name, one.rows, range(len(items)), scores, baselines)
        is_left_out = one.name in left_out
        return [replace(found, licence=one.licence, is_left_out=is_left_out)]
    kinds: dict[str, list[int]] = {}
    for at, row in enumerate(one.rows):
        kinds.setdefault(row.benchmark or "", []).append(at)
    kinds[ALL] = list(range(len(items)))
    return [_figures(one, kind, one.rows, at, scores, baselines) for kind, at in kinds.items()]


def _figures(
    one: TrafficSet,
    kind: str,
    rows: Sequence[Row],
    at: Sequence[int],
    scores: Sequence[Score],
    baselines: tuple[Floats, Floats],
) -> TrafficFigures:
    """Return the figures of the rows `at` (positions) of a set, under the name `kind`.

    `scores` and both `baselines` (word shares, TF-IDF cosines) are those of all `rows`.
    """
    chosen = np.array(at)
    words, cosines = baselines
    return figures_of(
        one.group,
        kind,
        labels_of(rows)[chosen],
        [rows[place].question_id for place in at],
        [scores[place] for place in at],
        (words[chosen], cosines[chosen]),
    )


def _means(figures: Sequence[TrafficFigures]) -> list[TrafficFigures]:
    """Return the means over sets: all, those that training did not see, and the others.

    Sets with fewer than `MIN_ROWS` rows are left out, and so is a mean without sets.
    """
    sets = [one for one in figures if one.group == SETS and one.rows >= MIN_ROWS]
    parts = {
        EVERY_SET: sets,
        UNSEEN_SETS: [one for one in sets if one.is_unseen],
        OTHER_SETS: [one for one in sets if not one.is_unseen],
    }
    return [mean_figures(name, each) for name, each in parts.items() if each]


def _items_of(probes: Sequence[EditProbe]) -> dict[int, Item]:
    """Return the items before and after each edit, each once, by `id()`.

    Many edits start from the same item.
    """
    return {id(item): item for probe in probes for item in (probe.before, probe.after)}


def _changes(probes: Sequence[EditProbe], confidence_of: dict[int, float]) -> list[EditEffect]:
    """Return the effect of each edit on each group of replies, ordered by `EDITS`, then by group.

    `confidence_of` has each item's confidence by `id()`.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for probe in probes:
        change = confidence_of[id(probe.after)] - confidence_of[id(probe.before)]
        found.setdefault((probe.edit, probe.of), []).append(change)
    order = sorted(found, key=lambda key: (EDITS.index(key[0]), key[1]))
    return [change_of(edit, of, np.array(found[edit, of])) for edit, of in order]
