"""Fitting recalibrations, and the gain of a hundred labels (paper I03, K15, N01-N05)."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression

from calibrator import CheckpointError, FakeScorer, Item
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import auroc, ece
from calibrator.recalibration.curves import (
    Isotonic,
    Kind,
    Platt,
    Recalibration,
    fit_platt,
    load_named,
    logit,
    recalibration_of,
    sigmoid,
)
from calibrator.recalibration.fit import (
    FIT,
    MIN_GROUP_LABELS,
    SLOPE_BEFORE,
    TRUST,
    LabelledConfidences,
    apply_to_groups,
    cross_fitted,
    fit_isotonic,
    fit_observed,
    fit_recalibration,
    fit_temperature,
    observed_rows,
)
from calibrator.recalibration.recalibrated_scorer import RecalibratedScorer
from calibrator.recalibration.study import LABELS, mean_of, study
from calibrator.recalibration.versions import Recalibrations
from calibrator.rows.rows import Row, parse_row

KINDS: list[Kind] = ["platt", "isotonic", "temperature"]

replies = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 10).map(lambda k: k / 10)), min_size=1, max_size=40
)


def apply_to_rows(found: Recalibration, rows: list[Row], confidence: Any) -> Any:
    """Return the rows' confidences, recalibrated."""
    groups = observed_rows(rows, confidence, found.by).groups
    return apply_to_groups(found, groups, confidence)


def skewed(count: int, seed: int = 3, shift: float = -1.5, **names: str) -> tuple[list[Row], Any]:
    """Return rows and confidences that are off by `shift` on the logit, too sure if negative."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.98, count)
    y = (rng.random(count) < sigmoid(logit(p) + shift)).astype(int)
    rows = [
        parse_row(
            {"id": f"{seed}-{n}", "question": f"{seed} {n}", "response": "x", "correct": int(y[n])}
            | names
        )
        for n in range(count)
    ]
    return rows, p


# --- curves -------------------------------------------------------------------------------------


@given(replies)
def test_isotonic_is_sklearns(rows: list[tuple[int, float]]) -> None:
    """An isotonic curve is scikit-learn's, between and beyond its knots (I03)."""
    y, p = zip(*rows, strict=True)
    other = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip").fit(p, y)
    curve = fit_isotonic(y, p)
    at = np.linspace(0, 1, 37)
    assert [curve.apply(x) for x in at] == pytest.approx(other.predict(at))


