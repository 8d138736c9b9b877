"""Days that a text names by their distance from today."""

from __future__ import annotations

from datetime import date

import pytest

from calibrator.readers.calls.reading.values import relative_days

WEDNESDAY = date(2026, 3, 11)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("do it today", [11]),
        ("tonight at eight", [11]),
        ("tomorrow morning", [12]),
        ("what happened yesterday", [10]),
        ("next friday", [13, 20]),  # ambiguous, so both
        ("last friday", [6]),
        ("in two days", [9, 13]),  # `two days ago` is read in the same way
        ("a week from now", [4, 18]),
        ("some day", []),
    ],
)
def test_days_by_their_distance(text: str, days: list[int]) -> None:
    assert sorted(day.day for day in relative_days(text, WEDNESDAY)) == days


def test_the_day_after_tomorrow_is_not_only_tomorrow() -> None:
    assert date(2026, 3, 13) in relative_days("the day after tomorrow", WEDNESDAY)


def test_the_last_day_of_all_has_no_next() -> None:
    """The day after the calendar's last one is no day."""
    assert relative_days("tomorrow", date.max) == {date.max}
