"""Certified thresholds: the exact binomial tail, the search for a threshold, and the guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from policies import GRID, LabelledScore, certify, one_per_question, study
from policies.binomial import interval, lower_tail, upper_bound
from policies.certifying.certification import starting_shares
from policies.certifying.missing_labels import least_labels

Floats = NDArray[np.float64]

# --- the binomial distribution -------------------------------------------------------------------


@given(st.integers(0, 3_000), st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
def test_the_lower_tail_is_scipys(n: int, share: float, p: float) -> None:
    """The lower tail equals scipy's to nine digits.

    Far out in the tails scipy itself errs (by 5e-8 at 1.2e-268).
    """
    k = round(share * n)
    assert lower_tail(k, n, p) == pytest.approx(binom.cdf(k, n, p), rel=1e-9, abs=1e-100)


@given(st.integers(0, 300), st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
@example(298, 0.125, 0.9375)
def test_the_lower_tail_is_exact(n: int, share: float, p: float) -> None:
    """Every tail that is not 0 as a float equals the tail in rational numbers."""
    k, right = round(share * n), Fraction(p)
    terms = (math.comb(n, i) * right**i * (1 - right) ** (n - i) for i in range(k + 1))
    assert lower_tail(k, n, p) == pytest.approx(float(sum(terms)), rel=1e-9, abs=1e-290)


@pytest.mark.parametrize("n", [100_000, 10_000_000])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("deviations", [-8, -2, 0, 3])
def test_large_counts_keep_their_tails(n: int, p: float, deviations: int) -> None:
    """With ten million labels the tail is accurate to six digits."""
    k = int(n * p + deviations * math.sqrt(n * p * (1 - p)))
    assert lower_tail(k, n, p) == pytest.approx(binom.cdf(k, n, p), rel=1e-7)


def test_the_ends_of_the_tail() -> None:
    """The tail is 0 below 0, 1 at n, and right for probabilities of 0 and 1."""
    assert lower_tail(-1, 5, 0.5) == 0.0
    assert lower_tail(5, 5, 0.5) == 1.0
    assert lower_tail(0, 0, 0.5) == 1.0
    assert (lower_tail(1, 5, 0.0), lower_tail(4, 5, 1.0)) == (1.0, 0.0)


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_is_clopper_and_pearsons(n: int, share: float, confidence: float) -> None:
    """The interval is the exact one of Clopper and Pearson, as in scipy."""
    k = round(share * n)
    exact = binomtest(k, n).proportion_ci(confidence, method="exact")
    assert interval(k, n, confidence) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert upper_bound(k, n, 1 - confidence) <= 1.0
    assert interval(0, 0) == (0.0, 1.0)


# --- what labels prove ---------------------------------------------------------------------------


def rows(*groups: tuple[float, int, int]) -> list[LabelledScore]:
    """Return groups of (confidence, right, wrong) as labelled replies, each to its own question."""
    return [
        LabelledScore(f"{confidence}/{n}", confidence, n < right)
        for confidence, right, wrong in groups
        for n in range(right + wrong)
    ]


@pytest.mark.parametrize(
    ("max_error", "delta", "least"),
    [(0.05, 0.05, 59), (0.1, 0.05, 29), (0.1, 0.1, 22), (0.01, 0.05, 299), (0.5, 0.5, 1)],
)
def test_the_least_number_of_faultless_labels(max_error: float, delta: float, least: int) -> None:
    """The least number of faultless labels is the first with a probability of at most delta."""
    assert least_labels(max_error, delta) == least
    assert (1 - max_error) ** least <= delta < (1 - max_error) ** (least - 1)


@pytest.mark.parametrize(
    ("confidence", "least"), [(0.96, 83), (0.995, 83), (0.9, 98), (0.55, 98), (0.02, 98)]
)
def test_faultless_labels_prove_five_percent_at_any_scale(confidence: float, least: int) -> None:
    """83 or 98 faultless labels prove 5 %, by their confidence; with one fewer, one is missing."""
    assert certify(rows((confidence, least, 0)), 0.05).threshold == 0.0
    refused = certify(rows((confidence, least - 1, 0)), 0.05)
    assert refused.threshold is None
    assert refused.needed is not None
    assert (refused.needed.at_least, refused.needed.expected) == (1, 1)


@given(st.floats(1e-9, 1 - 1e-9))
def test_starting_points_share_delta(max_error: float) -> None:
    """Starting points are on the grid of thresholds, and their shares of delta add up to 1."""
    shares = starting_shares(max_error)
    assert set(shares) <= set(GRID)
    assert min(shares.values()) > 0
    assert math.fsum(shares.values()) == pytest.approx(1.0, abs=1e-12)


def test_the_lowest_threshold_that_passes_is_certified() -> None:
    """The lowest threshold that passes is certified, with its counts and scores."""
    found = certify(rows((0.955, 200, 0), (0.505, 0, 100)), 0.05)
    assert found.threshold == 0.51
    assert (found.labels, found.accepted, found.wrong) == (300, 200, 0)
    assert found.coverage == pytest.approx(2 / 3)
    assert sum(found.scores) == 300
    assert (found.scores[95], found.scores[50]) == (200, 100)


def test_an_error_among_the_surest_does_not_end_the_search() -> None:
    """Wrong replies at the top do not end the search: it begins again below them."""
    surest_wrong = rows((0.9995, 0, 3), (0.97, 20, 10), (0.9, 3_000, 20), (0.4, 0, 500))
    found = certify(surest_wrong, 0.05)
    assert found.threshold == 0.41
    assert (found.accepted, found.wrong) == (3_053, 33)


def test_thresholds_between_starting_points_need_those_above_them() -> None:
    """A threshold between starting points is certified only if those above it pass."""
    labelled = rows((0.95, 600, 0), (0.75, 0, 60), (0.65, 5_000, 0))
    assert certify(labelled, 0.05).threshold == 0.0  # from the starting points at 0.6 and lower
    between = rows((0.95, 600, 0), (0.75, 0, 60), (0.65, 5_000, 0), (0.605, 0, 5_000))
    assert certify(between, 0.05).threshold == 0.76


def test_wrong_labels_are_refused_with_the_number_that_is_missing() -> None:
    """Labels with 4 % errors are refused with the missing number, those with 20 % as hopeless."""
    found = certify(rows((0.9, 96, 4)), 0.05)
    assert found.threshold is None
    assert found.needed is not None
    assert found.needed.expected is not None
    least = found.needed.at_least
    assert certify(rows((0.9, 96 + least, 4)), 0.05).threshold is not None
    assert certify(rows((0.9, 95 + least, 4)), 0.05).threshold is None
    share = found.needed.expected / 100
    more = rows((0.9, round(96 * (1 + share)), round(4 * (1 + share))))
    assert certify(more, 0.05).threshold is not None
    hopeless = certify(rows((0.9, 80, 20)), 0.05).needed
    assert hopeless is not None
    assert (hopeless.expected, hopeless.is_hopeless) == (None, True)


@pytest.mark.parametrize(("right", "wrong"), [(2, 1), (9, 1), (95, 5)])
def test_the_number_of_needed_labels_suffices(right: int, wrong: int) -> None:
    """Labels that do not exclude the wanted error rate get the number that suffices."""
    needed = certify(rows((0.9, right, wrong)), 0.05).needed
    assert needed is not None
    assert (needed.expected, needed.is_hopeless) == (None, False)
    enough, fewer = (right + needed.at_least - less for less in (0, 1))
    assert certify(rows((0.9, enough, wrong)), 0.05).threshold is not None
    assert certify(rows((0.9, fewer, wrong)), 0.05).threshold is None


def test_no_labels_prove_nothing() -> None:
    """Without labels nothing is certified, and 83 are missing."""
    found = certify([], 0.05)
    assert found.threshold is None
    assert found.needed is not None
    assert (found.needed.at_least, found.needed.expected) == (83, None)
    assert found.coverage == 0.0


@pytest.mark.parametrize(("max_error", "confidence"), [(0.0, 0.9), (1.0, 0.9), (0.1, 1.0)])
def test_rates_that_are_none_are_refused(max_error: float, confidence: float) -> None:
    """Error rates and confidences of 0 or 1 are refused."""
    with pytest.raises(ValueError, match="must be more than 0 and less than 1"):
        certify([], max_error, confidence)


@pytest.mark.parametrize("confidence", [float("nan"), -0.1, 1.1])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    """A confidence that is no probability is refused."""
    with pytest.raises(ValueError, match="no probability"):
        certify([LabelledScore("q", confidence, True)], 0.1)


def test_one_reply_of_each_question_counts() -> None:
    """One reply of each question counts; the choice does not depend on order, score or label."""
    replies = [LabelledScore(f"q{n // 5}", n / 100, n % 2 == 0, str(n)) for n in range(100)]
    kept = one_per_question(replies)
    assert len(kept) == 20
    assert sorted(row.id for row in kept) == sorted(
        row.id for row in one_per_question(reversed(replies))
    )
    relabelled = [
        LabelledScore(r.question, 1 - r.confidence, not r.is_correct, r.id) for r in replies
    ]
    assert {row.id for row in one_per_question(relabelled)} == {row.id for row in kept}
    assert {int(row.id) % 5 for row in kept} == {0, 1, 2, 3, 4}


def test_the_grid_is_fixed_and_descends() -> None:
    """The grid of thresholds descends strictly from 0.999 to 0."""
    assert list(GRID) == sorted(set(GRID), reverse=True)
    assert (GRID[0], GRID[-1]) == (0.999, 0.0)


# --- the guarantee -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Population:
    """An endless source of replies: how confidences are drawn, and how often each is wrong."""

    draw: Callable[[np.random.Generator, int], Floats]
    error: Callable[[Floats], Floats]

    def risks(self) -> dict[float, tuple[float, float]]:
        """Coverage and error rate above each threshold, from 400,000 replies."""
        confidences = self.draw(np.random.default_rng(0), 400_000)
        errors = self.error(confidences)
        order = np.argsort(-confidences)
        accepted = np.searchsorted(-confidences[order], -np.array(GRID), side="right")
        wrong = np.concatenate([[0.0], np.cumsum(errors[order])])
        return {
            threshold: (n / len(errors), float(wrong[n] / n) if n else 0.0)
            for threshold, n in zip(GRID, accepted, strict=True)
        }

    def labelled(self, rng: np.random.Generator, count: int) -> list[LabelledScore]:
        confidences = self.draw(rng, count)
        right = rng.random(count) >= self.error(confidences)
        return [
            LabelledScore(str(n), float(confidence), bool(is_right))
            for n, (confidence, is_right) in enumerate(zip(confidences, right, strict=True))
        ]


CALIBRATED = Population(lambda rng, n: rng.beta(0.7, 0.6, n), lambda c: 1 - c)
"""A calibrator with an AUROC of 0.87, about the paper's, whose confidences are true."""

