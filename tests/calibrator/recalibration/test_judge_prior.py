"""A judge's word before labels: it counts with a modest prior, which the version names."""

from __future__ import annotations

import pytest

from calibrator.recalibration.curves import log_odds
from calibrator.recalibration.judge_prior import RIGHT, SURE, WORTH, prior_shift, weigh_by_prior
from calibrator.scorer import Signals, has_prior, knows_signals, without_signals


def test_a_certain_judge_counts_as_its_accuracy_says() -> None:
    """At a confidence of one half a sure judge gives the published judges' mean accuracy."""
    assert pytest.approx(0.682, abs=5e-4) == RIGHT
    wrong = 1 - RIGHT
    for judged, expected in ((1.0, RIGHT), (SURE, RIGHT), (0.5, 0.5), (0.1, wrong), (0.0, wrong)):
        weighed = weigh_by_prior(0.5, "embedded@1", Signals(judged, "gpt"))
        assert weighed is not None
        assert weighed.confidence == pytest.approx(expected)


def test_the_shift_is_bounded_and_never_falls() -> None:
    """The shift rises with the judge's word and is at most `WORTH`."""
    shifts = [prior_shift(at / 100) for at in range(101)]
    assert shifts == sorted(shifts)
    assert (min(shifts), max(shifts)) == (-WORTH, WORTH)


def test_it_adds_to_the_log_odds_of_any_number() -> None:
    """The shift is added to the log-odds, also near certainty."""
    weighed = weigh_by_prior(0.99, "embedded@1", Signals(0.1, "gpt"))
    assert weighed is not None
    assert log_odds(weighed.confidence) == pytest.approx(log_odds(0.99) - WORTH)


def test_the_name_says_that_it_is_a_prior() -> None:
    """The version ends with the prior, and can be had without it."""
    weighed = weigh_by_prior(0.5, "embedded@1+platt@2", Signals(0.9, "gpt", (-0.1, -0.2)))
    assert weighed is not None
    assert weighed.kinds == ("judge gpt",)
    assert weighed.calibrator.startswith("embedded@1+platt@2+judge-prior@")
    assert knows_signals(weighed.calibrator)
    assert has_prior(weighed.calibrator)
    assert not has_prior("embedded@1+judge@9c1d02ab")
    assert without_signals(weighed.calibrator) == "embedded@1+platt@2"


def test_without_a_judge_there_is_none() -> None:
    """Log-probabilities without a judge change nothing before labels."""
    assert weigh_by_prior(0.5, "embedded@1", Signals(logprobs=(-0.1, -0.2))) is None
