"""Lines of a crontab, compared with the times that the request wants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.calendar.reading import times_in, weekdays
from calibrator.text.guarded import compile_guarded

MAX_REQUEST: Final = 400  # characters
_IS_CRON: Final = compile_guarded(r"\bcron\w*", re.IGNORECASE)
_FIELD: Final = r"(?:[\d*][\d*/,-]{0,40}|(?:MON|TUE|WED|THU|FRI|SAT|SUN)(?:[-,][A-Z]{3})*)"
_LINE: Final = re.compile(rf"(?<![\w*/,-])({_FIELD}(?:[ \t]+{_FIELD}){{4}})(?=[ \t`\"'\n]|$)")
_PATH: Final = re.compile(r"\S*/\S+|`[^`\n]{1,200}`|\S+\.(?:sh|py|js|pl|rb)\b")
_EVERY: Final = re.compile(
    r"\b(?:every|all|alle|cada|toutes? les) (?P<n>\d{1,2}|other|second|two|five|ten|fifteen"
    r"|thirty)? ?(?P<u>minutes?|mins?|minuten?|minutos?|hours?|stunden?|horas?|heures?)\b"
    r"|\b(?P<h>hourly)\b",
    re.IGNORECASE,
)
_WORKING: Final = re.compile(
    r"\b(?:week ?days?(?: only)?|work(?:ing|week) ?days?|business days?"
    r"|(?:mon(?:day)?s?) ?(?:to|through|thru|-|–) ?fri(?:day)?s?"
    r"|werktags|wochentags|unter der woche|montags? bis freitags?|entre semana|días laborables"
    r"|(?:de )?lunes a viernes|(?:du )?lundi au vendredi|jours? (?:ouvrés?|de semaine))\b"
    r"(?:\s*\([^()]{0,40}\))?",
    re.IGNORECASE,
)
_WEEKEND: Final = re.compile(
    r"\bweek-?ends?\b|\bwochenenden?\b|\bfines? de semana\b", re.IGNORECASE
)
_FIRST_DAY: Final = re.compile(
    r"\b(?:the )?(?:first|1st)(?: day)? (?:of|in) (?:each|every|the|a) month\b"
    r"|\bmonthly on the 1st\b|\b(?:am )?(?:ersten|1\.)(?: tag)? (?:des|jedes|eines) monats\b"
    r"|\bel (?:primer )?día"
    r" (?:1 )?de cada mes\b|\ble premier (?:jour )?de chaque mois\b|\ble 1er de chaque mois\b",
    re.IGNORECASE,
)
_DAY_OF_MONTH: Final = re.compile(
    r"\b(?:the )?(?P<d>\d{1,2})(?:st|nd|rd|th) (?:day )?of (?:each|every|the) month\b",
    re.IGNORECASE,
)
_MORNING: Final = re.compile(
    r"\b(?P<n>\d{1,2}) (?:o'clock )?(?P<w>in the (?:morning|afternoon|evening)|uhr (?:morgens|früh)"
    r"|de la mañana|de la tarde|du matin|du soir|at night)\b",
    re.IGNORECASE,
)
_OTHER: Final = re.compile(
    r"\b(?:last|except|not|between|from|until|while|but|second|third|quarter\w*|year\w*|twice|except"
    r"|half|time ?zone|utc|reboot|both|january|february|march|april|june|july|august|september"
    r"|october|november|december|explain|mean|what does)\b",
    re.IGNORECASE,
)
_NUMBERS: Final = {"other": 2, "second": 2, "two": 2, "five": 5, "ten": 10, "fifteen": 15,
                   "thirty": 30}  # fmt: skip
_ALL: Final = tuple(
    frozenset(range(first, last + 1))
    for first, last in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
)
_SHORT: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES: Final = ("minute", "hour", "day of the month", "month", "day of the week")

Fields = tuple[frozenset[int], ...]


def verify_schedule(exchange: Exchange) -> Verdict | None:
    """Judge the crontab line of a reply, such as `0 9 * * 1-5`, by the times in the request.

    None unless the conversation is about cron, the reply has exactly one such line, and the wanted
    times are clear.
    """
    request = exchange.request
    if len(request) > MAX_REQUEST or "*" not in exchange.reply:
        return None
    users = [turn.text for turn in exchange.conversation.earlier if turn.role == "user"]
    if not any(_IS_CRON.search(text[:MAX_REQUEST]) for text in (request, *users[-2:])):
        return None
    lines = {" ".join(line.split()) for line in _LINE.findall(exchange.reply[:3_000])}
    wanted = wanted_fields(request)
    if len(lines) != 1 or wanted is None:
        return None
    written = read_line(lines.pop())
    if written is None:
        return Verdict(False, "the crontab line has a value that does not exist", "code")
    for field, one, other in zip(_NAMES, written, wanted, strict=True):
        if one != other:
            return Verdict(
                False, f"the {field} is {_format_values(one)}, not {_format_values(other)}", "code"
            )
    return Verdict(True, "the crontab line runs at the requested times", "code")


def _format_values(values: Iterable[int]) -> str:
    """Return values as text, at most eight: `0, 15, 30, 45`; `any` for all values of a field."""
    ordered = sorted(values)
    if frozenset(ordered) in _ALL:
        return "any"
    return ", ".join(map(str, ordered[:8]))


def read_line(line: str) -> Fields | None:
    """Return the sets of values of the five fields of a crontab line; Sunday is 0.

    None if a field is malformed or has a value out of range.
    """
    parts = [
        _values(text.lower(), *pair) for text, pair in zip(line.split(), _bounds(), strict=True)
    ]
    found = [part for part in parts if part]
    if len(found) != len(parts):
        return None
    found[4] = frozenset(day % 7 for day in found[4])
    return tuple(found)


def _bounds() -> list[tuple[int, int]]:
    """Return the least and the greatest value of each field; 7 is allowed for Sunday."""
    return [(min(each), max(each)) for each in _ALL[:4]] + [(0, 7)]


def _values(text: str, low: int, high: int) -> frozenset[int] | None:
    """Return the values of one field such as `*/15` or `mon-fri`, between `low` and `high`.

    None if it is malformed, empty or out of range.
    """
    for number, name in enumerate(_SHORT):
        text = text.replace(name, str(number))
    found: set[int] = set()
    for part in text.split(","):
        read = re.fullmatch(r"(?P<a>\*|\d+)(?:-(?P<b>\d+))?(?:/(?P<s>\d+))?", part)
        if read is None or read["s"] == "0":
            return None
        first = low if read["a"] == "*" else int(read["a"])
        last = int(read["b"]) if read["b"] else high if read["a"] == "*" or read["s"] else first
        if read["a"] == "*" and high == 7:
            last = 6
        if not low <= first <= last <= high:
            return None
        found |= set(range(first, last + 1, int(read["s"] or 1)))
    return frozenset(found)


def wanted_fields(request: str) -> Fields | None:
    """Return the sets of values of the five crontab fields that a request wants; Sunday is 0.

    `every weekday at 9 am` gives minute 0, hour 9, days 1 to 5. None if that is not clear.
    """
    text = _PATH.sub(" ", request)
    if _OTHER.search(text):
        return None
    fields = list(_ALL)
    text = _take_days(text, fields)
    every = _EVERY.search(text)
    text = text if every is None else text[: every.start()] + " " + text[every.end() :]
    early = _MORNING.search(text)
    if early:
        late = not re.search(r"morning|mañana|matin|morgens|früh", early["w"], re.IGNORECASE)
        minutes = [(int(early["n"]) % 12 + 12 * late) * 60]
        text = text[: early.start()] + " " + text[early.end() :]
    else:
        times = times_in(text)
        minutes = [time.minutes for time in times]
        for time in reversed(times):
            text = text[: time.start] + " " + text[time.end :]
    if any(character.isdigit() for character in text):
        return None
    if every is not None and not minutes:
        number = (every["n"] or "1").casefold()
        step = _NUMBERS.get(number) or int(number)
        if not step:
            return None
        is_hour = every["h"] or every["u"].casefold().startswith(("h", "stunde"))
        fields[0] = frozenset([0]) if is_hour else frozenset(range(0, 60, step))
        fields[1] = frozenset(range(0, 24, step)) if is_hour else fields[1]
    elif every is None and len(minutes) == 1:
        fields[0], fields[1] = frozenset([minutes[0] % 60]), frozenset([minutes[0] // 60 % 24])
    else:
        return None
    return tuple(fields)


def _take_days(text: str, fields: list[frozenset[int]]) -> str:
    """Set the fields of the days that a text names, in place, and return the text without them.

    The name of a single weekday stays in the text.
    """
    for pattern, days in ((_WORKING, range(1, 6)), (_WEEKEND, (0, 6))):
        if pattern.search(text):
            fields[4] = frozenset(days)
            return pattern.sub(" ", text)
    if _FIRST_DAY.search(text):
        fields[2] = frozenset([1])
        return _FIRST_DAY.sub(" ", text)
    found = _DAY_OF_MONTH.search(text)
    if found:
        fields[2] = frozenset([int(found["d"])])
        return _DAY_OF_MONTH.sub(" ", text)
    words = {word.rstrip("s"): word for word in re.findall(r"[^\W\d_]+", text.casefold())}
    named = {weekdays()[word] for word in {*words, *words.values()} if word in weekdays()}
    if named:
        fields[4] = frozenset((day + 1) % 7 for day in named)
    return text
