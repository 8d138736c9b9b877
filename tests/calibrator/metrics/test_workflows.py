"""The paper's production workflows and cost tables, on rows whose figures are known."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_curve

from calibrator import Outcome, workflow_report
from calibrator.metrics.workflows import (
    ROBO_ADVISOR,
    TELEHEALTH,
    Tier,
    by_model,
    error_detection,
    gate,
    harm,
    model_selection,
    review_table,
    reviews_for,
    tier_cost,
    tiers,
    widest_gate,
)


def drawn(count: int, seed: int = 0, digits: int = 2) -> list[Outcome]:
    """Return replies that are right as often as their confidence states, with ties."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        confidence = round(rng.betavariate(0.7, 0.6), digits)
        is_right = rng.random() < confidence
        rows.append(Outcome(confidence, is_right, f"m{n % 3}", f"q{n // 3}"))
    return rows


@pytest.mark.parametrize("digits", [1, 4])
def test_error_detection_is_scikit_learns(digits: int) -> None:
    """AUPRC and best F1 of error detection are scikit-learn's, with ties (O01, H08, H09)."""
    rows = drawn(700, digits=digits)
    wrong = np.array([not row.is_correct for row in rows])
    doubt = np.array([1 - row.confidence for row in rows])
    found = error_detection(rows)
    assert found.auprc == pytest.approx(average_precision_score(wrong, doubt))
    precision, recall, _ = precision_recall_curve(wrong, doubt)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert found.f1 == pytest.approx(f1.max())
    flagged = [row for row in rows if row.confidence <= found.threshold]
    true = sum(not row.is_correct for row in flagged)
    assert found.f1 == pytest.approx(2 * true / (len(flagged) + wrong.sum()))


ROWS = [
    Outcome(confidence, is_correct)
    for confidence, is_correct in [
        (0.1, False),
        (0.2, False),
        (0.3, True),
        (0.5, False),
        (0.6, True),
        (0.8, True),
        (0.85, True),
        (0.9, False),
        (0.95, True),
        (0.99, True),
    ]
]


def test_a_gate_has_coverage_error_and_catch() -> None:
    """A gate has coverage, error and the share of errors that it stops (Q02)."""
    found = gate(ROWS, 0.8)
    assert (found.coverage, found.error, found.catch) == (0.4, 0.25, 0.75)
    assert math.isnan(gate(ROWS, 0.99).error)


def test_the_widest_gate_keeps_the_error_rate() -> None:
    """The widest gate has the most coverage within the error rate (O03)."""
    found = widest_gate(ROWS, 0.2)
    assert (found.coverage, found.error) == (0.6, pytest.approx(1 / 6))
    assert found.threshold == 0.5
    assert gate(ROWS, found.threshold) == found
    assert widest_gate(ROWS, 0.5).coverage == 1.0
    nothing = widest_gate([Outcome(0.9, False)], 0.1)
    assert (nothing.coverage, nothing.catch) == (0.0, 1.0)


def test_the_widest_gate_is_the_widest() -> None:
    """No other threshold within the error rate passes more replies."""
    rows = drawn(300)
    for max_error in (0.05, 0.1, 0.3):
        valid = [g for t in range(-1, 100) if (g := gate(rows, t / 100)).error <= max_error]
        assert widest_gate(rows, max_error).coverage == max(g.coverage for g in valid)


def test_reviews_are_counted_from_the_least_sure() -> None:
    """Reviews for an accuracy are counted from the least sure, and by lot (O04)."""
    found = reviews_for(ROWS, 0.9)
    assert (found.system, found.delivered) == (0.4, 0.8)
    assert found.random == pytest.approx(0.75)
    assert reviews_for([Outcome(0.5, True)], 0.95) == reviews_for([Outcome(0.1, True)], 0.95)
    assert reviews_for([Outcome(0.5, True)], 0.95).system == 0.0


def test_tiers_hold_every_reply_once() -> None:
    """Green, yellow and red tiers contain each reply once (O05, H12, Q07)."""
    green, yellow, red = tiers(ROWS)
    assert green == Tier("green", 0.4, 0.75, 0.25, 4, 1)
    assert yellow == Tier("yellow", 0.3, pytest.approx(2 / 3), 0.25, 3, 1)
    assert red == Tier("red", 0.3, pytest.approx(1 / 3), 0.5, 3, 2)


def test_costs_are_the_papers_examples() -> None:
    """The costs equal those in the paper's examples.

    All by hand it is 25,150 and 96,500 dollars; the tables' tiers give 12,998 and about 61,470
    (Q04, Q08; the paper prints 11,654 and 60,244, see V31 and V32).
    """

    def routed(*counts: int) -> tuple[Tier, Tier, Tier]:
        green, yellow, red = (Tier("", 0, 0, 0, count, 0) for count in counts)
        return green, yellow, red

    assert tier_cost(routed(342, 251, 413), TELEHEALTH) == (pytest.approx(12_998, abs=10), 25_150)
    cost, manual = tier_cost(routed(579, 212, 1_139), ROBO_ADVISOR)
    assert (cost, manual) == (pytest.approx(61_470, abs=100), 96_500)


def test_the_review_table_adds_up() -> None:
    """The review table counts caught and missed errors among the least sure (Q06)."""
    table = review_table(ROWS, [0.0, 0.2, 0.5, 1.0])
    assert [(each.caught, each.slipped) for each in table] == [(0, 4), (2, 2), (3, 1), (4, 0)]


def test_harm_is_errors_at_both_ends() -> None:
    """Harm has errors above 0.8 and below 0.5, and reviews for each error (Q03)."""
    found = harm(ROWS, reviews=4)
    assert (found.errors, found.confident, found.unconfident) == (4, 1, 2)
    assert found.nnr == pytest.approx(4 / 3)
    assert harm([Outcome(0.5, True)]).nnr == math.inf


def test_the_surest_of_several_models_is_chosen() -> None:
    """The surest of several models is chosen on questions that all answered (P02)."""
    rows = [
        Outcome(0.9, True, "a", "1"),
        Outcome(0.3, False, "b", "1"),
        Outcome(0.2, False, "a", "2"),
        Outcome(0.8, True, "b", "2"),
        Outcome(0.2, False, "a", "3"),
    ]
    assert model_selection(rows, ["a", "b"]) == (1.0, 0.5)
    assert all(math.isnan(each) for each in model_selection(rows, []))


def test_rows_are_grouped_by_model() -> None:
    """Replies are grouped by model, in order of names (O06)."""
    groups = by_model(drawn(300))
    assert {name: len(rows) for name, rows in groups.items()} == {"m0": 100, "m1": 100, "m2": 100}


def test_the_report_has_every_table_beside_the_papers_figures() -> None:
    """The report has every table beside the paper's figures."""
    report = "\n".join(workflow_report(drawn(900)))
    for part in ("m1", "paper, three models", "0.867", "Q02", "Q03", "Q06", "11,654", "60,244"):
        assert part in report
    assert "The surest of m0, m1, m2" in report
    assert "nan" not in report.replace("finance", "")
    assert workflow_report([]) == ["no labelled replies"]
    assert workflow_report([Outcome(0.5, True)])
