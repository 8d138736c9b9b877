"""Checks whether a number, day or time of a call is in the conversation or follows from it.

Numbers may be converted into the unit of the argument. They may be computed, as sums, differences,
products and shares, if the user's words ask for that. Days may be named by their distance, by a
period or as the end of a span.
"""

from __future__ import annotations

import re
from datetime import timedelta

from calibrator.readers.calls.notes.chat_text import (
    MAX_DESCRIPTION,
    ChatText,
    description_of,
    holds_token,
)
from calibrator.readers.calls.notes.words import CONTROL, LOOSE, PEOPLE
from calibrator.readers.calls.reading.conversation import Call, Tool
from calibrator.readers.calls.reading.values import (
    NUMBER_WORDS,
    Value,
    calendar_day,
    name_words,
    number_of,
    spoken_times,
    word_set,
)

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
_COMPUTES = re.compile(
    r"\b(?:half|third|quarter|double|twice|triple|each|per|every|all|both|total|sum|together|rest"
    r"|remain\w*|difference|percent|more|less|fewer|extra|additional|increas\w*|decreas\w*|rais\w*"
    r"|reduc\w*|lower\w*|cut|plus|minus|split|divid\w*|share|average|warmer|cooler|colder|higher"
    r"|discount|tax|tip|add\w*|another|longer|shorter|everything|convert\w*|whole|full|by|top up"
    r"|up|down|off|back|order|them|these|those|overpaid|balance|owe\w*|for|times|nights|further"
    r"|(?:kilomet\w+|met\w+|km|miles|minutes|hours|days|weeks) long"
    r"|a (?:night|day"
    r"|month|year|piece|person|head|week|hour|unit))\b|%"
)
_TIME_FACTORS = (60.0, 1 / 60, 24.0, 1 / 24, 7.0, 1 / 7, 3_600.0, 1 / 3_600, 1_440.0, 1_000.0)
_TIMED = word_set("minutes minute min mins seconds second sec secs hours hour hrs duration delay"
    " length"
                  " days weeks ms timeout timespan span interval reminder before ttl")  # fmt: skip
_FACTORED = re.compile(
    r"\b(?:kg|g|grams?|kilos?|kilograms?|km|kilomet\w+|met\w+s?|m|cm|mm|lit\w+s?|l|ml|mg|tons?"
    r"|tonnes?"
    r"|pounds?|lbs?|ounces?|oz|miles?|feet|ft|inch\w*|cents?|pence|gallons?|bytes|kb|mb|gb|tb)\b"
)
_MEASURED = (1e3, 1e-3, 100.0, 0.01, 1e6, 1.609344, 0.621371, 0.453592, 2.204623, 2.54, 0.393701,
             0.3048, 3.28084, 28.3495, 3.785412, 0.264172, 1_024.0,
             1 / 1_024)  # fmt: skip
_UP = re.compile(
    r"\b(?:rais\w*|increas\w*|more|higher|plus|add\w*|up|warmer|longer|extend\w*|bonus|top)\b"
)
_DOWN = re.compile(r"\b(?:reduc\w*|lower\w*|decreas\w*|less|off|discount\w*|cut|down|cooler"
    r"|colder|minus"
                   r"|shorter|cheaper)\b")  # fmt: skip
_CLOCK_NAMES = word_set("hour minute day month year hours_of_day weekday week date time")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*(?:%|percent|per cent)")
_GIVEN_BACK = word_set("credit refund discount rebate deduct deduction tip waive reimburse")
_DELTAS = word_set("delta difference change adjustment diff")
_BY_PART = re.compile(r"\bby (?:a |one )?(half|third|quarter|tenth)\b")
_REST = re.compile(r"\b(?:the rest|remain\w+|what(?:'s| is) left)\b")
_PIECE = re.compile(r"[^\W_]+")
_BEARINGS = word_set("azimuth bearing heading course direction degrees")
_POINTS = {"north": 0.0, "east": 90.0, "south": 180.0, "west": 270.0}
_POINT = re.compile(r"\b(north|east|south|west)\b")


