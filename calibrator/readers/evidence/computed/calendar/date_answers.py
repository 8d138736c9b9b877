"""Questions with their dates marked, and the judgement of the day or count that a reply states."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

from calibrator.readers.evidence.computed.basics.answers import says_yes, states_number
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Verdict
from calibrator.readers.evidence.computed.calendar.reading import (
    MONTH_NAMES,
    NAMES,
    FoundDate,
    date_text,
    dates_in,
    is_no_day,
    months,
    weekdays,
    weekdays_in,
)

Judge = Callable[[str], Verdict | None]


@dataclass(frozen=True, slots=True)
class DateQuestion:
    """A question whose dates are replaced by marks: @0 for the first, @1 for the second."""

    text: str
    dates: tuple[FoundDate, ...]
    today: date | None
    weekday: int | None

    def day(self, mark: str | None) -> date | None:
        """Return the date of the mark with this number, such as `"0"` for @0.

        None for no mark, for a date with two readings (`3/4/2021`), and for one without year if
        today is unknown. Raises IndexError for a number without a date.
        """
        if mark is None:
            return None
        found = self.dates[int(mark)]
        return found.value if found.has_year or self.today else None


def read_question(text: str, today: date | None, weekday: int | None) -> DateQuestion | None:
    """Replace the dates of a question by marks and return it: `days between @0 and @1`.

    None if there are more than nine dates. `today` and `weekday` (Monday is 0) are those the text
    states, or None; they are kept, and today's year is that of dates without one.
    """
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


def judge_yes(reply: str, is_true: bool, reason: str) -> Verdict | None:
    """Judge whether a reply begins with yes (right if `is_true`) or no; None if with neither.

    `reason` is the explanation in the verdict.
    """
    is_yes = says_yes(reply)
    return None if is_yes is None else Verdict(is_yes == is_true, reason, "date")


def judge_weekday(reply: str, wanted: int, reason: str) -> Verdict | None:
    """Judge whether a reply states the weekday `wanted` (Monday is 0) as its answer.

    Right if it names only that day or begins and ends with it; wrong if it names only one other
    day. Of several, the one in bold or after `answer is` decides; None without one.
    """
    named = [number for number, _ in weekdays_in(reply[:MAX_TEXT])]
    if not named:
        return None
    if set(named) == {wanted} or named[-1] == wanted == named[0]:
        return Verdict(True, reason, "date")
    if wanted not in named:
        return Verdict(False, reason, "date") if len(set(named)) == 1 else None
    strong = re.findall(
        r"\*\*[^*]*?(\w+day)\b[^*]*\*\*|answer(?: is)?:? (?:an? )?"
        r"(\w+day)\b|\bwas an? (\w+day)\b",
        reply,
        re.IGNORECASE,
    )
    if strong:
        last = next(filter(None, strong[-1])).casefold()
        return Verdict(weekdays().get(last) == wanted, reason, "date")
    return None


def judge_count(
    reply: str, count: int, near: set[int], known: set[int], reason: str
) -> Verdict | None:
    """Judge whether a reply states `count` as its answer, such as a number of days or years.

    `known` are numbers of the question that it may repeat. None if its number is not clear, or if
    it is one of `near` and the reply says how it counts, as in `both days included`.
    """
    text = _without_dates(reply[:MAX_TEXT])
    is_right = states_number(text, Fraction(count), map(Fraction, known - {count}))
    counts_ends = re.search(
        r"\b(?:inclu\w+|count\w*|both|exclu\w+|einschließlich"
        r"|inklusive|incluid\w+|compris\w*)\b",
        reply,
        re.IGNORECASE,
    )
    if (
        is_right is False
        and counts_ends
        and any(states_number(text, Fraction(other), map(Fraction, known)) for other in near)
    ):
        return None
    return None if is_right is None else Verdict(is_right, reason, "date")


def _without_dates(text: str) -> str:
    """Return a text with each date replaced by a space, because its numbers are no answer."""
    parts, end = [], 0
    for found in dates_in(text):
        parts += [text[end : found.start], " "]
        end = found.end
    return "".join((*parts, text[end:]))


def moved_date(day: date, count: int, unit: str) -> date | None:
    """Return the date `count` units after `day` (before, if negative).

    None beyond the years 1 to 9999. `unit` is a word for days, weeks, months or years in four
    languages. After months and years, a day that the month lacks becomes its last.
    """
    unit = unit.casefold()
    try:
        if unit.startswith(("day", "tag", "día", "dia", "jour")):
            return day + timedelta(days=count)
        if unit.startswith(("week", "woche", "sem")):
            return day + timedelta(weeks=count)
        if unit.startswith(("mo", "me")):
            months_ = day.year * 12 + day.month - 1 + count
            year, month = divmod(months_, 12)
            return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
        return date(
            day.year + count, day.month, min(day.day, monthrange(day.year + count, day.month)[1])
        )
    except (ValueError, OverflowError):
        return None


def judge_date(
    reply: str, wanted: date, start: date | None, *, is_day_asked: bool = False
) -> Verdict | None:
    """Judge whether a reply states the date `wanted`.

    `start` is a date that it may repeat, or None. Wrong for another date or one that does not
    exist; None if it names no date or several others. With `is_day_asked`, a reply without a date
    is judged by the weekday that it names.
    """
    reason = f"it is {date_text(wanted)}"
    text = reply[:MAX_TEXT]
    if is_day_asked and not dates_in(text):
        return judge_weekday(
            reply, wanted.weekday(), f"{date_text(wanted)} is a {NAMES[wanted.weekday()]}"
        )
    found = dates_in(text, wanted.year)
    if not found and is_no_day(text):
        return Verdict(False, f"{reason}; the date of the reply does not exist", "date")
    fresh = [each for each in found if start is None or start not in each.values or start == wanted]
    if not fresh:
        return None
    hits = [wanted in each.values for each in fresh]
    if hits[-1] or (hits[0] and len(hits) <= 2):
        return Verdict(True, reason, "date")
    return None if any(hits) or len(hits) > 2 else Verdict(False, reason, "date")


def judge_other_weekday(reply: str, wanted: int, known: int) -> Verdict | None:
    """Judge whether the last weekday of a reply is `wanted`; Monday is 0.

    `known` is the weekday of the question, which the reply may repeat. None if it names no other
    day, or names `wanted` before another.
    """
    reason = f"it is a {NAMES[wanted]}"
    named = [
        number for number, _ in weekdays_in(reply[:MAX_TEXT]) if number != known or known == wanted
    ]
    if not named:
        whole = [number for number, _ in weekdays_in(reply[:MAX_TEXT])]
        return Verdict(False, reason, "date") if whole and len(reply) < 40 else None
    if named[-1] == wanted:
        return Verdict(True, reason, "date")
    return Verdict(False, reason, "date") if wanted not in named else None


def judge_month(reply: str, wanted: int, known: int) -> Verdict | None:
    """Judge whether the last month that a reply names is `wanted`; January is 1.

    `known` is the month of the question, which the reply may repeat. None if it names no other
    month, or names `wanted` before another.
    """
    reason = f"it is {MONTH_NAMES[wanted - 1]}"
    words = re.findall(r"[^\W\d_]{3,}", reply[:MAX_TEXT].casefold())
    named = [months()[word] for word in words if word in months() and word != "mar"]
    fresh = [number for number in named if number != known or known == wanted]
    if not fresh:
        return None
    if fresh[-1] == wanted:
        return Verdict(True, reason, "date")
    return Verdict(False, reason, "date") if wanted not in fresh else None