@pytest.mark.parametrize("factor", [0.4, 1 / 1.34, 1.0, 2.5])
def test_temperature_is_the_most_likely_factor(factor: float) -> None:
    """The temperature is the likeliest factor, as found by scipy (K15)."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.02, 0.98, 20_000)
    y = (rng.random(20_000) < sigmoid(factor * logit(p))).astype(int)

    def loss(scale: float) -> float:
        q = sigmoid(scale * logit(p))
        return -float(np.mean(y * np.log(q) + (1 - y) * np.log(1 - q)))

    curve = fit_temperature(y, p)
    assert curve.intercept == 0.0
    assert curve.slope == pytest.approx(minimize_scalar(loss, bounds=(0.01, 10)).x, rel=1e-3)
    assert curve.slope == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=replies)
def test_every_curve_rises_within_bounds(kind: Kind, rows: list[tuple[int, float]]) -> None:
    """No curve falls or leaves [0, 1], on any labels (N04)."""
    y, p = zip(*rows, strict=True)
    curve = FIT[kind](y, p)
    found = [curve.apply(x) for x in np.linspace(0, 1, 21)]
    assert all(0 <= one <= 1 for one in found)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(found))


def test_platt_and_temperature_keep_the_ranking_and_isotonic_makes_ties() -> None:
    """Platt and temperature keep the AUROC; isotonic makes ties (N04)."""
    rows, p = skewed(500)
    y = [row.correct for row in rows]
    mended = {kind: [FIT[kind](y, p).apply(x) for x in p] for kind in KINDS}
    assert auroc(y, mended["platt"]) == auroc(y, mended["temperature"]) == auroc(y, p)
    assert len(set(mended["isotonic"])) < len(set(p))


def test_a_score_that_is_right_is_left_nearly_alone() -> None:
    """On calibrated scores the fit with trust errs less than maximum likelihood (N01)."""
    errors: dict[str, list[float]] = {"trusting": [], "plain": []}
    for seed in range(40):
        rows, p = skewed(100, seed, shift=0.0)
        y = [row.correct for row in rows]
        at = np.linspace(0.05, 0.95, 50)
        for name, curve in (("trusting", FIT["platt"](y, p)), ("plain", fit_platt(y, p))):
            errors[name].append(float(np.mean((curve.apply_all(at) - at) ** 2)))
    assert np.mean(errors["trusting"]) < 0.6 * np.mean(errors["plain"])


def test_scores_that_are_too_sure_are_mended_on_few_labels() -> None:
    """On scores that are too sure a prior that expects it errs less (N01).

    The scores have a slope of 0.75, as those of an unseen model, and 100 labels.
    """
    errors: dict[float, list[float]] = {SLOPE_BEFORE: [], 1.0: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = sigmoid(rng.normal(0, 1.5, 100))
        y = (rng.random(100) < sigmoid(0.75 * logit(p))).astype(int)
        at = np.linspace(0.05, 0.95, 50)
        for before, found in errors.items():
            curve = fit_platt(y, p, trust=TRUST, slope_before=before)
            found.append(float(np.mean((curve.apply_all(at) - sigmoid(0.75 * logit(at))) ** 2)))
    assert FIT["platt"](y, p) == fit_platt(y, p, trust=TRUST, slope_before=SLOPE_BEFORE)
    assert np.mean(errors[SLOPE_BEFORE]) < 0.9 * np.mean(errors[1.0])


def test_many_labels_outweigh_trust() -> None:
    """With thousands of labels the prior hardly counts."""
    rows, p = skewed(20_000)
    y = [row.correct for row in rows]
    trusting, plain = FIT["platt"](y, p), fit_platt(y, p)
    assert isinstance(trusting, Platt)
    assert trusting.slope == pytest.approx(plain.slope, abs=0.01)
    assert trusting.intercept == pytest.approx(plain.intercept, abs=0.01)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_recalibration_survives_its_file(kind: Kind, tmp_path: Path) -> None:
    """A recalibration survives its file, with the same confidences and name."""
    rows, p = skewed(200, model="M-One")
    found = fit_recalibration(rows, p, kind=kind, by="model", calibrator="tiny@1")
    found.save(tmp_path / "r.json")
    again = load_named(tmp_path / "r.json", recalibration_of)
    assert again == found
    assert again.name == found.name
    assert found.name.startswith(f"{kind}@")
    assert list(again.groups) == ["m-one"]
    assert apply_to_rows(again, rows, p) == pytest.approx(apply_to_rows(found, rows, p), abs=0)


def test_the_name_changes_with_the_numbers() -> None:
    """Recalibrations that differ in any number have different names."""
    one = Recalibration("platt", Platt(1.0, 0.5), labels=100)
    others = [
        Recalibration("platt", Platt(1.0, 0.51), labels=100),
        Recalibration("platt", Platt(1.0, 0.5), by="model", groups={"m": Platt()}, labels=100),
        Recalibration("platt", Platt(1.0, 0.5), labels=101),
    ]
    assert len({one.name, *(other.name for other in others)}) == 4
    assert one.name == Recalibration("platt", Platt(1.0, 0.5), labels=100).name


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('"slope": ', '"slope": 1'), "was changed by hand or is damaged"),
        (('"labels": 200', '"labels": 300'), "was changed by hand or is damaged"),
        (('"format": 1', '"format": 2'), "format 2, this version reads 1"),
        (('"kind": "platt",\n "cal', '"kind": "beta",\n "cal'), "kind 'beta'"),
        (('"by": null', '"by": "day"'), "by 'day'"),
        (('"pooled"', '"polled"'), "'pooled'"),
        (('"slope": ', '"slope": -'), "positive slope"),
        (("}", ""), "no recalibration of this version"),
    ],
)
def test_a_changed_file_is_refused(change: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    """A file that was changed or damaged is refused with its name."""
    rows, p = skewed(200)
    path = tmp_path / "r.json"
    fit_recalibration(rows, p).save(path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(CheckpointError, match=r"r\.json") as caught:
        load_named(path, recalibration_of)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"scores": [], "confidences": []},
        {"scores": [0.1, 0.2], "confidences": [0.1]},
        {"scores": [0.2, 0.1], "confidences": [0.1, 0.2]},
        {"scores": [0.1, 0.2], "confidences": [0.2, 0.1]},
        {"scores": [0.1, 0.2], "confidences": [0.1, 1.2]},
        {"scores": [0.1, math.nan], "confidences": [0.1, 0.2]},
        {"scores": [0.1, "x"], "confidences": [0.1, 0.2]},
        {"scores": 5},
        {},
    ],
)
def test_a_damaged_isotonic_curve_is_refused(values: Any) -> None:
    """Knots of an isotonic curve that do not rise within [0, 1] are refused."""
    with pytest.raises(CheckpointError, match="recalibration"):
        Isotonic.from_dict({"kind": "isotonic", **values})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A missing file is refused in one sentence."""
    with pytest.raises(CheckpointError, match=r"there is no recalibration .*none\.json"):
        load_named(tmp_path / "none.json", recalibration_of)


