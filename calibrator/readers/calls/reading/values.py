"""Words, numbers, dates, times and kinds of values, of texts and arguments, in one form.

An argument can only be traced to the conversation if `1,200.00` and 1200, `tomorrow` and
2024-05-16, `2pm` and 14:00 are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

MAX_LEAVES = 60  # values of one call that are read
MAX_VALUE = 2_000  # characters of one value
MAX_DEPTH = 6

_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_PLAIN_NUMBER = re.compile(r"\s*[-+]?[$€£]?\d{1,15}(?:,\d{3})*(?:\.\d+)?\s*%?\s*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MAIL = re.compile(r"[\w+-]@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(r"^(?:[\w+.-]+://|/|\./|~/|[A-Za-z]:\\)|/[\w.-]+$|^[\w./-]+\.[a-z]{1,5}$")
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_NAMED = re.compile(
    rf"\b{_MONTH}\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}}))?"
    rf"|\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b\.?(?:,?\s+(\d{{4}}))?"
)
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})[/.](\d{1,2})[/.](\d{4}|\d{2})(?![\d/])")
_CLOCK = re.compile(
    r"(?<![\d:.-])(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s?([ap])\.?m\b"
    r"|(?:(?<![\d:.-])|(?<=\dT))([01]?\d|2[0-3]):([0-5]\d)(?!\d)"
)
_NOON = re.compile(r"\b(noon|midday|midnight)\b")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = re.compile(r"\b(next|this|last|coming|on)?\s*\b(" + "|".join(WEEKDAYS) + r")s?\b")
_AHEAD = re.compile(
    r"\b(?:in|within|for|by)?\s*(\d+|a|an|one|two|three|four)\s+(day|week|month)s?\b"
)
_NOW = re.compile(
    r"(?:today|current(?:ly)?|now|date|as of)\b[^.\n]{0,60}?(\d{4}-\d{2}-\d{2})|"
    rf"(?:today|current|now)\b[^.\n]{{0,40}}?({_MONTH}\.?\s+\d{{1,2}},?\s+\d{{4}})"
)

_SPOKEN = (
    "zero 0|one 1|two 2|three 3|four 4|five 5|six 6|seven 7|eight 8|nine 9|ten 10|eleven 11"
    "|twelve 12|dozen 12|couple 2|pair 2|half 0.5|twice 2|both 2|fifteen 15|twenty 20|thirty 30"
    "|forty 40|fifty 50|sixty 60|ninety 90|hundred 100|thousand 1000|million 1000000|first 1"
    "|second 2|third 3|fourth 4|fifth 5|single 1|once 1|hour 60|quarter 15|double 2|triple 3"
)
NUMBER_WORDS = {
    word: float(number) for word, _, number in (one.partition(" ") for one in _SPOKEN.split("|"))
}


_HOUR = (
    r"(?:(half|quarter) (past|to) )?"
    r"(\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?::([0-5]\d))?"
)
_PART_BEHIND = re.compile(
    rf"(?<![\d:.-])\b{_HOUR}(?: o'clock)?,? (?:in the |at |this )?"
    r"(morning|afternoon|evening|night|tonight)\b"
)
_PART_BEFORE = re.compile(
    rf"\b(morning|afternoon|evening|night|tonight),? (?:at |from |until |by ){_HOUR}"
    r"(?![\w:]|\.\d|\s?[ap]\.?m\b)"
)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, separated by blanks, as a set."""
    return frozenset(text.split())


STOP = word_set(
    "the a an and or of to in on at for from with by is are was were be been it its this that these"
    " those my your our his her their me you we he she they i as if so do does did can could would"
    " should will shall may might please need want like have has had not no yes all any some there"
    " here what which who whom when where why how just also then than but about into out up down"
    " over under am us them him let get got one new now more most very ok okay thanks thank hi"
    " hello hey help"
)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return a word without its ending, at most seven letters: `mov` for `moving` and `moved`.

    `word` must be in lower case. Three letters remain at least.
    """
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:7]


def words_in(text: str) -> set[str]:
    """Return the stems of the words of a text, without stop words such as `the`."""
    found = set(_WORD.findall(text.lower()))
    return {stem(word) for word in found if word not in STOP}


def name_words(name: str) -> list[str]:
    """Return the words of a tool's or an argument's name: `getOrder_id` is get, order, id."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", name[:200]).replace("_", " "))]


def numbers_in(text: str) -> set[float]:
    """Return the numbers that a text has in figures, such as 1200.0 for `1,200`."""
    return {float(found.replace(",", "")) for found in _NUMBER.findall(text) if len(found) < 20}