DRAWS = [80, pytest.param(2_000, marks=pytest.mark.slow)]
MAX_ERROR, CONFIDENCE = 0.1, 0.9


def noise(draws: int) -> float:
    """Return four standard deviations of a share of 0.1."""
    return 4 * math.sqrt(0.1 * 0.9 / draws)


POPULATIONS = {
    "calibrated": CALIBRATED,
    "overconfident": Population(CALIBRATED.draw, lambda c: np.clip(1.08 - c, 0, 1)),
    # the hardest case: each threshold is just not good enough, so each certificate is wrong
    "never good enough": Population(CALIBRATED.draw, lambda c: np.full_like(c, MAX_ERROR + 1e-6)),
    # the surest replies are the worst, so that confidence misleads
    "misleading": Population(CALIBRATED.draw, lambda c: np.where(c > 0.95, 0.3, 0.1)),
    # errors rise and fall with confidence: many thresholds are just good enough or just not
    "waves": Population(CALIBRATED.draw, lambda c: np.where(np.floor(c * 20) % 2, 0.03, 0.19)),
}


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("draws", DRAWS)
def test_certificates_are_wrong_no_more_often_than_stated(draws: int, name: str) -> None:
    """At most 10 % of the certificates from 400 labels promise too much."""
    population = POPULATIONS[name]
    risks, rng = population.risks(), np.random.default_rng(1)
    thresholds = [
        certify(population.labelled(rng, 400), MAX_ERROR, CONFIDENCE).threshold
        for _ in range(draws)
    ]
    wrong = sum(each is not None and risks[each][1] > MAX_ERROR for each in thresholds)
    assert wrong / draws <= 1 - CONFIDENCE + noise(draws)
    if name == "never good enough":
        assert wrong / draws > 0.02  # the test can fail: certificates are issued, and all are wrong


