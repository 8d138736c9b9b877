"""The methods of an evaluation: a calibrator's scores, and the baselines beside them.

TF-IDF gets the same names as the calibrator that it is compared with. Confidences that models state
themselves are judged separately, on the rows that have one, beside the calibrator on these rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from calibrator.checkpoints.extras import is_installed
from calibrator.lab.judging.baselines.fitted import (
    NAMES_ONLY,
    STATED,
    STATED_WITHOUT_FIT,
    check_labels,
    check_questions,
    length_baseline,
    with_stated_confidence,
)
from calibrator.lab.judging.baselines.tfidf import tfidf_baseline
from calibrator.lab.judging.evaluation.evaluate import STATED_ROWS, Evaluation, judge
from calibrator.rows.groups import printable_name
from calibrator.rows.kept_scores import digest_of_rows, kept_fit
from calibrator.rows.results import Method
from calibrator.rows.rows import Row, Tags
from calibrator.rows.scores import Scores, write_scores

SUFFIX: dict[Tags, str] = {"served": "", "all": ", names told", "none": ", no names"}


def check_baselines(train: Sequence[Row], rows: Sequence[Row]) -> None:
    """Raise JudgingError for training rows that no baseline can be fitted on.

    This is the case where one of their questions is among `rows` too, or they have only one label.
    The check comes before anything is scored. Without training rows nothing is raised.
    """
    check_questions(train, rows)
    if train:
        check_labels(train)


def methods_of(found: Sequence[Scores], train: Sequence[Row], rows: Sequence[Row]) -> list[Method]:
    """Return the scores to judge as methods and, with training rows, the baselines fitted on them.

    The baselines are TF-IDF, length and names only; without scikit-learn only the last, which need
    no fit. Their confidences are of `rows`. Raises JudgingError as `check_baselines`.
    """
    check_baselines(train, rows)
    return [*_name_methods(found), *(_baselines(train, rows, found) if train else [])]


def judge_all(
    rows: Sequence[Row],
    methods: Sequence[Method],
    train: Sequence[Row],
    progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Return the evaluation on all rows, joined by that on the rows that state a confidence.

    On these, the methods that are no baselines are compared with stated confidences, fitted on the
    training rows that have one. It is left out unless those rows and these hold both labels.
    `progress` is called with 1 for each of the `STEPS` of a method on all rows.
    """
    evaluation = judge(rows, methods, progress=progress)
    at = [i for i, row in enumerate(rows) if row.verbalized_confidence is not None]
    stated, chosen = with_stated_confidence(train), [rows[i] for i in at]
    if not (_is_mixed(stated) and _is_mixed(chosen)):
        return evaluation
    same = [replace(one, confidence=one.confidence[at]) for one in methods if not one.is_baseline]
    fits = STATED if has_sklearn() else STATED_WITHOUT_FIT
    others = [Method(name, fit(stated, chosen), None, True) for name, fit in fits.items()]
    return evaluation.join(judge(chosen, [*same, *others], name=STATED_ROWS))


def _is_mixed(rows: Sequence[Row]) -> bool:
    """Return whether the rows have two distinct labels; a missing one counts as a label."""
    return len({row.correct for row in rows}) == 2


def _name_methods(found: Sequence[Scores]) -> list[Method]:
    """Return the scores as methods with distinct names, such as `NAME` or `NAME, no names`.

    The suffix says which names of models the calibrator was given; a repeated name gets a number.
    """
    methods: list[Method] = []
    for number, one in enumerate(found, start=1):
        name = printable_name(one.name) + SUFFIX[one.tags]
        if name in [method.name for method in methods]:
            name += f" ({number})"
        methods.append(Method(name, one.confidence, one.tags))
    return methods


def has_sklearn() -> bool:
    """Return whether scikit-learn is installed, which some baselines need."""
    return is_installed("sklearn")


def _baselines(train: Sequence[Row], rows: Sequence[Row], found: Sequence[Scores]) -> list[Method]:
    """Return the baselines fitted on `train`, with confidences of `rows`; most need scikit-learn.

    They are TF-IDF for each tags of `found`, length, and two tables of names; without scikit-learn
    only the tables.
    """
    names = [Method(name, fit(train, rows), None, True) for name, fit in NAMES_ONLY.items()]
    if not has_sklearn():
        return names
    return [*_words(train, rows, found), *_length(train, rows), *names]


def _words(train: Sequence[Row], rows: Sequence[Row], found: Sequence[Scores]) -> list[Method]:
    """Return a TF-IDF method for each distinct tags of `found`, fitted on `train`.

    Its confidences of `rows` are cached on disk, as the fit takes minutes.
    """
    tags = list(dict.fromkeys(one.tags for one in found))
    parts = ["tfidf", version("scikit-learn"), digest_of_rows(train), digest_of_rows(rows), *tags]
    words = kept_fit(parts, lambda: np.stack(tfidf_baseline(train, rows, tags)))
    return [Method("TF-IDF" + SUFFIX[t], p, t, True) for t, p in zip(tags, words, strict=True)]


def _length(train: Sequence[Row], rows: Sequence[Row]) -> list[Method]:
    """Return a list of one method, `length`: P(correct) of `rows` by reply length.

    It is fitted on `train`.
    """
    return [Method("length", length_baseline(train, rows), None, True)]


def keep_scores(folder: Path, rows: Sequence[Row], methods: Sequence[Method]) -> None:
    """Write a file of scores for each method to a folder, which can be judged again.

    The folder is made if missing. A file is named after its method, such as `TF-IDF.jsonl`, with
    `_` for unusual characters; it replaces one of the same name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for method in methods:
        name = re.sub(r"[^\w.@+-]+", "_", method.name).strip("_.") or "scores"
        scores = Scores(method.name, method.tags or "served", method.confidence)
        write_scores(folder / f"{name}.jsonl", rows, scores)
