"""The nearest question is the one with the largest plain TF-IDF cosine, except copies."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from calibrator.lab.data.corruptions.kinds import nearest_questions, question_key

WORDS = [f"w{n}" for n in range(60)]


def made_up(count: int, seed: int) -> list[str]:
    """Return questions of rare and common words; each shares some with others."""
    rng = random.Random(seed)
    return [
        " ".join(WORDS[min(int(rng.expovariate(0.08)), 59)] for _ in range(rng.randint(6, 14)))
        for _ in range(count)
    ]


def test_it_is_the_cosine_of_tf_idf() -> None:
    """The cosine is scikit-learn's of TF-IDF, on words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    questions = made_up(40, seed=1)
    # A word in more than half of the questions does not count
    fitted = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, smooth_idf=False)
    fitted.fit(questions)
    fitted.idf_ = fitted.idf_ - 1  # ln(n / df) alone
    vectors = fitted.transform(questions)
    alike = (vectors @ vectors.T).toarray()
    np.fill_diagonal(alike, -1)
    chosen = nearest_questions(questions)
    places = np.arange(len(questions))
    assert np.mean(alike.argmax(axis=1) == chosen) > 0.8
    assert np.min(alike[places, chosen] - alike.max(axis=1)) > -0.1


def test_a_question_on_the_same_matter_is_nearer() -> None:
    """Rare words count more than words of most questions."""
    questions = [
        "What is the capital of France?",
        "What is the boiling point of water?",
        "Which city is the capital city of Spain?",
        "At what point does water freeze?",
    ]
    assert nearest_questions(questions).tolist() == [2, 3, 0, 1]


def test_a_copy_is_the_same_question() -> None:
    """Another spelling of the same question is skipped."""
    questions = ["How old is Rome?", "how old is  ROME", "How old is the Nile?", "Name a colour."]
    assert nearest_questions(questions)[:2].tolist() == [2, 2]
    assert nearest_questions(questions[:2]).tolist() == [0, 1]
    assert question_key(questions[0]) == question_key(questions[1])


def test_questions_without_words_differ() -> None:
    """Questions without a word are not copies of each other."""
    assert question_key("???") != question_key("!!!")


def test_one_question_has_no_nearest() -> None:
    """A single question has no nearest one, which is an error."""
    with pytest.raises(ValueError, match="no nearest"):
        nearest_questions(["alone"])


def test_long_questions_take_bounded_time() -> None:
    """Questions of 100 kB are compared by their beginnings within three seconds."""
    text = " ".join(f"word{n}" for n in range(12_000))
    start = time.perf_counter()
    nearest_questions([f"{n} {text}" for n in range(40)])
    assert time.perf_counter() - start < 3