# --- fitting ------------------------------------------------------------------------------------


def test_groups_with_labels_enough_have_their_own_curve() -> None:
    """Groups with enough labels have their own curve, others the pooled one."""
    (first, p), (second, q) = skewed(80, 1, -2.0, model="low"), skewed(80, 2, 2.0, model="high")
    rare, r = skewed(MIN_GROUP_LABELS - 1, 3, 0.0, model="rare")
    found = fit_recalibration([*first, *second, *rare], np.concatenate([p, q, r]), by="model")
    assert set(found.groups) == {"low", "high"}
    assert found.apply(0.5, "LOW") < 0.25 < 0.75 < found.apply(0.5, "high")
    assert found.apply(0.5, "rare") == found.apply(0.5, None) == found.pooled.apply(0.5)


def test_domains_go_by_the_rows_domain() -> None:
    """Curves by domain depend on the domain alone (N05)."""
    (first, p), (second, q) = skewed(80, 1, -2.0, domain="law"), skewed(80, 2, 2.0, domain="math")
    found = fit_recalibration([*first, *second], np.concatenate([p, q]), by="domain")
    mended = apply_to_rows(found, [*first, *second], np.full(160, 0.5))
    assert mended[0] < 0.25 < 0.75 < mended[-1]


@pytest.mark.parametrize(
    ("count", "label", "sentence"),
    [
        (0, 0, "0 labelled rows are too few"),
        (19, 0, "19 labelled rows are too few for a recalibration: 20 is the least"),
        (50, 0, "all 50 rows are wrong: a recalibration needs both kinds"),
        (50, 1, "all 50 rows are correct: a recalibration needs both kinds"),
    ],
)
def test_too_few_labels_are_refused(count: int, label: int, sentence: str) -> None:
    """Too few labels, or labels of one kind, are refused with the number needed."""
    rows, p = skewed(count)
    rows = [parse_row({**row.raw, "correct": label}) for row in rows]
    with pytest.raises(JudgingError, match=sentence):
        fit_recalibration(rows, p)


def test_cross_fitting_never_sees_a_rows_own_question() -> None:
    """Cross-fitting does not use a row's own question."""
    rows, p = skewed(300)
    mended = cross_fitted(rows, p)
    turned = [parse_row({**rows[0].raw, "correct": 1 - (rows[0].correct or 0)}), *rows[1:]]
    again = cross_fitted(turned, p)
    assert again[0] == mended[0]
    assert (again != mended).any()
    y = [row.correct for row in rows]
    assert ece(y, mended) < 0.5 * ece(y, p)


def test_a_recalibrated_scorer_changes_the_confidence_alone() -> None:
    """A recalibrated scorer changes the confidence and the name, not the raw score."""
    by_model = Recalibration("platt", Platt(), "model", {"m": Platt(1.0, 1.0)})
    by_domain = Recalibration("platt", Platt(), "domain", {"law": Platt(1.0, -1.0)})
    item = Item("q", "a", "M", domain="Law")
    for recalibration, expected in ((by_model, sigmoid(1.0)), (by_domain, sigmoid(-1.0))):
        scorer = RecalibratedScorer(FakeScorer(0.5), Recalibrations(recalibration))
        (score,) = scorer.score_batch([item])
        assert (score.score, score.confidence) == (0.5, pytest.approx(float(expected)))
        assert scorer.name == f"fake:0.5+{recalibration.name}"