def spoken_numbers(text: str) -> set[float]:
    """Return the numbers that a text has in words, such as 12.0 for `a dozen`."""
    return {NUMBER_WORDS[w] for w in set(_WORD.findall(text.lower())) if w in NUMBER_WORDS}


def number_of(value: Any) -> float | None:
    """Return a value as a number: 1200.0 for `$1,200`; None for any other value.

    None also for booleans, nan, infinity and numbers from 1e15.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e15 else None  # False for nan
    if isinstance(value, str) and len(value) < 24 and _PLAIN_NUMBER.fullmatch(value):
        try:
            return float(value.strip().strip("+$€£% ").replace(",", "").replace("$", ""))
        except ValueError:
            return None
    return None


# --- dates and times ----------------------------------------------------------------------------

Day = tuple[int, int, int]  # year (0 if unknown), month, day


def dates_in(text: str) -> set[Day]:
    """Return the days that a text, in lower case, names by month and day: `may 3`, `2024-05-03`.

    The year is 0 if it is not named. `3/4/2024` gives both readings.
    """
    found = {(int(y), int(m), int(d)) for y, m, d in _ISO.findall(text)}
    for m1, d1, y1, d2, m2, y2 in _NAMED.findall(text):
        found.add((int(y1 or y2 or 0), MONTHS.index(m1 or m2) + 1, int(d1 or d2)))
    for a, b, y in _SLASHED.findall(text):
        year = int(y) + (2_000 if len(y) == 2 else 0)
        found |= {(year, int(a), int(b)), (year, int(b), int(a))}
    return {day for day in found if 1 <= day[1] <= 12 and 1 <= day[2] <= 31}


def without_days(text: str) -> str:
    """Return a text, in lower case, with a blank for each date and time of day."""
    for form in (_ISO, _NAMED, _SLASHED, _CLOCK):
        text = form.sub(" ", text)
    return text


def holds_day(days: set[Day], day: Day) -> bool:
    """Return whether a day is among others; the years are compared if both are known."""
    return any(d[1:] == day[1:] and (not d[0] or not day[0] or d[0] == day[0]) for d in days)


def calendar_day(day: Day) -> date | None:
    """Return the date of a day; None if the calendar has no such day, as for the year 0."""
    try:
        return date(*day)
    except ValueError:
        return None


def current_day(*texts: str) -> date | None:
    """Return the date that the first of the texts gives as today's: `today is 2024-05-03`.

    The texts must be in lower case. None if there is none.
    """
    for text in texts:
        if found := _NOW.search(text):
            for day in dates_in(found[0]):
                if (today := calendar_day(day)) is not None:
                    return today
    return None


def relative_days(text: str, today: date) -> set[date]:
    """Return the days that a text names by their distance: tomorrow, next Monday, in two weeks.

    `text` is in lower case. A weekday gives the next two, `last Monday` the one before; `two
    weeks` gives the days in both directions. Empty if there are none.
    """
    found: set[date] = set()
    for word, distance in (("today", 0), ("tonight", 0), ("tomorrow", 1), ("yesterday", -1)):
        if word in text:
            found.add(_shift_day(today, distance))
    if "day after tomorrow" in text:
        found.add(_shift_day(today, 2))
    for which, name in _WEEKDAY.findall(text):
        ahead = (WEEKDAYS.index(name) - today.weekday()) % 7
        if which == "last":
            found.add(_shift_day(today, ahead - 7))
            continue
        found |= {_shift_day(today, ahead), _shift_day(today, ahead + 7)}
    for count, unit in _AHEAD.findall(text):
        number = int(count) if count.isdigit() else int(NUMBER_WORDS.get(count, 1))
        days = min(number, 5_000) * {"day": 1, "week": 7, "month": 30}[unit]
        found |= {_shift_day(today, days), _shift_day(today, -days)}
    return found


def _shift_day(day: date, days: int) -> date:
    """Return the day so many days later, or the same day beyond the calendar's end."""
    try:
        return day + timedelta(days)
    except OverflowError:
        return day


def weekdays_in(text: str) -> set[int]:
    """Return the weekdays, 0 for Monday, that a text in lower case names."""
    return {WEEKDAYS.index(name) for _, name in _WEEKDAY.findall(text)}


def times_in(text: str) -> set[int]:
    """Return the times of day in a text in lower case, in minutes after midnight: `2pm` is 840."""
    found: set[int] = set()
    for hour, minute, half, h24, m24 in _CLOCK.findall(text):
        if half:
            found.add((int(hour) % 12 + (12 if half == "p" else 0)) * 60 + int(minute or 0))
        else:
            found.add(int(h24) * 60 + int(m24))
    found |= spoken_times(text)
    for word in _NOON.findall(text):
        found.add(0 if word == "midnight" else 720)
    return {time for time in found if time < 1_440}


