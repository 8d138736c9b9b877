"""A question with its dates marked, so that its form can be matched."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from calibrator.readers.evidence.computed.basics.verdict import Verdict
from calibrator.readers.evidence.computed.calendar.reading import FoundDate, dates_in, weekdays

Judge = Callable[[str], Verdict | None]


@dataclass(frozen=True, slots=True)
class DateQuestion:
    """A question whose dates are replaced by marks: @0 for the first, @1 for the second."""

    text: str
    dates: tuple[FoundDate, ...]
    today: date | None
    weekday: int | None

    def day(self, mark: str | None) -> date | None:
        """Return the date of a mark; None if its year or its reading is not clear."""
        if mark is None:
            return None
        found = self.dates[int(mark)]
        return found.value if found.has_year or self.today else None


def read_question(text: str, today: date | None, weekday: int | None) -> DateQuestion | None:
    """Replace the dates of a question by marks; None if there are more than nine."""
    dates = dates_in(text, today.year if today else 2000)
    if len(dates) > 9:
        return None
    parts, end = [], 0
    for at, found in enumerate(dates):
        parts += [text[end : found.start], f"@{at}"]
        end = found.end
    marked = "".join((*parts, text[end:]))
    names = "|".join(weekdays())
    marked = re.sub(rf"\b(?:{names}),? (?:the |den |dem )?(?=@)", "", marked, flags=re.IGNORECASE)
    marked = re.sub(r"\b(?:the|on|der|den|dem|am|el|le)\s+(?=@)", "", marked, flags=re.IGNORECASE)
    return DateQuestion(marked, tuple(dates), today, weekday)