def is_day_shifted(text: str) -> bool:
    """Return whether a text in lower case speaks of the day before or after another one."""
    return any(pattern.search(text) for pattern, _ in _SHIFTS)


def is_date_supported(chat: ChatText, value: Value, call: Call) -> bool:
    """Return whether a day and its time are in the conversation, or follow from it.

    `value` is a date of `call`, whose other dates and numbers may be the ends of a span: `three
    nights`.
    """
    is_slashed = re.search(r"\d/\d", value.text) is not None  # day and month in either order
    each = [_is_day_supported(chat, day, value, call) for day in value.days]
    has_days = any(each) if is_slashed and each else all(each)
    return has_days and all(_is_time_supported(chat, t, call, value) for t in value.times)


def _is_day_supported(chat: ChatText, day: tuple[int, int, int], value: Value, call: Call) -> bool:
    """Return whether the user, a result or the instructions name a day or imply it.

    A period such as `last month` implies its ends and, near today, `this week` its first and
    last days; without today's date, `tomorrow` implies any day.
    """
    s, own_date = chat.sources, calendar_day(day)
    plain = Value(value.path, value.raw, value.text, "date", None, (day,), ())
    if any(part.holds(plain) for part in (s.request, s.users, s.results, s.rules)):
        return True
    if day in chat.days:
        return True
    if own_date is None:
        return False
    if own_date in chat.named_days or own_date in chat.relative_in_rules:
        return True
    for pattern, days in _SHIFTS:
        if pattern.search(s.users.text):
            beside = own_date + timedelta(days)
            if beside in chat.named_days or (beside.year, beside.month, beside.day) in chat.days:
                return True
    users = s.users.text
    if chat.today is None and _RELATIVE.search(users):
        return True
    if _PERIODS.search(users) and (own_date.day == 1 or (own_date + timedelta(1)).day == 1):
        return True
    if _PERIODS.search(users) and own_date == chat.today:  # until now
        return True
    is_near = chat.today is None or abs((own_date - chat.today).days) <= MOST_WEEK_DAYS
    if is_near and _WEEKS.search(users) and own_date.weekday() in (0, 4, 5, 6):
        return True
    others = [d for v in call.values if v is not value for each in v.days
              if (d := calendar_day(each)) is not None]  # fmt: skip
    gaps = {abs((own_date - other).days) for other in others}
    return bool(gaps & _lengths(chat.text))


def _lengths(text: str) -> set[int]:
    """Return the numbers of days that a text, in lower case, names: 3 for `three nights`.

    A month has four lengths.
    """
    found = {7} if "a week" in text or "one week" in text else set()
    for number, unit in _LENGTH.findall(text)[:100]:
        days = int(number) if number.isdigit() else int(NUMBER_WORDS.get(number, 0))
        if unit == "month":
            found |= {28 * days, 29 * days, 30 * days, 31 * days}
            continue
        found.add(days * (7 if unit == "week" else 1))
        found |= {days - 1, days + 1} if unit == "day" else set()  # the first one counts, or not
    return found - {0}


def _is_time_supported(chat: ChatText, time: int, call: Call, value: Value) -> bool:
    """Return whether a time (minutes of the day) was named or follows from words of the user.

    Midnight always does; others are `ten` with the part of the day, `half past ten`, or the end
    of a span.
    """
    s = chat.sources
    known_times = s.users.times | s.results.times | s.rules.times
    users = s.users.text
    if time in known_times or time in (0, 1_439):
        return True
    if (time + 720) % 1_440 in spoken_times(users):  # ten in the evening is not 10:00
        return False
    if not _HALF_DAY.search(users) and (time - 720) in known_times:
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
    starts = {t for v in call.values if v is not value for t in v.times} | known_times
    spans = {float(n) for v in call.values if (n := v.number) is not None} | chat.spans()
    return any(time - start in spans or (time - start) / 60 in spans for start in starts)


