"""Dates, weekdays and times of day in the spellings of four languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Final

from calibrator.readers.evidence.computed.basics.word_lists import word_list

MAX_FOUND: Final = 100  # dates or times of a text that are read

_MONTHS: Final = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
)
_SHORT_MONTHS: Final = word_list("jan feb mar apr may jun jul aug sep oct nov dec")
_DAYS: Final = (
    "monday tuesday wednesday thursday friday saturday sunday",
    "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
)
_SHORT_DAYS: Final = word_list("mon tue wed thu fri sat sun")
NAMES: Final = _DAYS[0].title().split()
MONTH_NAMES: Final = _MONTHS[0].title().split()


@cache
def months() -> dict[str, int]:
    """Return the numbers of months, 1 to 12, by names and abbreviations in lower case.

    An example is `sept`, `mai`. Names are English, German, Spanish and French. Computed once; the
    dict is shared.
    """
    table: dict[str, int] = {}
    for line in _MONTHS:
        for number, name in enumerate(line.split(), 1):
            table.setdefault(name, number)
    table.update({name: number for number, name in enumerate(_SHORT_MONTHS, 1)})
    table.update({"sept": 9, "jänner": 1, "dez": 12, "okt": 10, "mär": 3, "maerz": 3, "aout": 8})
    return table


@cache
def weekdays() -> dict[str, int]:
    """Return the numbers of weekdays, Monday 0 to Sunday 6, by names in lower case.

    An example is `montag`, `lundi`. Names are English, German, Spanish and French, without
    abbreviations. Computed once; the dict is shared.
    """
    table: dict[str, int] = {}
    for line in _DAYS:
        for number, name in enumerate(line.split()):
            table[name] = number
    table.update({"sonnabend": 5, "miercoles": 2, "sabado": 5})
    return table


@cache
def date_pattern() -> str:
    """Return the regular expression of a date such as `2021-07-04`, `4 July 2021` or `7/4/21`.

    Its named groups end in the number of the spelling: y1, m1, d1 for `2021-07-04`, d2, m2, y2 for
    a day before a month's name, d3, m3, y3 for one after it, a4, sep, b4, y4 for three numbers.
    """
    names = "|".join(sorted(map(re.escape, months()), key=len, reverse=True))
    return (
        r"(?<![\w/.-])(?:(?P<y1>\d{4})[-/.](?P<m1>\d{1,2})[-/.](?P<d1>\d{1,2})(?!\d)"
        rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?\s*(?:of\s+|de\s+)?(?P<m2>{names})\b"
        r"(?:\.?,?\s*(?:de\s+|del\s+|of\s+)?(?P<y2>\d{4}))?(?!\d)"
        rf"|(?P<m3>{names})\b\.?\s+(?:the\s+)?(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?:\s*,?\s*"
        rf"(?P<y3>\d{{4}}))?(?!\d)"
        r"|(?P<a4>\d{1,2})(?P<sep>[/.-])(?P<b4>\d{1,2})(?P=sep)(?P<y4>\d{4}|\d{2})(?!\d))"
    )


@cache
def _dates() -> re.Pattern[str]:
    """Return the compiled pattern of a date; case is ignored."""
    return re.compile(date_pattern(), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoundDate:
    """A date in a text: its readings, whether it states a year, and its start and end there."""

    values: tuple[date, ...]
    has_year: bool
    start: int
    end: int

    @property
    def value(self) -> date | None:
        """The date; None if there are several readings."""
        return self.values[0] if len(self.values) == 1 else None


def dates_in(text: str, year: int = 2000) -> list[FoundDate]:
    """Return the dates of a text in order, at most MAX_FOUND; days that do not exist are left out.

    `year` is the year of dates without one.
    """
    found: list[FoundDate] = []
    for match in _dates().finditer(text):
        read = read_date(match, year)
        if read is not None:
            found.append(read)
        if len(found) >= MAX_FOUND:
            break
    return found


def is_no_day(text: str) -> bool:
    """Return whether a text names a day that does not exist, such as 30 February."""
    return any(read_date(match) is None for match in _dates().finditer(text))


def read_date(match: re.Match[str], year: int = 2000) -> FoundDate | None:
    """Return the date of a match of `date_pattern`.

    None if there is no such day, as in 30 February. `3/4/2021` gets two readings, day first and
    month first. `year` is the year of a date without one.
    """
    parts = match.groupdict()
    if parts["y1"]:
        options = [(int(parts["y1"]), int(parts["m1"]), int(parts["d1"]))]
        has_year = True
    elif parts["m2"] or parts["m3"]:
        which = "2" if parts["m2"] else "3"
        month = months()[parts[f"m{which}"].casefold()]
        has_year = parts[f"y{which}"] is not None
        options = [(int(parts[f"y{which}"] or year), month, int(parts[f"d{which}"]))]
    else:
        first, second, last = int(parts["a4"]), int(parts["b4"]), int(parts["y4"])
        if len(parts["y4"]) == 2:
            last += 2000 if last < 70 else 1900
        has_year = True
        options = [(last, second, first)]
        if parts["sep"] != ".":
            options.append((last, first, second))  # month first, as in the United States
    values: list[date] = []
    for option in options:
        try:
            value = date(*option)
        except ValueError:
            continue
        if value not in values:
            values.append(value)
    return FoundDate(tuple(values), has_year, match.start(), match.end()) if values else None


@cache
def _weekdays() -> re.Pattern[str]:
    """Return the compiled pattern of a full weekday name, singular or plural, in any case."""
    names = "|".join(map(re.escape, weekdays()))
    return re.compile(rf"(?<!\w)({names})s?(?!\w)", re.IGNORECASE)


def weekdays_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield (number, position) of each full weekday name in a text, in order; Monday is 0."""
    for found in _weekdays().finditer(text):
        yield weekdays()[found[1].casefold()], found.start()


