"""Distances from known texts, and the confidence that they temper."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.embedded.parts import Familiarity, fit_familiarity, temper_confidence


def _clouds(rng: np.random.Generator, rows: int = 300) -> tuple[np.ndarray, list[str | None]]:
    """Return two benchmarks: clouds of different scales around (0, ..) and (10, ..)."""
    scales = np.array([1.0, 0.1, 3.0, 1.0])
    first, second = rng.normal(size=(2, rows, 4)) * scales
    groups: list[str | None] = [*["a"] * rows, *["b"] * rows]
    return np.concatenate([first, second + 10]).astype(np.float32), groups


@pytest.fixture
def fitted() -> Familiarity:
    rng = np.random.default_rng(1)
    features, groups = _clouds(rng)
    found = fit_familiarity(features, groups, _clouds(rng)[0])
    assert found is not None
    return found


def test_nearly_all_known_rows_are_within_the_threshold(fitted: Familiarity) -> None:
    """About 97 % of rows of known kinds have a distance of at most 1."""
    features, _ = _clouds(np.random.default_rng(2))
    share = (fitted.distances(features) <= 1).mean()
    assert 0.945 <= share <= 0.99


def test_distance_is_in_units_of_the_spread(fitted: Familiarity) -> None:
    """A distance is in units of the spread: far along a narrow direction, near along a wide one."""
    narrow, wide = np.zeros((2, 1, 4), dtype=np.float32)
    narrow[0, 1], wide[0, 2] = 2, 2
    assert fitted.distances(narrow).item() > 5
    assert fitted.distances(wide).item() < 1


def test_it_survives_the_checkpoint(fitted: Familiarity) -> None:
    """Half precision in the checkpoint changes a distance by less than a percent."""
    again = Familiarity.from_state(fitted.state())
    assert again is not None
    features = _clouds(np.random.default_rng(3))[0]
    np.testing.assert_allclose(
        again.distances(features), fitted.distances(features), rtol=1e-2, atol=1e-2
    )


def test_a_checkpoint_may_lack_it() -> None:
    """Weights without its arrays, and benchmarks of a few rows, give None."""
    assert Familiarity.from_state({"head.0.weight": np.ones(1)}) is None
    few = np.ones((5, 4), dtype=np.float32)
    assert fit_familiarity(few, ["a"] * 5, few) is None


@pytest.mark.parametrize("confidence", [0.02, 0.4, 0.97])
def test_what_is_known_keeps_its_confidence(confidence: float) -> None:
    """Up to a distance of 1 the confidence is unchanged."""
    assert (
        temper_confidence(confidence, 0.3, 0.55)
        == temper_confidence(confidence, 1.0, 0.55)
        == confidence
    )


def test_what_is_far_approaches_the_base_rate() -> None:
    """A larger distance moves the confidence towards the base rate, never beyond it."""
    found = [temper_confidence(0.02, distance, 0.55) for distance in (1.0, 1.5, 3.0, 10.0, 1e6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.55, abs=1e-6)
    assert 0.97 > temper_confidence(0.97, 3.0, 0.55) > 0.55


def test_a_distance_that_is_no_number_changes_nothing() -> None:
    """A distance of NaN changes nothing."""
    assert temper_confidence(0.9, float("nan"), 0.55) == 0.9
