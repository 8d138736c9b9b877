"""From scores and training rows to an evaluation: which baselines stand beside a calibrator, where.

TF-IDF is told the same names as the calibrator that it is compared with. What models state of
themselves is judged apart, on the rows that have it, with the calibrator on the same rows beside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calibrator.baselines import (
    NAMES_ONLY,
    STATED,
    check_questions,
    length_baseline,
    with_stated_confidence,
)
from calibrator.evaluate import STATED_ROWS, Evaluation, judge
from calibrator.groups import shown
from calibrator.results import Method
from calibrator.rows import Row, Tags
from calibrator.scores import Scores, write_scores
from calibrator.tfidf import tfidf_baseline

SUFFIX: dict[Tags, str] = {"served": "", "all": ", names told", "none": ", no names"}


def methods_of(found: Sequence[Scores], train: Sequence[Row], rows: Sequence[Row]) -> list[Method]:
    """The scores to judge and, where there are training rows, the baselines fitted on them.

    Raises JudgingError when a question is on both sides, or the training rows have one label.
    """
    check_questions(train, rows)
    return [*_named(found), *(_baselines(train, rows, found) if train else [])]


def judge_all(rows: Sequence[Row], methods: Sequence[Method], train: Sequence[Row]) -> Evaluation:
    """The evaluation on all rows, joined by that on the rows that state a confidence."""
    evaluation = judge(rows, methods)
    at = [i for i, row in enumerate(rows) if row.verbalized_confidence is not None]
    stated, chosen = with_stated_confidence(train), [rows[i] for i in at]
    if not (_is_mixed(stated) and _is_mixed(chosen)):
        return evaluation
    same = [replace(one, confidence=one.confidence[at]) for one in methods if not one.is_baseline]
    others = [Method(name, fit(stated, chosen), None, True) for name, fit in STATED.items()]
    return evaluation.joined(judge(chosen, [*same, *others], name=STATED_ROWS))


def _is_mixed(rows: Sequence[Row]) -> bool:
    return len({row.correct for row in rows}) == 2


def _named(found: Sequence[Scores]) -> list[Method]:
    """Methods with names of their own, also where one calibrator was told different names."""
    methods: list[Method] = []
    for number, one in enumerate(found, start=1):
        name = shown(one.name) + SUFFIX[one.tags]
        if name in [method.name for method in methods]:
            name += f" ({number})"
        methods.append(Method(name, one.confidence, one.tags))
    return methods


def _baselines(train: Sequence[Row], rows: Sequence[Row], found: Sequence[Scores]) -> list[Method]:
    tags = list(dict.fromkeys(one.tags for one in found))
    words = tfidf_baseline(train, rows, tags)
    return [
        *(Method("TF-IDF" + SUFFIX[t], p, t, True) for t, p in zip(tags, words, strict=True)),
        Method("length", length_baseline(train, rows), None, True),
        *(Method(name, fit(train, rows), None, True) for name, fit in NAMES_ONLY.items()),
    ]


def keep_scores(folder: Path, rows: Sequence[Row], methods: Sequence[Method]) -> None:
    """One file of scores for each method, named by it, that can be judged again."""
    folder.mkdir(parents=True, exist_ok=True)
    for method in methods:
        name = re.sub(r"[^\w.@+-]+", "_", method.name).strip("_.") or "scores"
        scores = Scores(method.name, method.tags or "served", method.confidence)
        write_scores(folder / f"{name}.jsonl", rows, scores)
