"""Sums in a text with their stated results, and their values: `16 logs * 5 each = 80`.

They are parsed by hand, a hundred characters before each sign of equality. No text is evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from calibrator.text.looking_for import SoughtPattern

MAX_SUMS = 60
REACH = 100  # characters before a sign of equality that are searched for its sum
CLOSE = 160  # a result counts as rounded below a relative error of 1 / CLOSE
RESULT = SoughtPattern(
    re.compile(
        r"(?:=|≈|\\approx|\bequals\b)\s{0,3}\\?[$€£]?\s?(-?\d[\d,]*(?:\.\d+)?)(%?)"
        r"(?![\d^!(*/\u00d7+])"
    ),
    parts=("=", "≈", "\\approx", "equals"),
)
_BEGIN = re.compile(r"[\n=≈:;?!<>{}\[\]\"]|\.\s|,\s|\\approx|\bequals\b|\bis\b|\bare\b")
_TOKEN = re.compile(
    r"(?P<unit>/\s?[A-Za-z]+)|(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)|(?P<sign>\\times|\\cdot|\\div|[-+*/\u00d7\u00f7\u00b7\u2212\u2013^()%])"
    r"|(?P<word>[A-Za-z]+)|(?P<other>\S)"
)
_SIGNS = {
    **dict.fromkeys(("\\times", "\u00d7", "\u00b7", "\\cdot", "x", "times"), "*"),
    **dict.fromkeys(("\\div", "\u00f7", "over"), "/"),
    **dict.fromkeys(("\u2212", "\u2013", "minus"), "-"),
    "plus": "+",
}
_IGNORED = frozenset("$€£\\,'")


def sums_in(text: str) -> Iterator[tuple[float, float]]:
    """Yield the value and the stated result of each readable sum.

    At most 4 * `MAX_SUMS` results are looked at.
    """
    for count, found in enumerate(RESULT.pattern.finditer(text)):
        if count == 4 * MAX_SUMS:
            return
        value = value_of(text[max(0, found.start() - REACH) : found.start()])
        if value is not None:
            yield value, number(found[1]) / (100 if found[2] else 1)


def value_of(left: str) -> float | None:
    """Return the value of the sum at the end of a text, or None where there is no readable one."""
    begin = 0
    for found in _BEGIN.finditer(left):
        begin = found.end()
    tokens = _tokens(left[begin:])
    if tokens is None or not any(each in "+-*/^" for each in tokens[1:] if isinstance(each, str)):
        return None
    try:
        value, end = _sum(tokens, 0)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if end == len(tokens) and math.isfinite(value) else None


def _tokens(text: str) -> list[float | str] | None:
    """Return numbers and signs without units and without words before the first number, or None."""
    found: list[float | str] = []
    for each in _TOKEN.finditer(text):
        kind, written = each.lastgroup, each[0]
        if kind == "number":
            if found and isinstance(found[-1], float):
                return None
            found.append(number(written))
        elif written == "of" and "%" in text[: each.start()]:
            found.append("*")
        elif kind == "word" and found and written.lower() in _SIGNS:
            found.append(_SIGNS[written.lower()])
        elif kind in ("word", "unit") or written in _IGNORED:
            continue
        elif kind == "sign" and written == "%":
            if not found or not isinstance(found[-1], float):
                return None
            found[-1] /= 100
        elif (
            written == "("
            and found
            and text[each.start() - 1] != ")"
            and isinstance(found[-1], float)
        ):
            return None  # the bracket explains the number before it
        elif kind == "sign":
            found.append(_SIGNS.get(written, written))
        else:
            return None
    return found


def number(written: str) -> float:
    """Return the value of digits with commas between thousands; nan for anything else."""
    try:
        return float(written.replace(",", "").rstrip("."))
    except ValueError:
        return math.nan


def is_close(value: float, stated: float) -> bool:
    """Return whether a stated result is the value, up to rounding or a percentage."""
    value, stated = abs(value), abs(stated)  # a leading dash may be a bullet
    apart = min(abs(value - stated), abs(value * 100 - stated))
    return apart <= max(0.006, abs(stated) / CLOSE) or round(value) == stated


def _sum(tokens: list[float | str], at: int) -> tuple[float, int]:
    total, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in ("+", "-"):
        value, end = _product(tokens, at + 1)
        total += value if tokens[at] == "+" else -value
        at = end
    return total, at


def _product(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate factors from the token `at`, and return the value and the next position."""
    total, at = _power(tokens, at)
    while at < len(tokens) and tokens[at] in ("*", "/", "("):
        is_implied = tokens[at] == "("
        value, end = _power(tokens, at if is_implied else at + 1)
        total = total / value if tokens[at] == "/" else total * value
        at = end
    return total, at


def _power(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate a power, and return the value and the next position."""
    base, at = _atom(tokens, at)
    if at < len(tokens) and tokens[at] == "^":
        exponent, at = _atom(tokens, at + 1)
        if abs(exponent) > 30 or (base < 0 and exponent != int(exponent)):
            raise ValueError("a power that is not worth its cost")
        base = base**exponent
    return base, at


def _atom(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate a number or a bracket, and return the value and the next position."""
    token = tokens[at]
    if isinstance(token, float):
        return token, at + 1
    if token == "-":
        value, at = _atom(tokens, at + 1)
        return -value, at
    if token == "(":
        value, at = _sum(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError("a bracket is left open")
        return value, at + 1
    raise ValueError(f"no number: {token}")
