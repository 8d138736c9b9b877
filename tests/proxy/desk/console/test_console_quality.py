"""Figures of the quality page about labels and traffic."""

from __future__ import annotations

import random
from typing import Any

import pytest

from policies import parse_policy
from proxy.config.sections import CalibratorConfig
from proxy.desk.console import quality
from proxy.desk.console.pages import count
from proxy.desk.console.quality import (
    WeightedLabel,
    bands,
    ece,
    over_time,
    tradeoff,
    warnings,
    weight_labels,
)
from proxy.desk.console.views import calibrator_cards, policy_views
from proxy.store.verdicts.statistics import JudgedReply, Sample, SampledExchange, Window


def seen(
    confidence: float | None, weight: float = 1.0, at: int = 0, **facts: Any
) -> SampledExchange:
    fields = dict.fromkeys(SampledExchange._fields) | facts
    return SampledExchange(**(fields | {"at": at, "weight": weight, "confidence": confidence}))


def label(confidence: float, is_correct: bool, stratum: Any = "audited", share: Any = 0.5) -> Any:
    return JudgedReply(confidence, is_correct, stratum, share, "m", None)


def test_a_calibrated_number_lies_on_the_line() -> None:
    """If replies of confidence p are right with probability p, at
    least nine of ten intervals contain p, and the ECE is small.
    """
    rng = random.Random(1)
    drawn = [rng.random() for _ in range(4_000)]
    labels = [WeightedLabel(p, rng.random() < p, 1.0) for p in drawn]
    found = bands(labels)
    inside = sum(band.correct.low <= band.confidence <= band.correct.high for band in found)
    assert len(found) == 10
    assert inside >= 9
    assert (ece(found) or 0) < 0.03


def test_weights_count() -> None:
    """A label that stands for nine replies outweighs one that stands for one."""
    found = bands([WeightedLabel(0.55, True, 9.0), WeightedLabel(0.55, False, 1.0)])
    assert found[0].correct.value == pytest.approx(0.9)
    alike = bands([WeightedLabel(0.55, True, 1.0)] * 9 + [WeightedLabel(0.55, False, 1.0)])
    assert alike[0].correct.value == pytest.approx(0.9)
    assert found[0].correct.low < alike[0].correct.low  # two labels say less than ten


def test_labels_are_scaled_to_what_they_were_drawn_from() -> None:
    """Audited labels are scaled to delivered replies and held ones to held; others are left out."""
    traffic = [seen(0.8, 95.0), seen(0.1, 5.0, review_id="h")]
    labels = [label(0.8, True), label(0.1, False, "held", None), label(0.5, True, "other", None)]
    assert [each.weight for each in weight_labels(labels, traffic)] == [95.0, 5.0]


def test_a_threshold_trades_coverage_for_risk() -> None:
    """Of four replies a day, two of each confidence, 0.5 as threshold delivers half, none wrong."""
    traffic = [seen(0.2), seen(0.2), seen(0.9), seen(0.9)]
    labels = [WeightedLabel(0.9, True, 1.0)] * 20 + [WeightedLabel(0.2, False, 1.0)] * 20
    points = tradeoff(labels, traffic, 4.0)
    low, high, none = points[0], points[50], points[100]
    assert (low.coverage, high.coverage, none.coverage) == (1.0, 0.5, 0.0)
    assert low.risk is not None
    assert low.risk.value == pytest.approx(0.5)
    assert low.errors == pytest.approx(2.0)
    assert high.risk is not None
    assert (high.risk.value, high.errors, high.load) == (0.0, 0.0, 2.0)
    assert high.risk.high > 0.1  # of twenty labels
    assert none.risk is None  # of none


def test_the_risk_is_not_drawn_out_to_where_nobody_looked() -> None:
    """With labels of sure replies alone, no risk is stated for delivering unsure ones."""
    traffic = [seen(0.2), seen(0.9)]
    points = tradeoff([WeightedLabel(0.9, True, 1.0)] * 50, traffic, 2.0)
    assert points[50].risk is not None
    assert points[10].risk is None


def test_too_few_labels_give_no_number() -> None:
    """With fewer labels than the minimum there is no ECE and no risk."""
    labels = [WeightedLabel(0.9, True, 1.0)] * (quality.FEW - 1)
    assert ece(bands(labels)) is None
    assert all(point.risk is None for point in tradeoff(labels, [seen(0.5)], 1.0))


def test_nothing_at_all_is_no_error() -> None:
    """A new installation, without labels or traffic, raises no error."""
    assert bands([]) == []
    assert ece([]) is None
    assert {point.coverage for point in tradeoff([], [], 0.0)} == {0.0}


def test_only_held_labels_come_with_a_warning() -> None:
    """Labels of held replies alone give a warning, as they say little about delivered ones."""
    assert "held" in warnings([label(0.1, True, "held", None)])[0]
    assert (
        "outside the random audit"
        in warnings([label(0.1, True), label(0.1, True, "other", None)])[0]
    )
    assert warnings([label(0.1, True)]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (7.0, "7"), (1_234.0, "1,234"), (6.7, "about 7"), (0.2, "about 1")],
)
def test_counts_are_whole(value: float, text: str) -> None:
    """A count is shown as a whole number; an estimate is marked with `about` and is never 0."""
    assert count(value) == text


def test_means_are_by_slice_and_by_model() -> None:
    """With two models, each has a line beside that of all."""
    window = Window(0, 300, slices=3)
    rows = (seen(0.2, at=0, model="a"), seen(0.6, at=0, model="b"), seen(0.8, at=2, model="a"))
    found = over_time(Sample(window, (2, 0, 1), rows), rows, "model")
    assert {each["name"]: each["values"] for each in found} == {
        "all": [0.4, None, 0.8],
        "a": [0.2, None, 0.8],
        "b": [0.6, None, None],
    }


def test_a_policy_shared_by_teams_is_listed_once() -> None:
    """A policy that is also a team's is listed once, with the teams' names."""
    policy = parse_policy("version: 1\nname: desk\nrules: []\ndefault: deliver\n", "desk.yaml")
    row = seen(0.9, policy=f"desk/default@{policy.digest}", action="deliver")
    views, others = policy_views([policy, policy], [row], {"a": policy.digest, "b": "x"})
    assert [(view.name, view.is_default, view.rules[-1].count) for view in views] == [
        ("desk", True, 1.0)
    ]
    assert [view.teams for view in views] == [("a",)]
    assert others == []


def test_a_card_has_what_the_calibrator_was_measured_at() -> None:
    """A calibrator's card has its measures by their usual names, with four decimals."""
    measured = [c for c in calibrator_cards(CalibratorConfig()) if c.title.startswith("Measured")]
    assert [card.title for card in measured] == [
        *("Measured without the model's name", "Measured with the model's name")
    ]
    for card in measured:
        facts = dict(card.facts)
        assert [*facts] == ["AUROC", "Brier", "ECE", "Rows"]
        assert 0.8 < float(facts["AUROC"]) < 0.95
        assert int(facts["Rows"].replace(",", "")) > 1_000