def spoken_times(text: str) -> set[int]:
    """Return the times that a text, in lower case, names with a part of the day: ten tonight.

    They are in minutes after midnight; `ten tonight` is 1,320.
    """
    found = set()
    for step, side, hour, minute, part in _PART_BEHIND.findall(text)[:20]:
        found.add(_spoken_time(step, side, hour, minute, part))
    for part, step, side, hour, minute in _PART_BEFORE.findall(text)[:20]:
        found.add(_spoken_time(step, side, hour, minute, part))
    return {time for time in found if 0 <= time < 1_440}


def _spoken_time(step: str, side: str, hour: str, minute: str, part: str) -> int:
    """Return a time in minutes after midnight from its parts; -1 for an hour beyond 12.

    For `half past ten tonight`, `step` is half, `side` past, `hour` ten, `minute` "" and `part`
    tonight.
    """
    number = int(hour) if hour.isdigit() else int(NUMBER_WORDS[hour])
    if not 1 <= number <= 12:
        return -1
    steps = {"half": 30, "quarter": 15}.get(step, 0) * (-1 if side == "to" else 1)
    half = 0 if part == "morning" or (number == 12 and part in ("night", "tonight")) else 720
    return number % 12 * 60 + steps + int(minute or 0) + half


# --- values of arguments ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a call's arguments, with its path and its kind.

    `number`, `days` and `times` (minutes after midnight) are read from it; None or () without
    any.
    """

    path: str  # argument names from the outermost, separated by blanks
    raw: Any
    text: str  # in lower case
    kind: str  # one of KINDS
    number: float | None = None
    days: tuple[Day, ...] = ()
    times: tuple[int, ...] = ()


KINDS = ("number", "mail", "date", "id", "path", "name", "text", "choice", "flag", "empty")


def leaves(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of each innermost value in arguments, in order, at most 60.

    The path is made of the argument's names from the outermost, separated by blanks: `address
    city`. Members of a list have its path; what is nested deeper than six levels is left out.
    """
    waiting: list[tuple[str, Any, int]] = [("", arguments, 0)]
    count = 0
    while waiting and count < MAX_LEAVES:
        path, value, depth = waiting.pop(0)
        if isinstance(value, Mapping):
            if depth == MAX_DEPTH:
                continue
            inner = list(islice(value.items(), MAX_LEAVES))
            waiting[:0] = [(f"{path} {str(k)[:80]}".strip(), v, depth + 1) for k, v in inner]
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            if depth < MAX_DEPTH:
                waiting[:0] = [(path, v, depth + 1) for v in islice(value, MAX_LEAVES)]
        else:
            count += 1
            yield path, value


def value_at(path: str, raw: Any, choices: Sequence[Any] = ()) -> Value:
    """Return an argument's value with its kind; `choices` are those that the schema allows.

    None and "" have the kind `empty`, booleans `flag`, and values among the choices `choice`.
    """
    if raw is None or raw == "":
        return Value(path, raw, "", "empty")
    if isinstance(raw, bool):
        return Value(path, raw, str(raw).lower(), "flag")
    text = (raw if isinstance(raw, str) else str(raw))[:MAX_VALUE].strip().lower()
    number = number_of(raw)
    if choices and raw in choices:
        return Value(path, raw, text, "choice", number)
    days = tuple(sorted(dates_in(text))) if len(text) < 60 else ()
    times = tuple(sorted(times_in(text))) if len(text) < 60 else ()
    return Value(path, raw, text, _kind(path, raw, text, number, bool(days or times)), number,
                 days, times)  # fmt: skip


def _kind(path: str, raw: Any, text: str, number: float | None, is_dated: bool) -> str:
    """Classify a value as one of KINDS, by its argument's name and its form.

    `text` is the value in lower case; `is_dated` says that it has a day or a time.
    """
    last = name_words(path)[-1:] or [""]
    is_named_id = last[0] in ("id", "ids", "uuid", "key", "code", "reference", "number", "sku")
    if number is not None and isinstance(raw, str) and (is_named_id or text[:1] == "0" != text):
        return "id"
    if number is not None:
        return "number"
    if "@" in text and _MAIL.search(text) and len(text) < 200:
        return "mail"
    if is_dated and len(text) < 40:
        return "date"
    is_single = " " not in text and "\n" not in text
    if is_single and _PATH.search(text):
        return "path"
    if is_single and (is_named_id or any(c.isdigit() for c in text) or "_" in text):
        return "id" if len(text) < 80 else "text"
    return "name" if len(text) < 60 and text.count(" ") < 6 else "text"


def shape(text: str) -> str:
    """Return an id with runs of letters as `a` and digits as `9`: `a-99` for `ab-12`."""
    return re.sub(r"a+", "a", re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", text)))
