"""Values of facts (amounts, times, dates, words): their spellings, and similar values."""

from __future__ import annotations

import random
from dataclasses import dataclass

NUMBERS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen", "twenty"),
]
TENS = {
    20: "twenty",
    30: "thirty",
    40: "forty",
    50: "fifty",
    60: "sixty",
    70: "seventy",
    80: "eighty",
    90: "ninety",
}
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
UNITS = {"minutes": 1 / 1440, "hours": 1 / 24, "days": 1, "weeks": 7, "months": 30.4, "years": 365}
CURRENCIES = {
    "£": ("£%s", "%s pounds", "GBP %s"),
    "€": ("€%s", "%s euros", "EUR %s"),
    "$": ("$%s", "%s dollars", "USD %s"),
    "CHF": ("CHF %s", "%s francs", "%s Swiss francs"),
    "kr": ("%s kr", "%s kronor", "SEK %s"),
}


@dataclass(frozen=True)
class FactValue:
    """One value: its unit (`days`, `money`, `time`, `date`, `word`, ..) and its number or word."""

    unit: str
    raw: float | str

    @property
    def number(self) -> float:
        """The number of a value that has one."""
        return float(self.raw)


@dataclass(frozen=True)
class Style:
    """The spelling of values in a text; a reply may write the same values in another way."""

    currency: str
    money: int
    clock: int
    percent: str
    words: float
    dates: int

    @classmethod
    def draw(cls, rng: random.Random, currency: str = "") -> Style:
        """Draw a style of spelling; its currency is `currency`, such as `€`, or drawn for ""."""
        return cls(
            currency or rng.choice(list(CURRENCIES)),
            rng.choice((0, 0, 0, 1, 2)),
            rng.randrange(3),
            rng.choice(("%", "%", " percent", " per cent")),
            rng.choice((0.0, 0.2, 0.9)),
            rng.randrange(3),
        )


def parse_slot(spec: str, rng: random.Random) -> FactValue | None:
    """Draw a value from a slot's text, such as `days 7 14` or `word cash|cards`.

    `weekday`, `month` and `date` (`3 May`) need no choices. Returns None for any other unit
    without choices, which names words of the house, such as `goods`.
    """
    unit, _, rest = spec.partition(" ")
    if unit == "word":
        return FactValue("word", rng.choice(rest.split("|")))
    if unit == "weekday":
        return FactValue(unit, rng.choice(WEEKDAYS))
    if unit == "month":
        return FactValue(unit, rng.choice(MONTHS))
    if unit == "date":
        return FactValue(unit, f"{rng.randint(1, 28)} {rng.choice(MONTHS)}")
    return FactValue(unit, float(rng.choice(rest.split()))) if rest else None


def number_words(number: float) -> str:
    """Return a whole number from 0 to 99 in words, such as `forty-two`, and others in digits."""
    if number != int(number) or not 0 <= number < 100:
        return digits(number)
    whole = int(number)
    if whole <= 20:
        return NUMBERS[whole]
    tens, ones = whole // 10 * 10, whole % 10
    return TENS[tens] + (f"-{NUMBERS[ones]}" if ones else "")


def digits(number: float) -> str:
    """Return a number in digits: `12` if it is whole, else `12.50`."""
    return f"{number:.2f}" if number != int(number) else str(int(number))


def write(value: FactValue, style: Style, rng: random.Random) -> str:
    """Write a value in a style: `€12`, `5 p.m.`, `3 May`, `two weeks`; words stay."""
    if isinstance(value.raw, str):
        return _date(value.raw, style) if value.unit == "date" else value.raw
    if value.unit == "money":
        number = value.number
        amount = f"{number:,.0f}" if number >= 1000 and rng.random() < 0.5 else digits(number)
        return CURRENCIES[style.currency][style.money if amount != "1" else 0] % amount
    if value.unit == "percent":
        return digits(value.number) + style.percent
    if value.unit == "time":
        return clock_time(value.number, style.clock)
    if value.unit == "kilograms":
        return digits(value.number) + rng.choice((" kg", " kg", " kilos", " kilograms"))
    if value.unit == "times":
        short = {1.0: "once", 2.0: "twice"}.get(value.number)
        return short or f"{_count(value.number, style, rng)} times"
    if value.unit in UNITS:
        return _duration(value, style, rng)
    return _count(value.number, style, rng)


