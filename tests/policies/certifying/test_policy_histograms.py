"""KS and PSI of histograms, beside scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from policies import distance


def counts(values: np.ndarray) -> list[int]:
    return [int(n) for n in np.histogram(values, bins=100, range=(0, 1))[0]]


def test_ks_is_that_of_the_values_but_for_the_bins() -> None:
    """On 100 bins the distance is at most that of the values, and p is near scipy's."""
    rng = np.random.default_rng(1)
    first, second = rng.beta(4, 2, 800), rng.beta(4, 2.3, 600)
    found, exact = distance(counts(first), counts(second)), ks_2samp(first, second)
    assert found is not None
    assert exact.statistic - 0.03 < found.ks <= exact.statistic + 1e-12
    assert math.log10(found.ks_p) == pytest.approx(math.log10(exact.pvalue), abs=0.6)


def test_psi_is_the_textbook_sum() -> None:
    """Two bins of 50 % and 50 % that become 80 % and 20 %: 0.3 ln 1.6 - 0.3 ln 0.4."""
    found = distance([500, 500], [800, 200])
    assert found is not None
    assert found.psi == pytest.approx(0.3 * math.log(1.6) - 0.3 * math.log(0.4))
    assert found.reading == "large"


@pytest.mark.parametrize(
    ("b", "reading"), [((4, 2), "stable"), ((2.8, 2), "moderate"), ((2, 2), "large")]
)
def test_the_usual_readings(b: tuple[float, float], reading: str) -> None:
    """The same distribution is stable, a slightly other one moderate, another one large."""
    rng = np.random.default_rng(2)
    found = distance(counts(rng.beta(4, 2, 5_000)), counts(rng.beta(*b, 3_000)))
    assert found is not None
    assert found.reading == reading


def test_few_rows_have_no_reading() -> None:
    """With 50 replies PSI is above 0.1 by chance; nothing at all cannot be compared."""
    rng = np.random.default_rng(3)
    found = distance(counts(rng.random(5_000)), counts(rng.random(50)))
    assert found is not None
    assert found.reading == "too few"
    assert distance([1, 0], [0, 0]) is None
    with pytest.raises(ValueError, match="cannot be compared"):
        distance([1], [1, 2])