def _hour(text: str) -> int:
    """Return the hour that digits or a word name; 0 for an unknown word."""
    return int(text) if text.isdigit() else int(NUMBER_WORDS.get(text, 0))


def is_number_supported(chat: ChatText, value: Value, tool: Tool | None) -> bool:
    """Return whether a number is in the conversation, computable from it, or harmless.

    Harmless are controls such as `limit`, 0 and 1, numbers above 1e8 and those in the
    argument's description. `15 %` or `half` in the request allows computed ones.
    """
    number, names = value.number, set(name_words(value.path))
    last = name_words(value.path)[-1:]
    if number is None or (last and last[0] in CONTROL) or abs(number) > 1e8:
        return True
    if isinstance(value.raw, str) and value.raw.isdigit() and not names & (PEOPLE | _TIMED):
        return chat.has_piece(value.text) or _describes_number(value, tool, number)
    if number in chat.numbers or -number in chat.numbers:
        return True
    if names & _DELTAS and chat.sources.is_computed(number):
        return True
    if number in (0.0, 1.0) or (names & LOOSE and 0 < number <= 10):
        return True
    if _describes_number(value, tool, number):
        return True
    request = chat.sources.users.text
    if names & _BEARINGS and number in {_POINTS[p] for p in _POINT.findall(request)}:
        return True
    if names & PEOPLE and number <= 12 and not (chat.plain_numbers - {1.0}):
        return bool(re.search(r"\b(?:me|us|we|my|our|and|family|couple|husband|wife)\b", request))
    if names & _CLOCK_NAMES and _is_time_part(chat, number):
        return True
    if names & _TIMED and any(
        abs(number * f - n) < 1e-6 for f in (1.0, *_TIME_FACTORS) for n in chat.spans() if n
    ):
        return True
    if 0 < number < 1 and round(number * 100, 4) in chat.numbers:
        return True
    if _is_converted(chat, number, names, request):
        return True
    is_given_back = bool(set(name_words(tool.name) if tool else ()) & _GIVEN_BACK)
    return bool(_COMPUTES.search(request)) and _is_computed(
        chat, number, request, is_share_only=is_given_back or bool(names & _GIVEN_BACK)
    )


def _is_converted(chat: ChatText, number: float, names: set[str], request: str) -> bool:
    """Return whether a number is one of the user's in another unit: 1000 for `1 kg`.

    `names` are the words of the argument's name, `request` the user's text in lower case.
    """
    user_numbers = chat.sources.users.numbers
    if "fahrenheit" in request or "celsius" in request or "\u00b0f" in request:
        other = [(n - 32) * 5 / 9 for n in user_numbers] + [n * 9 / 5 + 32 for n in user_numbers]
        if any(abs(number - n) < 0.6 for n in other):
            return True
    if names & {"cents", "cent", "pence", "minor"}:
        return number / 100 in user_numbers
    if names & {"percent", "percentage", "pct", "ratio"} and re.search(
        r"\bhalf|third|quarter", request
    ):
        return number in (50, 25, 75, 33, 0.5, 0.25, 0.75)
    if not _FACTORED.search(request):
        return False
    if any(re.search(rf"\d\s?{re.escape(name)}\b", request) for name in names):
        return False  # the user uses the argument's own unit
    factors = _factors(names, request) or _MEASURED
    return any(
        abs(number - n * f) <= 0.01 * abs(number) for f in factors for n in user_numbers if n
    )


