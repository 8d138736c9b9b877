"""What a calibrator has to beat, fitted on the same training rows (paper I02, I04).

- length: logistic regression on log(1 + tokens of the response), paper I04;
- TF-IDF: words and pairs of words of question, answer and tags, logistic regression on top.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.errors import MissingExtraError
from calibrator.layout import tag_text
from calibrator.rows import Row

Floats = NDArray[np.float64]
MAX_FEATURES = 200_000
_TOKEN = re.compile(r"\w+|[^\w\s]")


def _sklearn() -> tuple[Any, Any]:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "train") from error
    return TfidfVectorizer, LogisticRegression


def _labels(rows: Sequence[Row]) -> NDArray[np.int64]:
    return np.array([row.correct or 0 for row in rows])


def _length(rows: Sequence[Row]) -> Floats:
    """log(1 + t), t = words and punctuation marks; the paper names no tokenizer (V45)."""
    counts = [sum(1 for _ in _TOKEN.finditer(row.answer)) for row in rows]
    return np.log1p(np.array(counts, dtype=np.float64))[:, None]


def length_baseline(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """P(correct) of the test rows from the length of their responses (I04)."""
    _, LogisticRegression = _sklearn()
    model = LogisticRegression(max_iter=1_000).fit(_length(train), _labels(train))
    return np.asarray(model.predict_proba(_length(test))[:, 1])


def _document(row: Row) -> str:
    """Question, answer and tags as one text; words of the answer are told from the question's."""
    answer = " ".join(f"a_{word}" for word in _TOKEN.findall(row.answer.lower()))
    return f"{tag_text(row.benchmark, row.model)} {row.question}\n{answer}"


def tfidf_baseline(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    """P(correct) of the test rows from TF-IDF of 1-2-grams and logistic regression."""
    TfidfVectorizer, LogisticRegression = _sklearn()
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        min_df=3,
        max_features=MAX_FEATURES,
        sublinear_tf=True,
        token_pattern=r"[\w.:-]+",
        dtype=np.float32,
    )
    features = vectorizer.fit_transform(map(_document, train))
    model = LogisticRegression(C=1.0, solver="liblinear", max_iter=300).fit(
        features, _labels(train)
    )
    return np.asarray(model.predict_proba(vectorizer.transform(map(_document, test)))[:, 1])
