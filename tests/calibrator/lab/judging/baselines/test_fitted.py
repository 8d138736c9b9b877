"""Baselines of a calibrator, by the paper's definitions (paper I01-I05)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import (
    NAMES_ONLY,
    STATED,
    length_baseline,
    model_and_benchmark_names,
    model_names,
    with_stated_confidence,
)
from calibrator.lab.judging.baselines.tfidf import (
    INVERSE_PENALTY,
    MIN_ROWS,
    TOKEN,
    WordPairCounts,
    document,
    tfidf_baseline,
)
from calibrator.metrics.metrics import Floats, auroc
from calibrator.rows.rows import Row, parse_row
from tests.builders.labelled_rows import labelled, labels

Baseline = Callable[[Sequence[Row], Sequence[Row]], Floats]


def words_baseline(train: Sequence[Row], test: Sequence[Row]) -> Floats:
    (found,) = tfidf_baseline(train, test)
    return found


ALL: dict[str, Baseline] = {
    "length": length_baseline,
    "TF-IDF": words_baseline,
    **NAMES_ONLY,
    **STATED,
}


def row(response: str, correct: int = 0, **more: object) -> Row:
    return parse_row({"question": "q", "response": response, "correct": correct, **more})


def stated(count: int, seed: int) -> list[Row]:
    return with_stated_confidence(labelled(2 * count, seed))


def test_the_length_baseline_is_the_papers() -> None:
    """The length baseline is scikit-learn's logistic regression on log(1 + t) (I04)."""
    train, test = labelled(300, seed=1), labelled(100, seed=2)
    features = [[[math.log1p(len(r.answer.split()))] for r in rows] for rows in (train, test)]
    model = LogisticRegression().fit(features[0], labels(train))
    found = length_baseline(train, test)
    assert found == pytest.approx(model.predict_proba(features[1])[:, 1], abs=1e-6)


def test_stated_confidence_is_the_papers() -> None:
    """Stated confidence is raw, or fitted with scikit-learn and the paper's settings (I01-I05)."""
    train, test = stated(200, seed=1), stated(100, seed=2)
    x, z = ([[r.verbalized_confidence] for r in rows] for rows in (train, test))
    assert STATED["stated confidence, raw"](train, test).tolist() == [one for (one,) in z]
    platt = LogisticRegression(C=1.0, solver="lbfgs", max_iter=1_000).fit(x, labels(train))
    found = STATED["stated confidence, Platt"](train, test)
    assert found == pytest.approx(platt.predict_proba(z)[:, 1])
    isotonic = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")
    isotonic.fit(np.ravel(x), labels(train))
    found = STATED["stated confidence, isotonic"](train, test)
    assert found == pytest.approx(isotonic.predict(np.ravel(z)))
    joined = STATED["stated confidence and length"](train, test)
    assert auroc(labels(test), joined) > auroc(labels(test), [one for (one,) in z])


def test_names_only_tables_are_shares() -> None:
    """Tables of names have shares of right replies; on a benchmark they lean on the model's."""
    train = [
        row("", c, model=m, benchmark=b)
        for m, b, c in [("m", "x", 1), ("m", "x", 1), ("m", "x", 1), ("m", "y", 0), ("n", "x", 0)]
    ]
    test = [row("", 0, model=m, benchmark=b) for m, b in [("m", "x"), ("n", "y"), ("new", "x")]]
    overall = 3 / 5
    m, n = (3 + overall) / 5, (0 + overall) / 2
    assert model_names(train, test) == pytest.approx([m, n, overall])
    found = model_and_benchmark_names(train, test)
    assert found == pytest.approx([(3 + m) / 4, n, overall])


def test_names_only_never_looks_at_the_reply() -> None:
    """Baselines of names depend on the names alone."""
    train, test = labelled(200, seed=1), labelled(60, seed=2)
    silent = [row("", model=r.model, benchmark=r.benchmark) for r in test]
    for baseline in NAMES_ONLY.values():
        assert (baseline(train, test) == baseline(train, silent)).all()


@pytest.mark.parametrize("name", ["length", "TF-IDF", *STATED])
def test_baselines_beat_chance_where_there_is_something_to_see(name: str) -> None:
    """Fitted on other rows, baselines rank informative replies above chance (I01-I05)."""
    train, test = stated(600, seed=1), stated(300, seed=2)
    p = ALL[name](train, test)
    assert ((p >= 0) & (p <= 1)).all()
    assert auroc(labels(test), p) > 0.6