def clustered(rng: np.random.Generator, questions: int) -> list[LabelledScore]:
    """Return eight replies to each question, all right or all wrong; 10.5 % are wrong."""
    wrong, confidences = rng.random(questions) < 0.105, rng.beta(5, 1, questions)
    return [
        LabelledScore(str(question), float(confidences[question]), not wrong[question], str(n))
        for question in range(questions)
        for n in range(8)
    ]


@pytest.mark.parametrize("draws", DRAWS)
def test_replies_to_one_question_are_one_piece_of_evidence(draws: int) -> None:
    """The guarantee holds if one reply of each question counts, and fails if all do."""
    rng = np.random.default_rng(2)
    drawn = [clustered(rng, 30) for _ in range(draws)]
    honest = [certify(each, MAX_ERROR, CONFIDENCE).threshold for each in drawn]
    assert sum(each is not None for each in honest) / draws <= 1 - CONFIDENCE + noise(draws)
    naive = [
        certify(
            [LabelledScore(f"{r.question}/{r.id}", r.confidence, r.is_correct) for r in each],
            MAX_ERROR,
            CONFIDENCE,
        ).threshold
        for each in drawn[:100]
    ]
    assert sum(each is not None for each in naive) / len(naive) > 0.2


def test_certificates_accept_nearly_what_could_be_accepted() -> None:
    """With 2,000 labels the mean coverage is at least 80 % of the best valid threshold's."""
    risks, rng = CALIBRATED.risks(), np.random.default_rng(3)
    best = max(coverage for coverage, error in risks.values() if error <= MAX_ERROR)
    thresholds = [
        certify(CALIBRATED.labelled(rng, 2_000), MAX_ERROR, CONFIDENCE).threshold
        for _ in range(150)
    ]
    coverages = [0.0 if each is None else risks[each][0] for each in thresholds]
    assert np.mean(coverages) >= 0.8 * best