# --- the protocol -------------------------------------------------------------------------------


def test_a_hundred_labels_mend_an_overconfident_calibrator() -> None:
    """Fitted on 100 labels, every curve lowers the ECE of other rows (N01, N02)."""
    rows, p = skewed(1_500, model="new")
    (found,) = study(rows, p, "model")
    assert (found.group, found.rows) == ("new", 1_500)
    assert found.ece > 0.2
    assert found.ece_platt < 0.4 * found.ece
    assert found.ece_isotonic < 0.5 * found.ece
    assert found.brier_platt < found.brier
    assert 0 < found.ece_floor < found.ece_platt
    assert found.auroc == pytest.approx(auroc([r.correct for r in rows], p), abs=0.01)


def test_temperature_alone_does_not_mend_a_shift() -> None:
    """A temperature alone does not mend a shift as Platt does (K15)."""
    rows, p = skewed(1_000, model="new")
    (found,) = study(rows, p, "model")
    assert found.ece_platt < 0.6 * found.ece_temperature


def test_the_protocol_judges_on_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol fits on about 100 labels and judges on other questions (N01, D04)."""
    rng = np.random.default_rng(0)
    rows = [
        parse_row(
            {
                "question": f"{n // 5}",
                "response": "x",
                "correct": int(rng.integers(2)),
                "benchmark": "b",
            }
        )
        for n in range(400)
    ]
    p = np.array([(n // 5) / 100 + (n % 5) / 1_000 for n in range(400)])  # identifies the question
    fitted: list[Any] = []
    original = FIT["platt"]

    def spy(correct: Any, scores: Any) -> Any:
        fitted.append(np.round(np.asarray(scores) * 100 - 0.2).astype(int))
        return original(correct, scores)

    monkeypatch.setitem(FIT, "platt", spy)  # type: ignore[arg-type]
    study(rows, p, "benchmark")
    assert len(fitted) == 25
    for questions in fitted:
        assert LABELS <= len(questions) < LABELS + 5
        assert all((questions == one).sum() == 5 for one in set(questions))


def test_groups_too_small_for_the_protocol_are_left_out() -> None:
    """Groups of fewer than 200 rows, or of one label, are left out of the study."""
    (small, p), (large, q) = skewed(150, 1, model="small"), skewed(400, 2, model="large")
    found = study([*small, *large], np.concatenate([p, q]), "model")
    assert [one.group for one in found] == ["large"]
    assert mean_of(found).ece == found[0].ece
    assert math.isnan(mean_of([]).ece)
    one_label = [parse_row({**row.raw, "correct": 1}) for row in large]
    assert study(one_label, q, "model") == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_of_weight_two_counts_as_two(kind: Kind) -> None:
    """A reply of weight two counts like two replies."""
    rng = np.random.default_rng(8)
    p = rng.uniform(0.05, 0.95, 120)
    y = (rng.random(120) < p**2).astype(np.int64)
    counts = rng.integers(1, 4, 120)
    often = FIT[kind](np.repeat(y, counts), np.repeat(p, counts))
    weighed = FIT[kind](y, p, counts.astype(float))
    grid = np.linspace(0.01, 0.99, 50)
    assert weighed.apply_all(grid) == pytest.approx(often.apply_all(grid), abs=1e-6)


def test_the_scale_of_weights_does_not_matter() -> None:
    """Multiplying all weights changes nothing."""
    rows, p = skewed(100)
    found = observed_rows(rows, p)
    scaled = LabelledConfidences(
        found.correct, p, found.groups, found.clusters, found.weights * 100
    )
    assert fit_observed(scaled).pooled.as_dict() == pytest.approx(
        fit_observed(found).pooled.as_dict(), abs=1e-9
    )


def test_a_platt_curve_can_be_undone() -> None:
    """A Platt curve can be undone for each group, an isotonic one cannot."""
    found = Recalibration("platt", Platt(0.5, 1.0), "team", {"law": Platt(2.0, -1.0)})
    for team in ("law", None):
        mended = found.apply_to(0.3, "m", None, team)
        assert found.undo(mended, "m", None, team) == pytest.approx(0.3)
    assert Recalibration("isotonic", Isotonic((0.1,), (0.2,))).undo(0.2, None, None) is None
