"""Replies to other questions: of any, and of the one that is most like it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
CHARACTERS = 4_000  # of a question, its beginning


def nearest_questions(questions: Sequence[str]) -> NDArray[np.int64]:
    """For each question (Q,) the place of the one most like it, itself left out.

    Likeness is the cosine of words and pairs of words, rare ones weighing more (TF-IDF); a copy,
    equal up to case and punctuation, counts as the same question. Raises ValueError for fewer than
    two.
    """
    if len(questions) < 2:
        raise ValueError("one question alone has no nearest one")
    terms = [_terms(question) for question in questions]
    count = Counter(term for each in terms for term in each)
    postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, each in enumerate(terms):
        weights = {t: (1 + np.log(n)) * np.log(len(terms) / count[t]) for t, n in each.items()}
        length = max(1e-9, sum(w * w for w in weights.values()) ** 0.5)
        for term, weight in weights.items():
            if weight > 0:
                postings[term].append((place, weight / length))
    alike = np.zeros((len(terms), len(terms)), dtype=np.float32)
    for listed in postings.values():
        places = np.array([place for place, _ in listed])
        values = np.array([value for _, value in listed], dtype=np.float32)
        alike[np.ix_(places, places)] += np.outer(values, values)
    keys = [" ".join(_WORD.findall(question.lower())) for question in questions]
    same: dict[str, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        same[key].append(place)
    for places_of_one in same.values():
        alike[np.ix_(places_of_one, places_of_one)] = -1
    return np.asarray(alike.argmax(axis=1))


def _terms(question: str) -> Counter[str]:
    words = _WORD.findall(question[:CHARACTERS].lower())
    return Counter([*words, *map(" ".join, pairwise(words))])
