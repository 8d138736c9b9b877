"""Entailment between two texts: a protocol for models, and a lexical version that works offline.

The lexical version knows words, numbers and negations. It replaces DeBERTa-large-MNLI (paper I10)
where no such model is at hand, and is meant for short answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from calibrator.metrics.metrics import Floats

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2

_WORD = re.compile(r"[^\W\d_]+(?:'\w+)?|\d+(?:[.,]\d+)*")
_NEGATION = frozenset(("not", "no", "never", "none", "cannot", "neither", "nor", "without"))
_EMPTY: Final = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "were", "be", "it", "its", "this", "that", "of"),
        *("to", "in", "on", "at", "and", "so", "answer", "final", "therefore", "thus", "i"),
    )
)


class Entailment(Protocol):
    """A function from n pairs (premise, hypothesis) to an (n, 3) array of probabilities.

    The columns are P(entailment), P(neutral) and P(contradiction).
    """

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Floats: ...


def normalize_text(text: str) -> str:
    """Return a text's words and numbers in lower case, joined by spaces, without fillers (I09).

    Fillers are such as `the`, `is` or `answer`; commas are removed from numbers. `The answer is
    1,200.` becomes `1200`.
    """
    words = [word for word in _words(text) if word not in _EMPTY]
    return " ".join(words)


def _words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case, in order, without commas in numbers."""
    return [word.replace(",", "") for word in _WORD.findall(text.lower())]


def lexical_entailment(pairs: Sequence[tuple[str, str]]) -> Floats:
    """Return P(entailment, neutral, contradiction) of each pair from shared words, (n, 3).

    P(entailment) is the share of the hypothesis' words that the premise has. A pair is a
    contradiction where the numbers differ or only one side has a negation.
    """
    return np.array([_lexical(premise, hypothesis) for premise, hypothesis in pairs]).reshape(-1, 3)


def _lexical(premise: str, hypothesis: str) -> tuple[float, float, float]:
    """Return P(entailment), P(neutral), P(contradiction) of two texts from their normalized words.

    With the share of the hypothesis' words that the premise has, they are (share, 1 - share, 0),
    and for a contradiction (0, (1 - share) / 2, (1 + share) / 2). It is one where a single side has
    a negation, or both have numbers and the premise lacks one of the hypothesis. An empty
    hypothesis is entailed by an empty premise and neutral to others.
    """
    said, claimed = (normalize_text(text).split() for text in (premise, hypothesis))
    if not claimed:
        return (1.0, 0.0, 0.0) if not said else (0.0, 1.0, 0.0)
    share = sum(word in said for word in claimed) / len(claimed)
    numbers = [{word for word in words if word[0].isdigit()} for words in (said, claimed)]
    negated = [
        bool(_NEGATION & set(words)) or any(word.endswith("n't") for word in words)
        for words in (said, claimed)
    ]
    if negated[0] != negated[1] or (all(numbers) and not numbers[1] <= numbers[0]):
        return 0.0, (1 - share) / 2, (1 + share) / 2
    return share, 1 - share, 0.0
