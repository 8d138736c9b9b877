"""A judge and log-probabilities beside a confidence: useful if present, unbiased if absent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator import CheckpointError, Item, load_scorer, provenance
from calibrator.errors import JudgingError
from calibrator.loading import recalibrate_scorer
from calibrator.metrics.metrics import auroc, brier
from calibrator.recalibration.signals import (
    LabelledSignals,
    SignalWeights,
    confidences,
    fit_signals,
    weigh_replies,
)
from calibrator.recalibration.versions import RecalibrationVersions, resolve_recalibrations
from calibrator.scorer import NO_SIGNALS, Signals, knows_others, knows_signals, without_signals
from tests.builders.labelled_rows import JUDGE, IsThere, half, mostly_where_hard
from tests.builders.labelled_rows import signalled_replies as replies
from tests.running.live_proxy import HearingScorer

KINDS = [(), ("logprobs",), (f"judge {JUDGE}",), (f"judge {JUDGE}", "logprobs")]


def labels_of(found: list[LabelledSignals]) -> Any:
    return np.array([int(each.is_correct) for each in found])


@pytest.mark.parametrize(
    "is_judged", [half, pytest.param(mostly_where_hard, marks=pytest.mark.slow)]
)
def test_absence_has_no_bias(is_judged: IsThere) -> None:
    """A missing signal causes no bias.

    Half of the replies lack each signal: a number without any is unchanged, and the mean of every
    combination is the share of right ones, even if absence depends on difficulty.
    """
    weights = fit_signals(replies(4_000, 1, is_judged))
    judged = replies(40_000, 2, is_judged)
    for kinds in KINDS:
        group = [each for each in judged if each.signals.kinds == kinds]
        before, after = confidences(group), weigh_replies(weights, group)
        assert len(group) > 4_000
        if kinds:
            assert after.mean() == pytest.approx(labels_of(group).mean(), abs=0.02)
            assert brier(labels_of(group), after) < brier(labels_of(group), before) - 0.03
            assert auroc(labels_of(group), after) > auroc(labels_of(group), before) + 0.05
        else:
            assert (after == before).all()
    silent = [each for each in judged if not each.signals.kinds]
    if is_judged is half:  # then the number without signals is unbiased too
        assert confidences(silent).mean() == pytest.approx(labels_of(silent).mean(), abs=0.02)


def test_absence_moves_no_number_whatever_the_others_are() -> None:
    """The signals of other replies do not change a reply that lacks them."""
    one, other = replies(2_000, 1), replies(2_000, 1)
    for at, each in enumerate(other):
        if each.signals.judged is not None:
            moved = replace(each.signals, judged=1 - each.signals.judged)
            other[at] = replace(each, signals=moved)
    without = Signals(logprobs=(-0.3, -2.0))
    found = [fit_signals(each).weigh(0.6, "words@1", without) for each in (one, other)]
    assert found[0] == found[1]


def test_a_number_says_what_it_knows() -> None:
    """A version names its signals and a hash of their weights."""
    every = replies(800, 1) + replies(800, 2, calibrator="words@1+opinion@1")
    weights = fit_signals(every)
    assert weights.calibrator == "words@1"
    names = list(weights.names())
    assert len(set(names)) == 6
    for each in every:
        found = weights.weigh(each.confidence, each.calibrator, each.signals)
        if found is None:
            assert not each.signals.kinds
            continue
        assert found.calibrator in names
        assert without_signals(found.calibrator) == each.calibrator
        assert knows_signals(found.calibrator)
        assert knows_others(found.calibrator) == (each.calibrator != "words@1")
        known = "-".join(kind.split()[0] for kind in each.signals.kinds)
        assert f"+{known}@" in found.calibrator


@pytest.mark.parametrize(
    ("calibrator", "judge"),
    [("words@2", JUDGE), ("words@1", "gpt-6"), ("words@1", f"{JUDGE} in words")],
)
def test_other_numbers_and_other_judges_are_not_weighed(calibrator: str, judge: str) -> None:
    """Another calibrator, judge or way of judging gets no weights."""
    weights = fit_signals(replies(800, 1))
    assert weights.weigh(0.6, calibrator, Signals(0.9, judge)) is None
    assert weights.weigh(0.6, "words@1", NO_SIGNALS) is None


def test_too_few_with_both_are_weighed_by_the_judge_alone() -> None:
    """With too few labels of a combination the judge alone counts."""
    few = [
        each for at, each in enumerate(replies(800, 1)) if len(each.signals.kinds) < 2 or at % 8 < 1
    ]
    weights = fit_signals(few)
    assert sorted(weights.curves["words@1"]) == [f"judge {JUDGE}", "logprobs"]
    both = weights.weigh(0.6, "words@1", Signals(0.9, JUDGE, (-0.1, -1.0)))
    assert both == weights.weigh(0.6, "words@1", Signals(0.9, JUDGE))
    with pytest.raises(JudgingError, match="50 with the same ones are the least"):
        fit_signals(few[:60])


def test_a_judge_that_knows_nothing_moves_little() -> None:
    """A judge without knowledge moves the number by less than 0.3."""
    rng = np.random.default_rng(0)
    noise = [replace(each, signals=Signals(float(rng.random()), JUDGE)) for each in replies(100, 1)]
    weights = fit_signals(noise)
    low, high = (weights.weigh(0.6, "words@1", Signals(p, JUDGE)) for p in (0.01, 0.99))
    assert low is not None
    assert high is not None
    assert abs(high.confidence - low.confidence) < 0.3


def test_the_number_never_falls_as_the_one_before_rises() -> None:
    """The number never falls as the one before rises, on any labels."""
    turned = [replace(each, confidence=1 - each.confidence) for each in replies(3_000, 1)]
    for curve in fit_signals(turned).curves["words@1"].values():
        assert curve.slope >= 0


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def weights() -> SignalWeights:
    return fit_signals(replies(800, 1) + replies(800, 2, calibrator="words@1+opinion@1"))


def test_a_file_keeps_every_number(weights: SignalWeights, tmp_path: Path) -> None:
    """Weights survive their file."""
    weights.save(tmp_path / "w.json")
    found = resolve_recalibrations(tmp_path / "w.json")
    assert (found.signals, found.alone, found.with_others) == (weights, None, None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": 7}, "was changed by hand or is damaged"),
        (
            {"curves": {"words@1": {"logprobs": {"slope": 1, "intercept": 0, "weights": [1]}}}},
            "2 w",
        ),
        ({"curves": []}, "is no recalibration of this version"),
        ({"format": 2}, "is no recalibration of this version"),
    ],
)
def test_a_damaged_file_is_refused(
    weights: SignalWeights, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    """A damaged file is refused in one sentence with its name."""
    weights.save(path := tmp_path / "w.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=sentence):
        resolve_recalibrations(path)


def test_a_folder_promotes_them_beside_curves(weights: SignalWeights, tmp_path: Path) -> None:
    """A folder promotes weights beside curves, and rolls them back alone."""
    versions = RecalibrationVersions(tmp_path)
    change = versions.promote(weights, {"labels": 3})
    assert (change.of, versions.current("signals")) == ("signals", weights)
    assert versions.all() == []
    assert resolve_recalibrations(tmp_path / "current").signals == weights
    assert versions.roll_back("signals").after is None
    assert not resolve_recalibrations(tmp_path / "current")
    assert [each.of for each in versions.history()] == ["signals", "signals"]


def test_a_scorer_weighs_its_own_signals(weights: SignalWeights, tmp_path: Path) -> None:
    """A scorer weighs signals under its own name and keeps the number without them."""
    weights.save(tmp_path / "w.json")
    scorer = recalibrate_scorer(HearingScorer(), tmp_path / "w.json")
    signals = Signals(0.95, JUDGE)
    items = [Item("?", "Paris p=0.6"), Item("?", "Paris p=0.6", signals=signals)]
    plain, moved = scorer.score_batch(items)
    assert (plain.confidence, plain.unaided, provenance(scorer, plain)) == (0.6, None, "words@1")
    assert moved.unaided == 0.6
    expected = weights.weigh(0.6, "words@1", signals)
    assert expected is not None
    assert (moved.confidence, provenance(scorer, moved)) == (
        expected.confidence,
        expected.calibrator,
    )
    weights = replace(weights, calibrator="fake:0.5")
    weights.save(tmp_path / "other.json")
    with pytest.raises(CheckpointError, match=r"were fitted for fake:0\.5"):
        recalibrate_scorer(HearingScorer(), tmp_path / "other.json")
    with pytest.raises(CheckpointError, match="were fitted for words@1"):
        load_scorer("fake:0.5", recalibration=tmp_path / "w.json")
