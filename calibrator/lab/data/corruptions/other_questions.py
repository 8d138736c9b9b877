"""The search for the question of a file that is most like another one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
CHARACTERS = 4_000  # read from the beginning of a question
MAX_TERMS = 600  # rarest terms of a question; common ones tell questions apart least
MAX_SHARE = 0.5  # share of the questions; a term of more of them is ignored
KEY_CHARACTERS = 20_000


def question_key(question: str) -> str:
    """Return the words of a question in small letters without punctuation, equal for its copies.

    The first `KEY_CHARACTERS` characters are read; they are returned as they are if they have
    no word.
    """
    return " ".join(_WORD.findall(question[:KEY_CHARACTERS].lower())) or question[:KEY_CHARACTERS]


def nearest_questions(questions: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of the most similar other question for each question, (Q,).

    Similarity is the cosine of words and pairs of words, weighted by rarity (TF-IDF). A copy, equal
    up to case and punctuation, counts as the same question. Where all others are copies the
    position is the question's own. Raises ValueError for fewer than two questions.
    """
    if len(questions) < 2:
        raise ValueError("one question alone has no nearest one")
    alike = _cosines([_terms(question) for question in questions])
    same: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        same[question_key(question)].append(place)
    for copies in same.values():
        alike[np.ix_(copies, copies)] = -1
    nearest = np.asarray(alike.argmax(axis=1), dtype=np.int64)
    own = np.arange(len(questions))
    return np.where(alike[own, nearest] < 0, own, nearest)


def _cosines(terms: Sequence[Counter[str]]) -> NDArray[np.float32]:
    """Return the cosine of every two questions, (Q, Q); 0 without shared terms.

    `terms` counts the terms of each question. Terms of one question alone or of more than half
    of them are ignored, and of each question only the `MAX_TERMS` rarest others count.
    """
    count = Counter(term for each in terms for term in each)
    most = max(2.0, MAX_SHARE * len(terms))
    postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, each in enumerate(terms):
        weights = {t: (1 + np.log(n)) * np.log(len(terms) / count[t]) for t, n in each.items()}
        length = max(1e-9, sum(w * w for w in weights.values()) ** 0.5)
        shared = [t for t in weights if 1 < count[t] <= most]
        for term in sorted(shared, key=lambda t: (count[t], t))[:MAX_TERMS]:
            postings[term].append((place, weights[term] / length))
    alike = np.zeros((len(terms), len(terms)), dtype=np.float32)
    for listed in postings.values():
        places = np.array([place for place, _ in listed])
        values = np.array([value for _, value in listed], dtype=np.float32)
        alike[np.ix_(places, places)] += np.outer(values, values)
    return alike


def _terms(question: str) -> Counter[str]:
    """Count the words and pairs of adjacent words in a question's beginning, in small letters."""
    words = _WORD.findall(question[:CHARACTERS].lower())
    return Counter([*words, *map(" ".join, pairwise(words))])
