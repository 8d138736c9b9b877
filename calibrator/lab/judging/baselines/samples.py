"""Confidences from several replies to one question, by their agreement with the judged reply.

- semantic entropy of the clusters of replies that entail each other (Kuhn et al. 2023; I08, I10);
- self-consistency: the share of samples that agree with the judged reply (I09, I11);
- graph measures on P(entailment) between samples: NumSemSets, Deg, EigV (Lin et al. 2023; I12);
- agreement with replies to changed prompts (SPUQ, Gao et al. 2024), and the frequency score of
  LofreeCP (Su et al. 2024), both as published (I13).

Higher values are more certain in all of them. Replies are compared by an `Entailment`: a model's,
or the lexical one here, which knows words, numbers and negations. That one works offline, in place
of DeBERTa-large-MNLI (paper I10), and is meant for short answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from calibrator.metrics.metrics import Floats, Ints

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2

_WORD = re.compile(r"[^\W\d_]+(?:'\w+)?|\d+(?:[.,]\d+)*")
_NEGATION = frozenset(("not", "no", "never", "none", "cannot", "neither", "nor", "without"))
_EMPTY: Final = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "were", "be", "it", "its", "this", "that", "of"),
        *("to", "in", "on", "at", "and", "so", "answer", "final", "therefore", "thus", "i"),
    )
)

ENTROPY_WEIGHT, SIMILARITY_WEIGHT = 0.5, 0.5  # weights of LofreeCP's two penalties


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
    premise_words, hypothesis_words = (
        normalize_text(text).split() for text in (premise, hypothesis)
    )
    if not hypothesis_words:
        return (1.0, 0.0, 0.0) if not premise_words else (0.0, 1.0, 0.0)
    share = sum(word in premise_words for word in hypothesis_words) / len(hypothesis_words)
    numbers = [
        {word for word in words if word[0].isdigit()} for words in (premise_words, hypothesis_words)
    ]
    negated = [
        bool(_NEGATION & set(words)) or any(word.endswith("n't") for word in words)
        for words in (premise_words, hypothesis_words)
    ]
    if negated[0] != negated[1] or (all(numbers) and not numbers[1] <= numbers[0]):
        return 0.0, (1 - share) / 2, (1 + share) / 2
    return share, 1 - share, 0.0


@dataclass
class ReplySamples:
    """Several sampled replies `texts` to one question, and the `reply` that is judged.

    `entailment` compares texts, as described in `Entailment`. Each method gives a confidence in the
    reply or in the samples, higher for more certain.
    """

    reply: str
    texts: Sequence[str]
    entailment: Entailment = lexical_entailment

    @cached_property
    def _pairs(self) -> Floats:
        """The probabilities of each pair of the m samples and, last, the reply: (m+1, m+1, 3)."""
        every = [*self.texts, self.reply]
        pairs = [(a, b) for a in every for b in every]
        return np.asarray(self.entailment(pairs)).reshape(len(every), len(every), 3)

    @cached_property
    def clusters(self) -> Ints:
        """The cluster number of each sample and, last, of the reply.

        Texts that entail each other have the same number. Clustering is greedy, as published: each
        text is compared with the first text of every cluster so far.
        """
        best = self._pairs.argmax(axis=2) == ENTAILMENT
        firsts: list[int] = []
        found = []
        for at in range(len(best)):
            same = [k for k, first in enumerate(firsts) if best[first, at] and best[at, first]]
            if not same:
                firsts.append(at)
            found.append(same[0] if same else len(firsts) - 1)
        return np.array(found)

    def semantic_entropy(self) -> float:
        """Return minus the entropy of the clusters' shares of samples, in nats.

        The reply is not among the samples.
        """
        shares = np.bincount(self.clusters[:-1]) / len(self.texts)
        shares = shares[shares > 0]
        return float((shares * np.log(shares)).sum())

    def self_consistency(self) -> float:
        """Return the share of samples, 0 to 1, that are in the reply's cluster (I11)."""
        return float((self.clusters[:-1] == self.clusters[-1]).mean())

    def exact_consistency(self) -> float:
        """Return the share of samples, 0 to 1, with the reply's normalized words (I09)."""
        same = [normalize_text(text) == normalize_text(self.reply) for text in self.texts]
        return sum(same) / len(same)

    @cached_property
    def _affinity(self) -> Floats:
        """The mean P(entailment) of both directions between samples, (m, m); the diagonal is 1."""
        one_way = self._pairs[:-1, :-1, ENTAILMENT]
        found = (one_way + one_way.T) / 2
        np.fill_diagonal(found, 1.0)
        return np.asarray(found)

    def sets(self) -> float:
        """Return NumSemSets: minus the number of groups of samples that entail each other.

        Two samples are in one group where, in both directions, entailment is likelier than
        contradiction, or where a chain of such samples links them. The reply is not among the
        samples.
        """
        p = self._pairs[:-1, :-1]
        likely = p[..., ENTAILMENT] > p[..., CONTRADICTION]
        joined = (likely & likely.T) | np.eye(len(p), dtype=bool)
        left, count = set(range(len(joined))), 0
        while left:
            waiting = [left.pop()]
            count += 1
            while waiting:
                near = {int(k) for k in np.flatnonzero(joined[waiting.pop()])} & left
                left -= near
                waiting += near
        return -float(count)

    def degree(self) -> float:
        """Return Deg: minus trace(m I - D) / m^2, where D sums the affinities of each sample.

        An affinity is the mean P(entailment) of both directions. The result is from -1 to 0, 0
        where all samples entail each other.
        """
        m = len(self._affinity)
        return -float((m - self._affinity.sum(axis=1)).sum() / m**2)

    def eigenvalues(self) -> float:
        """Return EigV: minus the sum of max(0, 1 - eigenvalue) of the normalized Laplacian.

        The Laplacian is of the samples' affinities, the mean P(entailment) of both directions. The
        sum is about the number of distinct meanings.
        """
        root = 1 / np.sqrt(self._affinity.sum(axis=1))
        laplacian = np.eye(len(root)) - root[:, None] * self._affinity * root
        return -float(np.maximum(0, 1 - np.linalg.eigvalsh(laplacian)).sum())

    def agreement(self) -> float:
        """Return SPUQ's consistency: the mean similarity (ROUGE-L) of the reply with the samples.

        The samples are replies to changed prompts.
        """
        return float(np.mean([rouge_l(self.reply, text) for text in self.texts]))

    def frequency(self) -> float:
        """Return LofreeCP's frequency score of the reply.

        It is the share of samples that equal the reply, minus half of the samples' normalized
        entropy, plus half of the reply's similarity with the most frequent sample.
        """
        counts = Counter(map(normalize_text, self.texts))
        shares = np.array(list(counts.values())) / len(self.texts)
        most = float(np.log(len(self.texts))) or 1.0
        entropy = float(-(shares * np.log(shares)).sum() / most)
        similar = rouge_l(self.reply, counts.most_common(1)[0][0])
        share = counts[normalize_text(self.reply)] / len(self.texts)
        return share - ENTROPY_WEIGHT * entropy + SIMILARITY_WEIGHT * similar