@pytest.mark.parametrize("name", ALL)
def test_baselines_see_no_test_label(name: str) -> None:
    """A baseline does not depend on the test labels."""
    train, test = stated(200, seed=1), stated(50, seed=2)
    turned = [parse_row({**r.raw, "correct": 1 - (r.correct or 0)}) for r in test]
    assert (ALL[name](train, test) == ALL[name](train, turned)).all()


@pytest.mark.parametrize("name", sorted(set(ALL) - {"stated confidence, raw"}))
@pytest.mark.parametrize(
    ("label", "sentence"), [(1, "only correct rows"), (0, "only wrong rows"), (None, "no rows")]
)
def test_rows_of_one_label_teach_nothing(name: str, label: int | None, sentence: str) -> None:
    """Training rows of one label are refused in one sentence."""
    train = [r for r in stated(60, seed=1) if r.correct == label]
    with pytest.raises(JudgingError, match=sentence):
        ALL[name](train, stated(10, seed=2))


def test_rows_without_a_stated_confidence_are_refused() -> None:
    """Rows without a stated confidence are refused (I01)."""
    with pytest.raises(JudgingError, match="states no confidence"):
        STATED["stated confidence, raw"]([], [row("x")])


def test_an_empty_answer_has_a_length() -> None:
    """An empty answer has a length of 0 and a score (D03)."""
    (p,) = length_baseline(labelled(100, seed=1), [row("")])
    assert 0 < p < 0.5


# --- words --------------------------------------------------------------------------------------


def test_tfidf_is_sklearns() -> None:
    """Counting once and choosing features by fold gives TfidfVectorizer's scores."""
    train, test = labelled(300, seed=1), labelled(80, seed=2)
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=TOKEN, min_df=MIN_ROWS, sublinear_tf=True
    )
    x = vectorizer.fit_transform(map(document, train))
    model = LogisticRegression(C=INVERSE_PENALTY, solver="liblinear").fit(x, labels(train))
    expected = model.predict_proba(vectorizer.transform(map(document, test)))[:, 1]
    (found,) = tfidf_baseline(train, test, ["none"])
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_fold_knows_nothing_of_other_rows() -> None:
    """Rows outside a fold change neither its features nor its scores."""
    train, test, others = labelled(200, seed=1), labelled(40, seed=2), labelled(300, seed=3)
    alone, among = WordPairCounts([*train, *test]), WordPairCounts([*train, *test, *others])
    at, to = np.arange(200), np.arange(200, 240)
    assert alone.scores(at, to, "all") == pytest.approx(among.scores(at, to, "all"), abs=1e-6)


def test_names_help_only_with_tags() -> None:
    """Names help only with tags that tell them (K10)."""
    train = [row(f"word {n}", n % 2, model=f"m{n % 2}") for n in range(100)]
    test = [row(f"word {n + 200}", n % 2, model=f"m{n % 2}") for n in range(40)]
    served, hidden = tfidf_baseline(train, test, ["served", "none"])
    assert auroc(labels(test), served) == 1.0
    assert auroc(labels(test), hidden) == 0.5


def test_long_texts_are_read_at_their_ends() -> None:
    """Long texts are cut to their ends."""
    text = document(row("a" * 500 + "b" * 10**6 + "c" * 500))
    assert text == "q\n" + "a" * 500 + "\n" + "c" * 500
    long_question = parse_row({"question": "q" * 2_000, "response": "short"})
    assert document(long_question) == "q" * 1_500 + "\nshort"


@pytest.mark.parametrize("text", ["", "\x00\x01\u202e", "é" * 1_000_000, "\ud83d", "数学の答え"])
def test_any_text_has_a_score(text: str) -> None:
    """Any text has a score."""
    for baseline in (length_baseline, words_baseline):
        (p,) = baseline(labelled(100, seed=1), [row(text)])
        assert 0 < p < 1


def test_rows_without_a_word_are_refused() -> None:
    """Rows without a word are refused."""
    with pytest.raises(JudgingError, match="cannot be counted"):
        WordPairCounts([parse_row({"question": " ", "response": ""})])