def _count(number: float, style: Style, rng: random.Random) -> str:
    """Write a number in words or digits at random by the style, some with a comma (1,000)."""
    if rng.random() < style.words:
        return number_words(number)
    return f"{number:,.0f}" if number >= 1000 and rng.random() < 0.5 else digits(number)


def _duration(value: FactValue, style: Style, rng: random.Random) -> str:
    """Write a duration such as `14 days`, in 25 % of the cases as `2 weeks` if that is whole."""
    number, unit = value.number, value.unit
    larger = {
        "days": (7, "weeks"),
        "hours": (24, "days"),
        "months": (12, "years"),
        "minutes": (60, "hours"),
    }
    if unit in larger and rng.random() < 0.25:
        size, name = larger[unit]
        if number % size == 0 and number > size:
            number, unit = number / size, name
    return f"{_count(number, style, rng)} {unit[:-1] if number == 1 else unit}"


def clock_time(hour: float, style: int) -> str:
    """Return an hour of the day (17.5) as `17:30` (style 0), `5:30 p.m.` (1) or `5.30 pm` (2)."""
    whole, minute = int(hour) % 24, round((hour % 1) * 60)
    if style == 0:
        return f"{whole:02d}:{minute:02d}"
    half = "a.m." if whole < 12 else "p.m."
    short = whole % 12 or 12
    if style == 1:
        return f"{short}:{minute:02d} {half}" if minute else f"{short} {half}"
    return (f"{short}.{minute:02d} " if minute else f"{short} ") + half.replace(".", "")


def _date(raw: str, style: Style) -> str:
    """Write a date such as `3 May` as that, `May 3` or `3rd of May`, by the style."""
    day, month = raw.split()
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(int(day), "th")
    return (f"{day} {month}", f"{month} {day}", f"{day}{ending} of {month}")[style.dates]


def other_value(
    value: FactValue, spec: str, near: list[FactValue], rng: random.Random
) -> FactValue | None:
    """Return a different value for the slot with the text `spec`, such as `days 7 14`.

    It is one of `near` (values of the same text) with the same unit, one drawn from the slot,
    or a similar number; now and then a duration keeps its number and changes its unit. None if
    there is none.
    """
    same_unit = [other for other in near if other.unit == value.unit and is_different(value, other)]
    if value.unit == "word" or (value.unit in ("good", "act", "offer", "paper", "group", "staff")):
        same_unit = []
    ways = [same_unit] if same_unit else []
    listed = []
    for _ in range(12):
        drawn = parse_slot(spec, rng)
        if drawn is not None and is_different(value, drawn):
            listed.append(drawn)
    if listed:
        ways += [listed, listed]
    if isinstance(value.raw, float):
        moved = [FactValue(value.unit, number) for number in _similar_numbers(value)]
        ways.append([each for each in moved if is_different(value, each)])
    if value.unit in UNITS and rng.random() < 0.15:
        units = [unit for unit in UNITS if unit != value.unit]
        ways = [[FactValue(rng.choice(units), value.raw)]]
    ways = [way for way in ways if way]
    return rng.choice(rng.choice(ways)) if ways else None


def is_different(one: FactValue, other: FactValue) -> bool:
    """Return whether two values differ; durations within 4 % (14 days, 2 weeks) do not."""
    if one.unit in UNITS and other.unit in UNITS:
        first, second = one.number * UNITS[one.unit], other.number * UNITS[other.unit]
        return abs(first - second) > 0.04 * max(first, second)
    return one.raw != other.raw


def _similar_numbers(value: FactValue) -> list[float]:
    """Return numbers easily confused with a value's, by its unit: doubled, 12 hours later."""
    number = value.number
    if value.unit == "time":
        return [(number + 12) % 24, number + 1, number - 1, number + 0.5]
    if value.unit == "percent":
        return [number + 5, number / 2 if number % 2 == 0 else number + 10, 100 - number or 90]
    if value.unit in ("money", "number", "kilograms"):
        whole = number == int(number)
        return [number * 2, number * 10, number + 1, number + (5 if whole else 0.5)]
    return [number * 2, number + 1, number * 10 if number < 10 else number + 10]