def _is_time_part(chat: ChatText, number: float) -> bool:
    """Return whether a number is an hour, a minute, a day, a month or a year that was named.

    Times and days of the user and of results count.
    """
    times = chat.sources.users.times | chat.sources.results.times
    if any(number in (t // 60, t % 60, t // 60 % 12) for t in times):
        return True
    days = chat.sources.users.days | chat.sources.results.days
    days |= {(d.year, d.month, d.day) for d in chat.named_days}
    return any(number in day for day in days)


def _is_computed(chat: ChatText, number: float, request: str, *, is_share_only: bool) -> bool:
    """Return whether a number is a share, a sum or a difference of the conversation's numbers.

    Sums of a field over listed records count too. With `is_share_only`, as for a credit, only
    the share itself counts and not the rest.
    """
    if _is_share(chat, number, request, is_share_only=is_share_only):
        return True
    if _REST.search(request) and number > max(chat.numbers, default=0.0):
        return False
    is_percent = is_share_only and _PERCENT.search(request) is not None
    if not is_percent and not _BY_PART.search(request) and chat.sources.is_computed(number):
        return True
    columns: dict[tuple[int, str], list[float]] = {}
    for record in chat.sources.records[-60:]:
        for key, field in list(record.fields.items())[:20]:
            if (each := number_of(field)) is not None:
                columns.setdefault((record.group, str(key)), []).append(each)
    sums = {round(sum(each), 2) for each in columns.values()}
    return any(abs(number - each) < 0.006 for each in sums)


def _is_share(chat: ChatText, number: float, request: str, *, is_share_only: bool) -> bool:
    """Return whether a number is a part of one in the conversation: half, a third, 15 % off.

    With `is_share_only` the rest after a part does not count: a credit of 15 % is the 15 %
    itself.
    """
    shares = {0.5: "half", 1 / 3: "third", 2 / 3: "third", 0.25: "quarter", 0.75: "quarter",
              2.0: "double twice", 3.0: "triple", 0.1: "tenth"}  # fmt: skip
    factors = {share for share, names in shares.items() if any(n in request for n in names.split())}
    is_up, is_down = bool(_UP.search(request)), bool(_DOWN.search(request))
    if is_up != is_down and (by := _BY_PART.search(request)):
        part = {"half": 0.5, "third": 1 / 3, "quarter": 0.25, "tenth": 0.1}[by[1]]
        factors = {1 + part if is_up else 1 - part}
    for percent in _PERCENT.findall(request)[:10]:
        share = float(percent) / 100
        if is_share_only:
            factors.add(share)
            continue
        factors |= {1 + share} if is_up and not is_down else {1 - share} if is_down else set()
        factors |= {1 + share, 1 - share} if not is_up and not is_down else set()
        factors.add(share)
    return any(abs(number - s * n) < 0.006 for s in factors for n in chat.numbers)


def _factors(names: set[str], request: str) -> list[float]:
    """Return the factors from the units of a request to that of an argument's name, or [].

    [] if either unit is not known. For `2 kg` and the argument `weight_grams` it has 1000.0.
    """
    words = set(_PIECE.findall(request)) | set(re.findall(r"(?<=\d)[a-z]+\b", request))
    for units in _BASES:
        own_units = [units[name] for name in names if name in units]
        request_units = [units[word] for word in words if word in units]
        if own_units and request_units:
            return [each / own_units[0] for each in request_units]
    return []


def _bases(text: str) -> dict[str, float]:
    """Return the units of a text with their shares of the first one: {`g`: 1.0, `kg`: 1000.0}.

    `text` lists a share and its names for each unit, separated by bars: `1 g gram|1000 kg`.
    """
    found: dict[str, float] = {}
    for line in text.split("|"):
        base, *names = line.split()
        found |= dict.fromkeys(names, float(base))
    return found


_BASES = (  # units of a dimension, each in the first one
    _bases("1 g gram grams|1000 kg kilo kilos kilogram kilograms|1e6 t ton tons tonne tonnes"
           "|0.001 mg|453.592 lb lbs pound pounds|28.3495 oz ounce ounces"),
    _bases("1 m meter meters metre metres|1000 km kilometer kilometers kilometre kilometres"
           "|0.01 cm|0.001 mm|1609.344 mile miles|0.3048 ft feet foot|0.0254 inch inches"),
    _bases("1 l liter liters litre litres|0.001 ml|3.785412 gallon gallons"),
)  # fmt: skip


def _describes_number(value: Value, tool: Tool | None, number: float) -> bool:
    """Return whether the description of an argument lists a number: 1 = cleaning."""
    return holds_token(description_of(value, tool)[:MAX_DESCRIPTION], f"{number:g}")