@pytest.mark.parametrize(("max_error", "labels"), [(0.3, 500), (0.2, 1_000)])
def test_thresholds_that_exist_are_found(max_error: float, labels: int) -> None:
    """Of 30 draws of weakly ranked replies at least 29 prove a threshold."""
    weak = Population(lambda rng, n: rng.beta(3.0, 1.6, n), lambda c: 1 - c)  # AUROC 0.73
    risks, rng = weak.risks(), np.random.default_rng(5)
    best = max(coverage for coverage, error in risks.values() if error <= max_error)
    found = [certify(weak.labelled(rng, labels), max_error).threshold for _ in range(30)]
    coverages = [0.0 if each is None else risks[each][0] for each in found]
    assert sum(each is not None for each in found) >= 29
    assert np.median(coverages) > 2 / 3 * best


def test_a_refusal_says_what_these_labels_would_have_proved() -> None:
    """A refusal states the least error rate that these labels prove."""
    labelled = CALIBRATED.labelled(np.random.default_rng(6), 300)
    needed = certify(labelled, 0.02).needed
    assert needed is not None
    assert needed.provable_error is not None
    proved = certify(labelled, needed.provable_error)
    assert proved.threshold is not None
    assert proved.coverage == pytest.approx(needed.provable_coverage)
    assert certify(labelled, needed.provable_error - 0.01).threshold is None
    nothing = certify(rows((0.9, 0, 50)), 0.05).needed
    assert nothing is not None
    assert nothing.provable_error is None


def test_a_study_certifies_on_half_and_looks_at_the_other_half() -> None:
    """A study certifies on one half and measures errors and coverage on the other."""
    rng = np.random.default_rng(4)
    labelled = [
        LabelledScore(row.question, row.confidence, row.is_correct, f"{row.question}/{n}")
        for row in CALIBRATED.labelled(rng, 1_500)
        for n in range(1 + int(row.question) % 3)
    ]
    found = study(labelled, MAX_ERROR, CONFIDENCE, splits=40)
    assert (found.splits, found.questions) == (40, 1_500)
    assert found.certified > 0.8
    assert found.mean_error is not None
    assert found.mean_error < MAX_ERROR
    assert found.median_coverage is not None
    assert 0.5 * found.best_coverage < found.median_coverage < 1.1 * found.best_coverage
    assert found == study(labelled, MAX_ERROR, CONFIDENCE, splits=40)
    nothing = study(labelled[:20], 0.001, splits=3)
    assert (nothing.certified, nothing.mean_error, nothing.median_coverage) == (0.0, None, None)
