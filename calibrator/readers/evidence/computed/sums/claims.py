"""What a reply states itself: conversions, weekdays of dates, totals of lists, and equations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import number_text, numbers_in
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange
from calibrator.readers.evidence.computed.calendar.reading import (
    NAMES,
    dates_in,
    weekdays,
)
from calibrator.readers.evidence.computed.sums.expressions import read_expression
from calibrator.readers.evidence.computed.sums.units import Conversion, quantities_in
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

MAX_REPLY: Final = 4_000  # characters
OFF: Final = Fraction(1, 10)  # of a conversion, which people round
DEGREES: Final = 6  # of a temperature
_HAS_UNITS: Final = compile_guarded(
    r"°|\b(?:km|kms|kg|cm|mm|oz|lbs?|ml|mph|miles?|ounces?|pounds?|grams?|cups?|inch(?:es)?|feet"
    r"|foot|yards?|lit(?:er|re)s?|gallons?|fahrenheit|celsius|met(?:er|re)s?|kilomet(?:er|re)s?)\b",
    re.IGNORECASE,
)
_LINK: Final = re.compile(
    r"\s*\*{0,2}(?: (?:of|de|d'|von) ?[\w' -]{2,25}?)?\s*(?:\(|=|≈|is|are|equals?|equal to"
    r"|comes? to"
    r"|makes?|works? out (?:at|to)|converts? to|corresponds? to|ist|sind|entsprechen|entspricht"
    r"|son|es"
    r"|equivalen? a|font|fait|est|sont)\s*(?:equal to |equivalent to )?(?:about|approximately"
    r"|approx\.?"
    r"|roughly|around|exactly|just (?:over|under)|nearly|almost|etwa|ca\.?|rund|ungefähr|unos|unas"
    r"|aproximadamente|environ|~|≈)?\s*\*{0,2}$",
    re.IGNORECASE,
)
_RANGE: Final = re.compile(
    r"(?:[-–—−/x×]|\bto|\bor|\bbis|\band|\ba|\bà|\bper)\s*\*{0,2}$", re.IGNORECASE
)
_YEAR: Final = re.compile(r"\b(?:1[89]|20)\d\d\b")
_DAY_NAME: Final = re.compile(r"(?P<d>[^\W\d_]{5,10})(?:,| the| den| dem| el| le)?\s{1,2}$")
_AMOUNT: Final = re.compile(
    r"(?:[$€£]\s?(?P<a>\d[\d,]*(?:\.\d{1,2})?)|(?P<b>\d[\d.]*(?:,\d{1,2})?)\s?(?:€|euros?\b|EUR\b))"
)
_TOTAL: Final = re.compile(
    r"^\W*(?:grand |estimated |overall )?(?:total|sum|gesamt\w*|summe|insgesamt|somme|suma)\b",
    re.IGNORECASE,
)
_OTHER_ROW: Final = re.compile(
    r"\b(?:sub-?total|remain\w*|left|buffer|budget|saving\w*|discount|minus|less|per|each|deposit"
    r"|income|zwischensumme|rest|tax|vat|change)\b|[-–]\s?[$€£]|\d\s?[-–]\s?[$€£]?\d",
    re.IGNORECASE,
)
_LIMIT: Final = compile_guarded(
    r"\bbudget\b[^.?!\n\d]{0,30}?(?P<a>[$€£]\s?\d[\d,]*|\d[\d.,]*\s?(?:€|euros?|dollars|pounds))"
    r"|\b(?:under|at most|no more than|max(?:imum)?(?: of)?|up to|within|spend|maximal|höchstens"
    r"|máximo|como mucho|au (?:plus|maximum)|moins de) (?P<b>[$€£]\s?\d[\d,]*|\d[\d.,]*\s?€)",
    re.IGNORECASE,
)
_IS_WRONG: Final = compile_guarded(
    r"\b(?:not|wrong|incorrect|mistake|instead of|myth)\b", re.IGNORECASE
)

MAX_EQUATIONS: Final = 200  # equations of a reply that are computed
SHIFT: Final = -2.0  # log-odds
NEARLY: Final = Fraction(1, 200)  # relative difference of a result that may be rounded
_NUMBER: Final = r"[$€£]?(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?:\.\d{1,9})?%?"
_SIGN: Final = r"\s?(?:[-+*/×·÷−–]|x)\s?"
_EQUATION: Final = re.compile(
    rf"(?<![\w)(\]^*/×·÷+=−–.,%$€£:{{}}√∛-])(?<![-+*/×·÷=−–^]\s)"
    rf"(?P<l>\(?{_NUMBER}(?:{_SIGN}\(?{_NUMBER}\)?){{1,8}})\s?=\s?(?P<r>[-−]?{_NUMBER})"
    rf"(?![\w^!(:{{]|[.,]\d|\s?[-+*/×·÷−–^]|\s?x\s?\d|\s\()"
)
_NO_SUM: Final = re.compile(r"\d{1,4}([-/])\d{1,2}\1\d{1,4}$|\d+[-–]\d+$")  # a date, a range
_OTHER_MEANING: Final = re.compile(
    r"\b(?:mod(?:ulo|ular)?|base (?!on)\w+|binary|hex\w*|octal|puzzle|riddle|fals[ey]|wrong"
    r"|incorrect|mistakes?|common error|regex|code|python|javascript|equations?)\b|```|\\",
    re.IGNORECASE,
)


def suspect_claim(exchange: Exchange) -> Finding | None:
    """Find a statement of the reply that is false by itself, or return None.

    Examples are `5 miles (20 km)`, a date with a wrong weekday, and a total that its rows do not
    have.
    """
    reply = exchange.reply
    if len(reply) > MAX_REPLY or not any(map(str.isdigit, reply)):
        return None
    if _HAS_UNITS.search(reply) and not _IS_WRONG.search(reply):
        found = next(_conversions(exchange), None)
        if found is not None:
            return found
    if _YEAR.search(reply):
        found = next(_weekdays(reply), None)
        if found is not None:
            return found
    return _total(exchange) if "total" in reply.lower() or "umme" in reply else None


def _conversions(exchange: Exchange) -> Iterator[Finding]:
    """Yield a finding for each pair of quantities that a reply equates wrongly.

    An example is `5 miles = 20 km`.
    """
    reply = exchange.reply
    found = [] if re.search("[⁄¼½¾⅓⅔⅛]", reply) else quantities_in(reply)
    for (one, unit, end), (other, target, _) in pairwise(found):
        if unit is None or target is None or unit == target or unit.dimension != target.dimension:
            continue
        if not _LINK.match(reply[end : other.start].rstrip()) or len(one.values + other.values) > 2:
            continue
        is_scale = unit.dimension == "temperature"
        if is_scale and re.search(r"[-–−]", reply[max(0, one.start - 1) : one.start + 1]):
            continue
        if _RANGE.search(reply[max(0, one.start - 8) : one.start]) or _goes_on(reply, other.end):
            continue
        wanted = Conversion(one.value, unit, target).result
        off = abs(other.value - wanted)
        is_wrong = off > DEGREES if is_scale else off > OFF * abs(wanted)
        is_quoted = reply[other.start : other.end] in exchange.source
        if is_wrong and off > Fraction(1, 10**other.decimals) and not is_quoted:
            reason = (
                f"{number_text(one.value)} {unit.name} are {number_text(wanted, 1)} {target.name},"
                f" not {number_text(other.value)}"
            )
            yield Finding(None, -2.5, reason)


def _goes_on(text: str, end: int) -> bool:
    """Return whether another number follows, as in `5-6`."""
    return bool(re.match(r"\s?(?:[-–—/x×]|to\b|or\b|bis\b|and\b)\s?\d", text[end : end + 6]))


def _weekdays(reply: str) -> Iterator[Finding]:
    """Yield a finding for each date with a year after the name of another weekday."""
    for date in dates_in(reply):
        day = date.value
        if not date.has_year or day is None or not 1800 <= day.year <= 2100:
            continue
        named = _DAY_NAME.search(reply[max(0, date.start - 16) : date.start])
        stated = weekdays().get(named["d"].casefold()) if named else None
        if stated is not None and stated != day.weekday():
            yield Finding(None, -2.0, f"{day.isoformat()} is a {NAMES[day.weekday()]}")


def _total(exchange: Exchange) -> Finding | None:
    """Find a total that its rows do not add up to, or that exceeds the user's budget.

    Else None.
    """
    rows: list[Fraction] = []
    for line in exchange.reply.splitlines()[:60]:
        amounts = [_value(found) for found in _AMOUNT.finditer(line)]
        if not amounts:
            continue
        if _TOTAL.search(line.replace("|", " ").replace("*", " ")):
            total = amounts[-1]
            limit = _limit(exchange)
            if limit is not None and total > limit:
                reason = f"the total of {number_text(total)} is above {number_text(limit)}"
                return Finding(None, -2.5, reason)
            is_sum = len(rows) >= 3 and len(amounts) == 1 and "~" not in exchange.reply
            if is_sum and abs(sum(rows) - total) > max(Fraction(1), total / 50):
                reason = f"the amounts add up to {number_text(sum(rows, Fraction(0)))}"
                return Finding(None, -2.0, f"{reason}, not {number_text(total)}")
            return None
        is_row = "|" in line or re.match(r"\s*(?:[-*•]|\d+[.)])\s", line)
        if _OTHER_ROW.search(re.sub(r"\([^()]*\)", "", line)) or not is_row:
            return None
        without = re.sub(r"\([^()]*\)", "", line)
        plain = [_value(found) for found in _AMOUNT.finditer(without)]
        if len(plain) != 1 and "|" not in line:
            return None
        rows.append((plain or amounts)[-1])
    return None


def _limit(exchange: Exchange) -> Fraction | None:
    """Return the largest sum that the user allows, as in `under 500 euros`.

    None unless there is one.
    """
    users = [turn.text for turn in exchange.conversation.earlier if turn.role == "user"]
    found = {
        numbers_in(mark["a"] or mark["b"])[0].value
        for text in (*users[-6:], exchange.request)
        for mark in _LIMIT.finditer(text[:1_000])
        if numbers_in(mark["a"] or mark["b"])
    }
    return found.pop() if len(found) == 1 else None


def suspect_equation(exchange: Exchange) -> Finding | None:
    """Find the first false equation of the reply, such as `3 * 4 = 11`, or return None.

    It is no proof against the answer. A result may be rounded. A reply about code, other bases or
    mistakes is not looked at.
    """
    reply = exchange.reply[:MAX_TEXT]
    if "=" not in reply or _OTHER_MEANING.search(exchange.request[:MAX_TEXT]):
        return None
    if _OTHER_MEANING.search(reply):
        return None
    for number, found in enumerate(_EQUATION.finditer(reply)):
        if number == MAX_EQUATIONS:
            break
        value = _equation_value(found["l"])
        if value is not None and not _is_result(value, found["r"]):
            reason = f"{' '.join(found['l'].split())} is {number_text(value)}, not {found['r']}"
            return Finding(None, SHIFT, reason)
    return None


def _equation_value(text: str) -> Fraction | None:
    """Return the value of an expression; None if it is a date or a range, or cannot be read."""
    if text.count("(") != text.count(")") or _NO_SUM.match(text):
        return None
    read = read_expression(text.replace(",", ""))
    return None if read is None else read.value


def _is_result(value: Fraction, written: str) -> bool:
    """Return whether the number `written` is a value, rounded or cut to its own digits.

    A percentage may mean the number or its hundredth.
    """
    plain = re.sub(r"[$€£,]", "", written).replace("−", "-")
    number = Fraction(plain.rstrip("%"))
    step = Fraction(1, 10 ** len(plain.rstrip("%").partition(".")[2]))
    readings = [value, value * 100] if written.endswith("%") or "%" in written else [value]
    return any(
        abs(each - number) <= step / 2
        or (step < 1 and abs(each - number) < step)
        or (_is_endless(each) and abs(each - number) <= NEARLY * abs(each))
        for each in readings
    )


def _is_endless(value: Fraction) -> bool:
    """Return whether a value has no finite decimal form, so that everybody rounds it."""
    return 10**30 % value.denominator != 0


def _value(found: re.Match[str]) -> Fraction:
    """Return the amount of a match of `_AMOUNT`."""
    text = found["a"].replace(",", "") if found["a"] else found["b"].replace(".", "")
    return Fraction(text.replace(",", ".").rstrip(".") or "0")
