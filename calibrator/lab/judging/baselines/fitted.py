"""Baselines that are fitted on training rows and scored on the same test rows (paper I01-I05).

- length: logistic regression on log(1 + tokens of the response), I04;
- names only: the share of right replies of each model in training, or of each model on each
  benchmark. A leaderboard knows as much without a look at the reply;
- stated confidence, where the rows have one: raw (I01), Platt (I02), isotonic (I03), and joined
  with the length (I05). The fits are scikit-learn's with the paper's settings (I17).

`tfidf.py` has the baseline on the words of question and answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats
from calibrator.rows.rows import Row, labels_of

PRIOR_ROWS = 1.0  # weight, in rows, of the coarser share that a cell is shrunk towards
TOKEN = r"\w+|[^\w\s]"  # words and punctuation marks
_TOKEN = re.compile(TOKEN)

Baseline = Callable[[Sequence[Row], Sequence[Row]], Floats]


def check_labels(rows: Sequence[Row]) -> None:
    """Raise JudgingError unless the labels of the rows are both correct and wrong.

    It is raised too for a row without a label.
    """
    labels = {row.correct for row in rows}
    if labels != {0, 1}:
        which = (
            "no rows" if not rows else "only correct rows" if labels == {1} else "only wrong rows"
        )
        raise JudgingError(f"a baseline needs correct and wrong training rows, there are {which}")


def check_questions(train: Sequence[Row], test: Sequence[Row]) -> None:
    """Raise JudgingError where a question (`question_id`) is in training and test rows (D04)."""
    both = {row.question_id for row in train} & {row.question_id for row in test}
    if both:
        raise JudgingError(
            f"{len(both)} questions are both trained on and judged, one is {sorted(both)[0]!r}; "
            "split by question first"
        )


def _logistic(features: Floats, rows: Sequence[Row], test: Floats) -> Floats:
    """Return P(correct) of the test features from a logistic regression, (len(test),).

    `features` (n, f) are those of the labelled `rows`, `test` (m, f) others. The settings are the
    paper's `LogisticRegression(C=1.0, solver='lbfgs', max_iter=1000)` (I02). Raises JudgingError
    for rows of one label, and MissingExtraError without scikit-learn.
    """
    check_scikit_learn()
    from sklearn.linear_model import LogisticRegression

    check_labels(rows)
    model = LogisticRegression(C=1.0, solver="lbfgs", max_iter=1_000)
    return np.asarray(model.fit(features, labels_of(rows)).predict_proba(test)[:, 1])


def _lengths(rows: Sequence[Row]) -> Floats:
    """Return log(1 + t) of each response, (n, 1).

    t counts words and punctuation marks, since the paper names no tokenizer (V45).
    """
    counts = [sum(1 for _ in _TOKEN.finditer(row.answer)) for row in rows]
    return np.log1p(np.array(counts, dtype=np.float64))[:, None]


def length_baseline(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return P(correct) of the test rows, (m,), by logistic regression on reply lengths (I04).

    Raises JudgingError for training rows of one label.
    """
    return _logistic(_lengths(train), train, _lengths(test))


def model_names(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return for each test row the share of right training replies by its model, (m,).

    The share is shrunk towards that of all training rows, which a new model gets. Raises
    JudgingError for training rows of one label.
    """
    check_labels(train)
    overall = float(labels_of(train).mean())
    return _shares(train, test, lambda row: row.model, np.full(len(test), overall))


def model_and_benchmark_names(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return for each test row the share of right training replies by its model on its benchmark.

    The shape is (m,). The share is shrunk towards that of `model_names`, most where there are few
    rows; a pair that training does not have gets that one. Raises JudgingError for training rows of
    one label.
    """
    by_model = model_names(train, test)
    return _shares(train, test, lambda row: (row.model, row.benchmark), by_model)


def _shares(
    train: Sequence[Row], test: Sequence[Row], key: Callable[[Row], object], prior: Floats
) -> Floats:
    """Return for each test row the share of right ones among the training rows with its key, (m,).

    `prior` (m,) counts as `PRIOR_ROWS` further training rows of each key, so it is the whole result
    for a new key. An unlabelled training row counts as wrong.
    """
    seen: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in train:
        cell = seen[key(row)]
        cell[0] += row.correct or 0
        cell[1] += 1
    cells = [seen.get(key(row), [0.0, 0.0]) for row in test]
    return np.array(
        [
            (right + PRIOR_ROWS * coarse) / (count + PRIOR_ROWS)
            for (right, count), coarse in zip(cells, prior, strict=True)
        ]
    )


def with_stated_confidence(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have a stated confidence (`verbalized_confidence`), in their order."""
    return [row for row in rows if row.verbalized_confidence is not None]


def _stated_confidences(rows: Sequence[Row]) -> Floats:
    """Return the rows' stated confidences as an array (n, 1), each from 0 to 1.

    Raises JudgingError where a row has none.
    """
    if any(row.verbalized_confidence is None for row in rows):
        raise JudgingError("a row states no confidence of its own")
    return np.array([row.verbalized_confidence or 0.0 for row in rows])[:, None]


def stated_raw(_: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return the stated confidences of the test rows unchanged, (m,) (I01).

    The training rows are not used. Raises JudgingError where a row has none.
    """
    return np.asarray(_stated_confidences(test)[:, 0])


def stated_platt(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return P(correct) of the test rows, (m,), by Platt scaling of the stated confidence (I02).

    Raises JudgingError where a row states none, or for training rows of one label.
    """
    return _logistic(_stated_confidences(train), train, _stated_confidences(test))


def stated_isotonic(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return P(correct), (m,), by isotonic regression of the stated confidence, 0.01 to 0.99 (I03).

    It is fitted on the training rows. Raises JudgingError where a row states none, or for training
    rows of one label.
    """
    check_scikit_learn()
    from sklearn.isotonic import IsotonicRegression

    check_labels(train)
    model = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")
    return np.asarray(
        model.fit(_stated_confidences(train)[:, 0], labels_of(train)).predict(
            _stated_confidences(test)[:, 0]
        )
    )


def stated_and_length(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """Return P(correct), (m,), by logistic regression on stated confidence and reply length (I05).

    Raises JudgingError where a row states none, or for training rows of one label.
    """
    features = [np.hstack([_stated_confidences(rows), _lengths(rows)]) for rows in (train, test)]
    return _logistic(features[0], train, features[1])


NAMES_ONLY: dict[str, Baseline] = {
    "names only: model": model_names,
    "names only: model and benchmark": model_and_benchmark_names,
}
STATED: dict[str, Baseline] = {
    "stated confidence, raw": stated_raw,
    "stated confidence, Platt": stated_platt,
    "stated confidence, isotonic": stated_isotonic,
    "stated confidence and length": stated_and_length,
}
STATED_WITHOUT_FIT: dict[str, Baseline] = {"stated confidence, raw": stated_raw}