TIME: Final = (
    r"(?<![\d:.,])(?:(?P<h>[01]?\d|2[0-4])(?::|(?<=\d)h(?=\d)|\.(?=\d\d\s?(?:[ap]\.?\s?m\b|uhr)))"
    r"(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?"
    r"(?:\s?(?P<half>[ap]\.?\s?m\b\.?)|\s?(?:uhr|h|hrs|hours?)\b)?|(?P<h2>1[0-2]|0?[1-9])\s?"
    r"(?P<half2>[ap]\.?\s?m\b\.?)"
    r"|(?P<h3>2[0-4]|1?\d|0\d)\s?(?:uhr|o'clock|heures)\b(?:\s?(?P<m3>[0-5]\d)\b)?"
    r"|(?P<word>noon|midday|midnight|mittags?\b|mitternacht|mediodía|medianoche|midi|minuit)\b)"
)
_TIMES: Final = re.compile(TIME, re.IGNORECASE)
DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class FoundTime:
    """A time of day in a text: minutes after midnight, and its start and end there.

    `is_clear` is False if it may be before or after noon, such as `3:15`.
    """

    minutes: int
    is_clear: bool
    start: int
    end: int


def times_in(text: str) -> list[FoundTime]:
    """Return the times of day in a text in order, at most MAX_FOUND.

    An example is `3:30 pm` or `noon`.
    """
    found: list[FoundTime] = []
    for match in _TIMES.finditer(text):
        read = read_time(match)
        if read is not None:
            found.append(read)
        if len(found) >= MAX_FOUND:
            break
    return found


def read_time(match: re.Match[str]) -> FoundTime | None:
    """Return the time of a match of `TIME`; None if there is no such time, such as `14 pm`.

    A time is clear with am or pm, after 12, or with a leading zero, as in `03:15`.
    """
    if match["word"]:
        word = match["word"].casefold()
        is_noon = word.startswith(("noon", "midd", "mittag", "medio", "midi"))
        return FoundTime(DAY // 2 if is_noon else 0, True, match.start(), match.end())
    hour = int(match["h"] or match["h2"] or match["h3"])
    minute = int(match["m"] or match["m3"] or 0)
    half = (match["half"] or match["half2"] or "").casefold()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    is_clear = bool(half) or hour > 12 or hour == 0 or (match["h"] or "").startswith("0")
    return (
        FoundTime(hour * 60 + minute, is_clear, match.start(), match.end()) if hour < 25 else None
    )


def time_text(minutes: int) -> str:
    """Return minutes after midnight, of any day, as a time of day: `14:05 (2:05 pm)`."""
    hour, minute = divmod(minutes % DAY, 60)
    return (
        f"{hour}:{minute:02d} ({(hour + 11) % 12 + 1}:{minute:02d} {'pm' if hour > 11 else 'am'})"
    )


def date_text(day: date) -> str:
    """Return a date as people write it: 4 July 2021."""
    return f"{day.day} {MONTH_NAMES[day.month - 1]} {day.year}"
