"""Confidences from several replies: entropies, consistencies, graph measures (paper I08-I15)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.special import log_softmax
from scipy.stats import entropy

from calibrator.lab.judging.baselines.samples import (
    ReplySamples,
    lexical_entailment,
    likelihoods,
    normalize_text,
    rouge_l,
    token_certainty,
)
from calibrator.metrics.metrics import Floats

TEXTS = ["Paris", "The answer is Paris.", "paris!", "Lyon", "It is Lyon", "Rome"]


def drawn(seed: int, count: int = 7) -> ReplySamples:
    """Return samples whose entailments come from a random, asymmetric table."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet((2, 1, 1), size=(count + 1, count + 1))
    for at in range(count + 1):
        table[at, at] = (1.0, 0.0, 0.0)
    names = [f"t{n}" for n in range(count + 1)]

    def entailment(pairs: Sequence[tuple[str, str]]) -> Floats:
        return np.array([table[names.index(a), names.index(b)] for a, b in pairs])

    return ReplySamples(names[-1], names[:-1], entailment)


def matrices(samples: ReplySamples) -> tuple[Floats, Floats]:
    """Return P(entailment) and P(contradiction) of all pairs of samples."""
    texts = samples.texts
    found = samples.entailment([(a, b) for a in texts for b in texts])
    found = np.asarray(found).reshape(len(texts), len(texts), 3)
    return found[..., 0], found[..., 2]


def test_replies_that_say_the_same_are_one_cluster() -> None:
    """Equal replies form a cluster, and the negative entropy of clusters is SciPy's (I08, I10)."""
    samples = ReplySamples("Paris", TEXTS)
    assert samples.clusters.tolist() == [0, 0, 0, 1, 1, 2, 0]
    assert samples.semantic_entropy() == pytest.approx(-entropy([3, 2, 1]), abs=1e-6)
    assert ReplySamples("x", ["a", "a"]).semantic_entropy() == 0.0


def test_consistency_is_the_share_that_agrees() -> None:
    """Consistency is the share that agrees, by words (I09) or by cluster (I11)."""
    samples = ReplySamples("Lyon", TEXTS)
    assert samples.exact_consistency() == pytest.approx(2 / 6)
    assert samples.self_consistency() == pytest.approx(2 / 6)
    assert ReplySamples("Nice", TEXTS).self_consistency() == 0.0
    assert normalize_text("The answer is: 1,000.") == "1000"


@pytest.mark.parametrize("seed", range(6))
def test_graph_measures_are_their_definitions(seed: int) -> None:
    """Deg and EigV follow Lin et al.'s definitions, NumSemSets SciPy's components (I12)."""
    samples = drawn(seed)
    entails, contradicts = matrices(samples)
    m = len(entails)
    affinity = (entails + entails.T) / 2
    degrees = np.diag(affinity.sum(axis=1))
    expected = np.trace(m * np.eye(m) - degrees) / m**2
    assert samples.degree() == pytest.approx(-expected, abs=1e-6)
    # The eigenvalues of I - D^-1/2 W D^-1/2 are those of the pencil (D - W, D).
    values = eigh(degrees - affinity, degrees, eigvals_only=True)
    assert samples.eigenvalues() == pytest.approx(-np.clip(1 - values, 0, None).sum(), abs=1e-6)
    likely = entails > contradicts
    groups, _ = connected_components(likely & likely.T, directed=False)
    assert samples.sets() == -groups


def test_the_same_reply_over_and_over_is_surest() -> None:
    """Every measure is highest if all samples equal the reply."""
    same, mixed = ReplySamples("Paris", ["Paris"] * 6), ReplySamples("Paris", TEXTS)
    for measure in (
        *(
            ReplySamples.semantic_entropy,
            ReplySamples.self_consistency,
            ReplySamples.exact_consistency,
        ),
        *(
            ReplySamples.sets,
            ReplySamples.degree,
            ReplySamples.eigenvalues,
            ReplySamples.agreement,
            ReplySamples.frequency,
        ),
    ):
        assert measure(same) > measure(mixed)
    assert (same.sets(), same.degree(), same.agreement()) == (-1.0, 0.0, 1.0)
    assert same.eigenvalues() == pytest.approx(-1.0)


def test_frequency_is_lofreecps_score() -> None:
    """The frequency score is LofreeCP's (I13).

    It is the share of the reply, less half of the normalized entropy, plus half of its likeness to
    the most frequent reply.
    """
    found = ReplySamples("Lyon", TEXTS).frequency()
    uncertain = entropy([3, 2, 1]) / np.log(6)
    assert found == pytest.approx(2 / 6 - 0.5 * uncertain + 0.5 * 0.0, abs=1e-6)


def test_agreement_is_the_longest_common_subsequence() -> None:
    """Agreement is ROUGE-L's F1 of words (I13)."""
    assert rouge_l("the cat sat on the mat", "cat mat sat") == pytest.approx(2 * 2 / (3 + 3))
    assert rouge_l("", "") == 1.0
    assert rouge_l("", "a word") == 0.0
    assert ReplySamples("one two", ["one two", "three"]).agreement() == 0.5


@pytest.mark.parametrize(
    ("premise", "hypothesis", "best"),
    [
        ("It is Paris.", "Paris", 0),
        ("Paris is in France", "Paris", 0),
        ("Paris", "Paris is large and old", 1),
        ("The result is 12", "The result is 13", 2),
        ("It is not true", "It is true", 2),
        ("", "", 0),
    ],
)
def test_lexical_entailment(premise: str, hypothesis: str, best: int) -> None:
    """Lexical entailment depends on words, numbers and negations, and its parts sum to 1."""
    [found] = lexical_entailment([(premise, hypothesis)])
    assert found.argmax() == best
    assert found.sum() == pytest.approx(1.0)


def test_log_probabilities_of_tokens() -> None:
    """Likelihoods are mean, lowest and sum; the entropy adds a token for the rest (I15)."""
    found = likelihoods([-0.1, -2.0, -0.3])
    assert found == pytest.approx({"mean": -0.8, "lowest": -2.0, "sum": -2.4})
    whole = log_softmax(np.array([2.0, 1.0, 0.0]))
    assert token_certainty([whole.tolist()]) == pytest.approx(-entropy(np.exp(whole)), abs=1e-6)
    rest = 1 - np.exp(whole[:2]).sum()
    cut = -entropy([*np.exp(whole[:2]), rest])
    assert token_certainty([whole[:2].tolist()] * 3) == pytest.approx(cut, abs=1e-6)
