"""The equations that a reply states itself, such as "106.50 + 3 * 152.50 = 594"."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import number_text
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange
from calibrator.readers.evidence.computed.sums.expressions import read_expression
from calibrator.readers.evidence.finding import Finding

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


def suspect_equation(exchange: Exchange) -> Finding | None:
    """Find an equation of the reply that is false, without proof that the answer depends on it.

    A result may be rounded, and a percentage may be a number or a share. A reply about code, other
    bases or mistakes is not looked at.
    """
    reply = exchange.reply[:MAX_TEXT]
    if "=" not in reply or _OTHER_MEANING.search(exchange.request[:MAX_TEXT]):
        return None
    if _OTHER_MEANING.search(reply):
        return None
    for number, found in enumerate(_EQUATION.finditer(reply)):
        if number == MAX_EQUATIONS:
            break
        value = _value(found["l"])
        if value is not None and not _is_result(value, found["r"]):
            reason = f"{' '.join(found['l'].split())} is {number_text(value)}, not {found['r']}"
            return Finding(None, SHIFT, reason)
    return None


def _value(text: str) -> Fraction | None:
    """Return the value of an expression; None if it is no sum, such as a date."""
    if text.count("(") != text.count(")") or _NO_SUM.match(text):
        return None
    read = read_expression(text.replace(",", ""))
    return None if read is None else read.value


def _is_result(value: Fraction, written: str) -> bool:
    """Return whether a number is a value, rounded or cut to its own digits."""
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