def rouge_l(first: str, second: str) -> float:
    """Return ROUGE-L: the F1 of the longest common subsequence of two texts' normalized words.

    It is from 0 to 1; 1 for two texts without words, 0 for one.
    """
    a, b = normalize_text(first).split(), normalize_text(second).split()
    if not a or not b:
        return float(a == b)
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for at, other in enumerate(b, start=1):
            row[at], before = (
                (before + 1 if word == other else max(row[at], row[at - 1])),
                row[at],
            )
    return 2 * row[-1] / (len(a) + len(b))


def likelihoods(logprobs: Sequence[float]) -> dict[str, float]:
    """Return the `mean`, `lowest` and `sum` of the log-probabilities of a reply's tokens (I15).

    The keys of the dict are these names. Raises ValueError without tokens.
    """
    found = np.asarray(logprobs, dtype=np.float64)
    return {"mean": float(found.mean()), "lowest": float(found.min()), "sum": float(found.sum())}


def token_certainty(tops: Sequence[Sequence[float]]) -> float:
    """Return minus the mean entropy of the next token, in nats, at most 0 (I15).

    `tops` has the log-probabilities of the likeliest tokens at each position. The probability that
    they leave over counts as one more token.
    """
    entropies = []
    for each in tops:
        p = np.exp(np.asarray(each, dtype=np.float64))
        p = np.append(p, max(0.0, 1 - float(p.sum())))
        p = p[p > 0]
        entropies.append(float(-(p * np.log(p)).sum()))
    return -float(np.mean(entropies))
