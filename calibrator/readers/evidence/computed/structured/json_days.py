"""Dates and durations of a JSON reply that contradict a weekday, a spelling or a span of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import number_text
from calibrator.readers.evidence.computed.calendar.dates import today_of
from calibrator.readers.evidence.computed.calendar.reading import (
    NAMES,
    date_text,
    dates_in,
    times_in,
    weekdays_in,
)
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.structured.json_values import (
    amount_of,
    leaves,
    objects_in,
)

MAX_TEXT: Final = 4_000  # characters of a text that are read
MAX_LEAVES: Final = 100
_ISO: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ].*)?")
_LATER: Final = re.compile(
    r"due|until|expir|end|deadline|valid|renew|return|checkout|finish|remind|follow|created|issued"
)
_MOVED: Final = re.compile(
    r"\b(?:before|after|except|not|instead|but|later|earlier|in (?:a|an|one|two|three|\d+)|every"
    r"|each|through|bis|vor|nach|außer|nicht|jeden|avant|après|sauf|pas|chaque|antes|después"
    r"|salvo|cada|weeks?|wochen?|semaines?|semanas?)\b",
    re.IGNORECASE,
)
_SPOKEN: Final = {
    word: days
    for days, words in (
        (0, "today tonight heute hoy aujourd'hui"),
        (1, "tomorrow mañana demain"),
        (-1, "yesterday gestern ayer"),  # "hier" is German too: here
        (2, "overmorrow übermorgen"),
    )
    for word in words.split()
}
_SPOKEN_WORD: Final = re.compile(r"\b(?:" + "|".join(_SPOKEN) + r")\b", re.IGNORECASE)
_NUMERIC: Final = re.compile(
    r"(?<![\d./-])(?P<a>\d{1,2})(?P<s>[./])\s?(?P<b>\d{1,2})(?:(?P=s)\s?(?:\d{4}|\d\d)?)?(?![\d/:])"
)
_AMERICAN: Final = re.compile(r"\bMM[/-]DD|\(US\)|\bU\.?S\.?A?\b")
_HOURS: Final = re.compile(r"^(?:hours?|hrs?|stunden|heures|horas|duration(?:hours|h)?|dauer)$")
_MINUTES: Final = re.compile(r"^(?:minutes?|mins?|duration(?:minutes|mins?)|minuten)$")
_BREAK: Final = re.compile(
    r"(?P<n>\d{1,3}|half an?|an?|one)\s*-?(?P<u>min(?:ute)?s?|minuten|h(?:our)?s?|stunde)\b"
    r"[^,;\n]{0,12}\b(?:break|lunch|pause|mittag|unpaid|rest)"
    r"|\b(?:break|lunch|pause|mittagspause)\b[^,;\n\d]{0,12}(?P<m>\d{1,3})\s?(?P<v>min|h)",
    re.IGNORECASE,
)
_DEDUCTS: Final = re.compile(
    r"\bbreaks? (?:is |are )?(?:deducted|subtracted|excluded|not (?:paid|counted|included))"
    r"|\b(?:net|without|excluding|minus|less|deduct|subtract) (?:of )?(?:the )?(?:lunch )?breaks?"
    r"|abzüglich|ohne pausen?",
    re.IGNORECASE,
)


def fault_of_days(value: Any, data: str, rules: str) -> str | None:
    """Describe a date or duration in a JSON value that the text contradicts, or return None.

    `data` is the text with the values, and `rules` may state today's date. Long texts are not read.
    """
    if len(data) > MAX_TEXT:
        return None
    return (
        _count_fault(value, rules)
        or _weekday_fault(value, data, rules)
        or _order_fault(value, data)
        or _span_fault(value, data, rules)
    )


_STARTS: Final = re.compile(
    r"^(?:start|begin|from|first|checkin|arrival|departure|von|beginn|anreise|inicio|début|debut)"
)
_ENDS: Final = re.compile(
    r"^(?:end|to|until|last|checkout|return|finish|bis|ende|abreise|fin|fecha_fin)"
)
_PAUSES: Final = re.compile(r"^(?:break|pause|lunch|descanso)")
_WORKED: Final = re.compile(
    r"^(?:worked|duration|net|work|dauer|total)(?:min|h)|^(?:minutes|hours)$"
)
_COUNTED: Final = re.compile(r"(?:days|nights|nächte|tage|nuits|jours|noches|días)(?:count)?$")
_INCLUSIVE: Final = re.compile(
    r"\binclu(?:sive|ding|des?)\b|\bboth (?:the )?first and\b|\bboth days\b|einschließlich"
    r"|inklusive|\binclus\b|\bambos\b",
    re.IGNORECASE,
)


def _count_fault(value: Any, rules: str) -> str | None:
    """Describe a count of days, hours or minutes that its own start and end contradict.

    An example is `{"start": "2024-05-01", "end": "2024-05-03", "days": 7}`. None without such a
    count.
    """
    is_inclusive = _INCLUSIVE.search(rules) is not None
    for one in objects_in(value):
        plain = {plain_key(str(key)): part for key, part in one.items()}
        starts = [part for key, part in plain.items() if _STARTS.match(key)]
        ends = [part for key, part in plain.items() if _ENDS.match(key)]
        if len(starts) != 1 or len(ends) != 1:
            continue
        start, end = str(starts[0])[:40], str(ends[0])[:40]
        for key, part in plain.items():
            stated = amount_of(part)
            if stated is None:
                continue
            fault = _days_fault(key, stated, start, end, is_inclusive=is_inclusive)
            if fault := fault or _worked_fault(key, stated, start, end, plain):
                return fault
    return None


def _days_fault(
    key: str, stated: Fraction, start: str, end: str, *, is_inclusive: bool
) -> str | None:
    """Describe that `stated` days or nights do not fit two ISO dates, or return None.

    Days may or must (`is_inclusive`) include both ends. `key` is the plain key of the count.
    """
    first, last = _ISO.fullmatch(start), _ISO.fullmatch(end)
    if first is None or last is None or not _COUNTED.search(key):
        return None
    try:
        days = (date(*map(int, last.groups())) - date(*map(int, first.groups()))).days
    except ValueError:
        return None
    is_nights = re.search(r"night|nächt|nuit|noche", key) is not None
    if is_inclusive and not is_nights:
        wanted = [days + 1]
    else:
        wanted = [days] if is_nights else [days, days + 1]
    if stated in wanted or days < 0 or "work" in key or "business" in key:
        return None
    return f"from {start[:10]} to {end[:10]} are {wanted[0]}, not {number_text(stated)}"


def _worked_fault(
    key: str, stated: Fraction, start: str, end: str, plain: Mapping[str, Any]
) -> str | None:
    """Describe a duration that is not the end less the start, with or without the break.

    Else None. `plain` are the object's values by plain key.
    """
    clock = [re.fullmatch(r"(\d{1,2}):(\d\d)(?::00)?", each.strip()) for each in (start, end)]
    if clock[0] is None or clock[1] is None or not _WORKED.match(key):
        return None
    first, last = (int(each[1]) * 60 + int(each[2]) for each in clock if each is not None)
    span = (last - first) % (24 * 60)
    pauses = [part for name, part in plain.items() if _PAUSES.match(name)]
    pause = pauses[0] if pauses and isinstance(pauses[0], int | float) else 0
    minutes = stated * (60 if re.search(r"hours|h$", key) else 1)
    if pauses and not pause and pauses[0] != 0:
        return None
    wanted = {span - pause} if pauses else {span}
    if any(abs(minutes - each) < 1 for each in wanted) or (not pauses and minutes < span):
        return None
    return f"{start} to {end} less {pause} minutes are {span - pause} minutes"


def _dates_of(value: Any) -> Iterator[tuple[str, date]]:
    """Yield (plain key, date) of each ISO date in a JSON value."""
    for _, (path, leaf) in zip(range(MAX_LEAVES), leaves(value), strict=False):
        found = _ISO.fullmatch(leaf.strip()) if isinstance(leaf, str) and len(leaf) < 40 else None
        if found is None:
            continue
        try:
            yield plain_key(path[-1] if path else ""), date(*map(int, found.groups()))
        except ValueError:
            continue


def _weekday_fault(value: Any, data: str, rules: str) -> str | None:
    """Describe that a reply's only date is not on the only day that the text names, or return None.

    The text may say `Friday`, or `tomorrow` if the rules state today's date.
    """
    found = [each for each in _dates_of(value) if not _LATER.search(each[0])]
    days = {day for _, day in found}
    named = list(weekdays_in(data))
    spoken = {word.casefold() for word in _SPOKEN_WORD.findall(data)}
    if len(days) != 1 or len({*named}) + len(spoken) != 1 or dates_in(data):
        return None
    (day,) = days
    if named:
        ((weekday, place),) = named
        if _MOVED.search(data[max(0, place - 25) : place]):
            return None
        if day.weekday() != weekday:
            return f"{date_text(day)} is a {NAMES[day.weekday()]}, not a {NAMES[weekday]}"
        return None
    today, _ = today_of(rules)
    (word,) = spoken
    if today is None or today.year < 1970 or _moves_further(data, word):
        return None
    wanted = today + timedelta(days=_SPOKEN[word])
    return None if day == wanted else f"{word} is {date_text(wanted)}"


def _moves_further(data: str, word: str) -> bool:
    """Return whether a text may mean another day than `word`: `the day after tomorrow`."""
    return bool(_MOVED.search(data)) or data.casefold().count(word) > 1


def _order_fault(value: Any, data: str) -> str | None:
    """Describe a date whose day and month are swapped, where the text's order is clear.

    Else None.
    """
    found = [(int(m["a"]), int(m["b"]), m["s"]) for m in _NUMERIC.finditer(data)]
    found = [each for each in found if 1 <= each[0] <= 31 and 1 <= each[1] <= 31]
    if not found:
        return None
    slashes = [(a, b) for a, b, sign in found if sign == "/"]
    is_day_first = any(a > 12 for a, _ in slashes) and not any(b > 12 for _, b in slashes)
    if _AMERICAN.search(data):
        is_day_first = False
    stated = {(d.month, d.day) for each in dates_in(_NUMERIC.sub(" ", data)) for d in each.values}
    for _, day in _dates_of(value):
        as_is, swapped = (day.day, day.month), (day.month, day.day)
        if as_is[0] == as_is[1] or swapped in stated:
            continue
        for sign, is_clear in ((".", True), ("/", is_day_first)):
            texts = {(a, b) for a, b, each in found if each == sign}
            if is_clear and swapped in texts and as_is not in texts:
                written = f"{swapped[0]}{sign}{swapped[1]}"
                return f"{written} is {_day_text(swapped)}, not {_day_text(as_is)}"
    return None


def _day_text(day_month: tuple[int, int]) -> str:
    """Return a day and month as text, such as `4 July`; `4.13.` if there is no such month."""
    day, month = day_month
    return date_text(date(2000, month, day)).rsplit(" ", 1)[0] if month <= 12 else f"{day}.{month}."


def _span_fault(value: Any, data: str, rules: str) -> str | None:
    """Describe hours that are not those between the two times of a line, or return None.

    An example of a line is `Mon 9 - 17:30, 30 min break`. The reply's objects and the lines with
    two times must be equally many.
    """
    objects = value if isinstance(value, list) else [value]
    rows = [(_span_of(line), line) for line in data.splitlines()]
    spans = [(span, line) for span, line in rows if span is not None]
    if not spans or len(spans) != len(objects) or len(spans) > MAX_LEAVES:
        return None
    deducts = _DEDUCTS.search(rules) is not None
    for (span, line), one in zip(spans, objects, strict=True):
        if not isinstance(one, Mapping):
            return None
        for key, stated in one.items():
            minutes = _minutes_of(plain_key(str(key)), stated)
            if minutes is None:
                continue
            pause = _break_of(line)
            if pause < 0:
                return None
            wanted = [span - pause] if deducts else [span - pause, span]
            if minutes not in wanted and not _is_rounded(minutes, wanted):
                text = number_text(Fraction(wanted[0], 60))
                return f'"{key}" is {stated}, but {line.strip()[:60]} are {text} hours'
    return None


def _is_rounded(minutes: Fraction, wanted: Sequence[int]) -> bool:
    """Return whether `minutes` differs by less than one from a wanted number."""
    return any(abs(minutes - each) < 1 for each in wanted)


def _minutes_of(plain: str, stated: Any) -> Fraction | None:
    """Return a number under a plain key for hours or minutes in minutes; None for other keys."""
    amount = amount_of(stated)
    if amount is None or abs(amount) > 10_000:
        return None
    if _HOURS.match(plain):
        return amount * 60
    return amount if _MINUTES.match(plain) else None


def _span_of(line: str) -> int | None:
    """Return the minutes between the two times of a line; None unless it has exactly two."""
    times = re.findall(
        r"(?<![\d.:])(\d{1,2})(?:[:.h](\d\d))?\s?(am|pm)?(?![\d.:%])", _between(line)
    )
    if len(times) != 2 or not any(minutes or half for _, minutes, half in times):
        return None
    if len(times_in(line)) > 2:
        return None
    start, end = (
        int(hour) % (12 if half else 24) * 60 + int(minutes or 0) + 720 * (half == "pm")
        for hour, minutes, half in times
    )
    return end - start if end > start else None


def _between(line: str) -> str:
    """Return the part of a line such as `9 - 17:30`; empty without one."""
    found = re.search(
        r"\d{1,2}(?:[:.h]\d\d)?\s?(?:am|pm)?\s?(?:-|–|to|until|till|bis|à|a)\s?\d{1,2}(?:[:.h]\d\d)?"
        r"\s?(?:am|pm)?(?![\d.:%])",
        line,
    )
    return found[0] if found else ""


def _break_of(line: str) -> int:
    """Return the minutes of the break that a line names; 0 without one, -1 if it is unclear."""
    found = _BREAK.search(line)
    if found is None:
        return -1 if re.search(r"break|lunch|pause|mittag", line, re.IGNORECASE) else 0
    number, unit = (found["n"] or found["m"]).casefold(), (found["u"] or found["v"]).casefold()
    if number.startswith("half"):
        return 30
    size = int(number) if number.isdigit() else 1
    return size * (60 if unit.startswith(("h", "stu")) else 1)
