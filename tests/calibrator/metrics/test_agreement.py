"""Agreement between reviewers, compared with published examples and scikit-learn."""

from __future__ import annotations

import math
import random

import pytest
from sklearn.metrics import cohen_kappa_score

from calibrator.metrics.agreement import Label, agreement_of


def test_krippendorffs_own_binary_example() -> None:
    """Alpha is 0.095 for Krippendorff's binary example (2011, section B)."""
    meg, owen = "0100000000", "1110010010"
    labels = [Label(str(n), "meg", a == "1") for n, a in enumerate(meg)]
    labels += [Label(str(n), "owen", a == "1") for n, a in enumerate(owen)]
    found = agreement_of(labels)
    assert found.alpha == pytest.approx(0.095, abs=0.001)
    assert found.raw == pytest.approx(0.6)
    assert found.replies == 10


def test_kappa_is_scikit_learns() -> None:
    """Kappa of each pair of reviewers is scikit-learn's, on replies that both labelled."""
    rng = random.Random(1)
    labels = [
        Label(str(n), who, rng.random() < 0.7)
        for n in range(60)
        for who in ("ann", "bob", "eve")
        if rng.random() < 0.7
    ]
    by_reviewer = {(each.reply, each.reviewer): each.is_correct for each in labels}
    for pair in agreement_of(labels).pairs:
        names = (pair.first, pair.second)
        both = [str(n) for n in range(60) if all((str(n), who) in by_reviewer for who in names)]
        first, second = ([by_reviewer[n, who] for n in both] for who in names)
        assert pair.replies == len(both)
        assert pair.kappa == pytest.approx(cohen_kappa_score(first, second))


def test_undefined_figures_are_nan() -> None:
    """Without a reply with two labels, or with labels of one kind, a figure is NaN."""
    alone = agreement_of([Label("1", "ann", True), Label("2", "bob", False)])
    assert alone.replies == 0
    assert math.isnan(alone.raw)
    alike = agreement_of([Label("1", "ann", True), Label("1", "bob", True)])
    assert alike.raw == 1.0
    assert math.isnan(alike.alpha)
    assert math.isnan(alike.pairs[0].kappa)


def test_the_last_label_of_a_reviewer_counts() -> None:
    """Only the last label of a reviewer on a reply counts."""
    labels = [Label("1", "ann", False), Label("1", "bob", True), Label("1", "ann", True)]
    labels += [Label("2", "ann", False), Label("2", "bob", False)]
    assert agreement_of(labels).alpha == 1.0
