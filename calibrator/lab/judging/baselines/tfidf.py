"""The baseline on the words of question and answer, which is hard to beat.

It is a logistic regression on TF-IDF of 1-2-grams (the question's first 1,500 characters, the
answer's first and last 500, and the known names) with 300,000 features. Words are counted once for
all rows. Each fit then chooses its features and weights from its own training rows alone, so
leaving out one model or benchmark after another costs seconds each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import TOKEN, check_labels
from calibrator.metrics.metrics import Floats, Ints
from calibrator.rows.rows import Row, Tags, labels_of

MAX_FEATURES = 300_000
MIN_ROWS = 3  # training rows that have a feature
QUESTION_CHARACTERS = 1_500
ANSWER_CHARACTERS = 500  # from the beginning, and as many from the end
INVERSE_PENALTY = 2.0


def document(row: Row) -> str:
    """Return the text of a row whose words are counted: question, newline, answer, without names.

    The question is cut to its first `QUESTION_CHARACTERS`, a long answer to its first and last
    `ANSWER_CHARACTERS`.
    """
    answer = row.answer
    if len(answer) > 2 * ANSWER_CHARACTERS:
        answer = f"{answer[:ANSWER_CHARACTERS]}\n{answer[-ANSWER_CHARACTERS:]}"
    return f"{row.question[:QUESTION_CHARACTERS]}\n{answer}"


def names(row: Row, tags: Tags) -> list[str]:
    """Return the names that `tags` allows as features, such as `model=gpt-4o`, in lower case.

    `tags` is `served` for the model, `all` for model and benchmark, `none` for neither. Missing
    names are left out.
    """
    item = row.item(tags)
    by_kind = {"model": item.source_model, "benchmark": item.benchmark}
    return [f"{kind}={name.lower()}" for kind, name in by_kind.items() if name]


class WordPairCounts:
    """Counts of the words and pairs of words of all `rows`, a sparse array (rows, vocabulary).

    Terms that fewer than `MIN_ROWS` rows have are left out.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Count the words and pairs of words of all rows, labelled or not.

        Raises JudgingError where no row has a word, and MissingExtraError without scikit-learn.
        """
        check_scikit_learn()
        from sklearn.feature_extraction.text import CountVectorizer

        self.rows = rows
        self.labels = labels_of(rows)
        vectorizer = CountVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, dtype=np.int32)
        try:
            counts = vectorizer.fit_transform(map(document, rows)).tocsc()
        except ValueError as error:  # no row has a word
            raise JudgingError(f"the words of these rows cannot be counted: {error}") from error
        # No fit can use a term that fewer than MIN_ROWS of all rows have.
        self._counts = counts[:, np.diff(counts.indptr) >= MIN_ROWS].tocsr()

    def scores(self, train: Ints, test: Ints, tags: Tags) -> Floats:
        """Return P(correct) of the rows at `test`, (len(test),), from a fit on those at `train`.

        Both are numbers of rows; `tags` says which names are features (`names`). Without any
        feature it is the training rows' share of right ones. Raises JudgingError where the training
        rows have one label only.
        """
        from scipy.sparse import hstack
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.linear_model import LogisticRegression

        check_labels([self.rows[i] for i in train])
        seen, unseen = self._counts[train], self._counts[test]
        kept = _frequent(seen)
        columns = self._names(train, tags)
        features = hstack([seen[:, kept], columns(train)]).tocsr()
        if not features.shape[1]:
            return np.full(len(test), self.labels[train].mean())
        weights = TfidfTransformer(sublinear_tf=True)
        model = LogisticRegression(C=INVERSE_PENALTY, solver="liblinear", max_iter=300)
        model.fit(weights.fit_transform(features), self.labels[train])
        judged = weights.transform(hstack([unseen[:, kept], columns(test)]).tocsr())
        return np.asarray(model.predict_proba(judged)[:, 1])

    def _names(self, train: Ints, tags: Tags) -> Callable[[Ints], Any]:
        """Return a function from row numbers to a sparse array (rows, names) of ones.

        Its columns are the names of the training rows that `tags` allows, sorted; others are
        ignored.
        """
        from scipy.sparse import csr_matrix

        known = sorted({name for i in train for name in names(self.rows[i], tags)})
        place = {name: at for at, name in enumerate(known)}

        def columns(chosen: Ints) -> Any:
            """Return a sparse array (rows, names), 1 for each known name of a chosen row."""
            cells = [
                (n, place[name])
                for n, i in enumerate(chosen)
                for name in names(self.rows[i], tags)
                if name in place
            ]
            at = np.array(cells, dtype=np.int64).reshape(-1, 2).T
            ones = np.ones(at.shape[1], dtype=np.int32)
            return csr_matrix((ones, (at[0], at[1])), shape=(len(chosen), len(place)))

        return columns


def _frequent(counts: Any) -> Ints:
    """Return the columns that at least `MIN_ROWS` rows have, ascending.

    `counts` is sparse, (rows, terms). Of more than `MAX_FEATURES`, those with the highest total
    counts are kept.
    """
    rows_with = np.bincount(counts.indices, minlength=counts.shape[1])
    total = np.asarray(counts.sum(axis=0)).ravel() * (rows_with >= MIN_ROWS)
    most = np.argsort(-total, kind="stable")[:MAX_FEATURES]
    return np.sort(most[total[most] > 0])


def tfidf_baseline(
    train: Sequence[Row], test: Sequence[Row], tags: Sequence[Tags] = ("served",)
) -> list[Floats]:
    """Return P(correct) of the test rows, (m,), once for each rule in `tags` for the names shown.

    A rule is `served`, `all` or `none` (`names`). Raises JudgingError for training rows of one
    label.
    """
    counts = WordPairCounts([*train, *test])
    at = np.arange(len(train) + len(test))
    return [counts.scores(at[: len(train)], at[len(train) :], each) for each in tags]
