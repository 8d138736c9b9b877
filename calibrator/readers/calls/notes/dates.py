"""The check whether a day or a time of a call was said: as a date, distance, period or span."""

from __future__ import annotations

import re
from datetime import timedelta

from calibrator.readers.calls.notes.said import SaidText
from calibrator.readers.calls.reading.conversation import Call
from calibrator.readers.calls.reading.values import NUMBER_WORDS, Value, calendar_day, spoken_times

_PARTS_OF_DAY = {
    "morning": (300, 720), "afternoon": (720, 1_080), "evening": (1_020, 1_380),
    "tonight": (1_020, 1_440), "night": (1_080, 1_440), "lunch": (660, 870), "noon": (690, 780),
    "breakfast": (360, 660), "dinner": (1_050, 1_350), "midnight": (0, 60),
}  # fmt: skip
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|next|this|last|coming|ago|weekend|now|recent"
    r"|recently|latest"
    r"|current|currently|upcoming|past|monday|tuesday"
    r"|wednesday|thursday|friday|saturday|sunday|in (?:a|an|one|two|three|\d+) (?:day|week"
    r"|month)s?)\b"
)
_PERIODS = re.compile(
    r"\b(?:month|quarter|year|so far|since|until|(?<!\d )(?:january|february|march|april|may"
    r"|june|july"
    r"|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)"
    r"(?! \d{1,2}\b)|q[1-4]|(?<![-./\d] )(?<![-./\d])(?:19|20)\d\d(?![-./\d]))\b"
)
_WEEKS = re.compile(r"\b(?:week|weekend|weeks)\b")
_LENGTH = re.compile(r"\b(\d{1,3}|[a-z]{2,10})[ -](?:\w{1,12}[ -])?(day|night|week|month|sol)s?\b")
MOST_WEEK_DAYS = 21  # days from today in which the ends of "the week" are taken for said
_HALF_DAY = re.compile(r"\d\s?[ap]\.?m\b")
_HOURS = re.compile(
    r"\b(?:at|from|to|until|till|by|between|and|past|around|-)\s*(\d{1,2}|one|two|three|four"
    r"|five|six"
    r"|seven|eight|nine|ten|eleven|twelve)(?![\d:.%]\d|\d|st|nd|rd|th)\b"
)


_SHIFTS = (  # from the day of a call to the day that the user named
    (re.compile(r"\b(?:the|a) day (?:before|earlier)\b|\bthe eve\b"), 1),
    (re.compile(r"\b(?:the|a) day (?:after|later)\b(?! tomorrow)"), -1),
)


def is_day_shifted(text: str) -> bool:
    """Return whether a text in lower case speaks of the day before or after another one."""
    return any(pattern.search(text) for pattern, _ in _SHIFTS)


def is_date_said(said: SaidText, value: Value, call: Call) -> bool:
    """Return whether a day and its time were said, or follow from the conversation."""
    is_slashed = re.search(r"\d/\d", value.text) is not None  # day and month in either order
    each = [_is_day_said(said, day, value, call) for day in value.days]
    days_said = any(each) if is_slashed and each else all(each)
    return days_said and all(_is_time_said(said, t, call, value) for t in value.times)


def _is_day_said(said: SaidText, day: tuple[int, int, int], value: Value, call: Call) -> bool:
    """Return whether the user, a result or the instructions name a day or imply it."""
    s, told = said.sources, calendar_day(day)
    plain = Value(value.path, value.raw, value.text, "date", None, (day,), ())
    if any(part.holds(plain) for part in (s.request, s.users, s.results, s.rules)):
        return True
    if day in said.days:
        return True
    if told is None:
        return False
    if told in said.named_days or told in said.relative_in_rules:
        return True
    for pattern, days in _SHIFTS:
        if pattern.search(s.users.text):
            beside = told + timedelta(days)
            if beside in said.named_days or (beside.year, beside.month, beside.day) in said.days:
                return True
    users = s.users.text
    if said.today is None and _RELATIVE.search(users):
        return True
    if _PERIODS.search(users) and (told.day == 1 or (told + timedelta(1)).day == 1):
        return True
    if _PERIODS.search(users) and told == said.today:  # until now
        return True
    is_near = said.today is None or abs((told - said.today).days) <= MOST_WEEK_DAYS
    if is_near and _WEEKS.search(users) and told.weekday() in (0, 4, 5, 6):
        return True
    others = [d for v in call.values if v is not value for each in v.days
              if (d := calendar_day(each)) is not None]  # fmt: skip
    gaps = {abs((told - other).days) for other in others}
    return bool(gaps & _lengths(said.text))


def _lengths(text: str) -> set[int]:
    """Return the numbers of days that a text, in lower case, names: three nights, two weeks."""
    found = {7} if "a week" in text or "one week" in text else set()
    for number, unit in _LENGTH.findall(text)[:100]:
        days = int(number) if number.isdigit() else int(NUMBER_WORDS.get(number, 0))
        if unit == "month":
            found |= {28 * days, 29 * days, 30 * days, 31 * days}
            continue
        found.add(days * (7 if unit == "week" else 1))
        found |= {days - 1, days + 1} if unit == "day" else set()  # the first one counts, or not
    return found - {0}


def _is_time_said(said: SaidText, time: int, call: Call, value: Value) -> bool:
    """Return whether a time (minutes of the day) was named or follows from words of the user."""
    s = said.sources
    told = s.users.times | s.results.times | s.rules.times
    users = s.users.text
    if time in told or time in (0, 1_439):
        return True
    if (time + 720) % 1_440 in spoken_times(users):  # ten in the evening is not 10:00
        return False
    if not _HALF_DAY.search(users) and (time - 720) in told:
        return True
    if any(low <= time <= high for word, (low, high) in _PARTS_OF_DAY.items()
           if re.search(rf"\b{word}\b", users)) and not s.request.times:  # fmt: skip
        return True
    hours = {_hour(found) % 12 for found in _HOURS.findall(users)[:20]}
    if time % 60 == 0 and time // 60 % 12 in hours:
        return True
    if time % 60 == 30 and {time // 60 % 12, (time // 60 + 1) % 12} & hours and "half" in users:
        return True
    if time % 60 in (15, 45) and {time // 60 % 12, (time // 60 + 1) % 12} & hours:
        return "quarter" in users
    starts = {t for v in call.values if v is not value for t in v.times} | told
    spans = {float(n) for v in call.values if (n := v.number) is not None} | said.spans()
    return any(time - start in spans or (time - start) / 60 in spans for start in starts)


def _hour(text: str) -> int:
    return int(text) if text.isdigit() else int(NUMBER_WORDS.get(text, 0))
