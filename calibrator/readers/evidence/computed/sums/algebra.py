"""Sums in the form of commands, fractions, linear equations, and areas of plain figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import number_text
from calibrator.readers.evidence.computed.sums.expressions import read_expression

_N: Final = r"-?\d[\d.,/]*"
_WRAPPED: Final = re.compile(
    r"^(?:if (?:i|you|we)|what (?:do|would|will) (?:you|i|we) get (?:if|when) (?:you|i|we)|what"
    r" happens (?:if|when) you"
    r"|what(?:'s| is) the result (?:if|when) you|please)\s+(?P<rest>.*?)(?:[,.]?\s*what (?:do (?:i"
    r"|you|we) get"
    r"|is the (?:result|answer|total)|would i get|will i get))?\s*\?*$",
    re.IGNORECASE,
)
_VERBS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (rf"^multiply (?P<a>{_N}) (?:by|and|with) (?P<b>{_N})[.?]*$", "{a} * {b}"),
        (rf"^divide (?P<a>{_N}) by (?P<b>{_N})[.?]*$", "{a} / {b}"),
        (rf"^(?:subtract|take) (?P<a>{_N}) (?:away )?from (?P<b>{_N})[.?]*$", "{b} - {a}"),
        (rf"^add (?P<a>{_N}) (?:to|and|plus) (?P<b>{_N})[.?]*$", "{a} + {b}"),
        (rf"^(?:square) (?P<a>{_N})[.?]*$", "{a} ^ 2"),
        (rf"^(?:double) (?P<a>{_N})[.?]*$", "{a} * 2"),
        (
            r"^(?:what(?:'s| is) )?the remainder (?:when|if|of) (?P<a>\d+) (?:is )?divided by "
            r"(?P<b>\d+)(?: is divided)?[.?]*$",
            "{a} ~ {b}",
        ),
        (
            rf"^(?:what(?:'s| is) )?the difference between (?P<a>{_N}) and (?P<b>{_N})[.?]*$",
            "{a} - {b}",
        ),
    )
)
_ADDED: Final = re.compile(
    rf"^add(?: up)?(?: the numbers| these(?: numbers)?)?:? (?P<l>{_N}(?:\s*,\s*{_N})+,?\s*(?:and"
    rf"|&)\s*{_N})[.?]*$",
    re.IGNORECASE,
)


def without_verbs(text: str) -> str:
    """Return a command as a question: `what is 3 * 4` for `multiply 3 by 4`.

    Other and long texts are unchanged.
    """
    if len(text) > 200:
        return text
    wrapped = _WRAPPED.match(text.strip())
    plain = wrapped["rest"].strip() if wrapped else text.strip()
    for pattern, form in _VERBS:
        found = pattern.match(plain)
        if found:
            return "what is " + form.format(
                **{key: value.rstrip(".,") for key, value in found.groupdict().items()}
            )
    added = _ADDED.match(plain)
    return f"what is the sum of {added['l']}" if added else text


_SIMPLIFY: Final = re.compile(
    r"^(?:simplify|reduce|kürze|simplifica|simplifie)(?: the fraction| den bruch)?:? "
    r"(?P<a>\d{1,9})\s?/\s?(?P<b>\d{1,9})"
    r"(?: to (?:its )?lowest terms| as far as possible)?[.?]*$",
    re.IGNORECASE,
)
_AS_FRACTION: Final = re.compile(
    r"^(?:convert|write|express|what is|what's|turn)\s+(?P<a>\d*\.\d{1,6})\s+(?:to|as|into|in) a "
    r"(?:simplified |common )?fraction[.?]*$",
    re.IGNORECASE,
)
_AS_DECIMAL: Final = re.compile(
    r"^(?:convert|write|express|what is|what's|turn)\s+(?:the fraction )?"
    r"(?P<a>\d{1,6}\s?/\s?\d{1,6})\s+(?:to|as|into|in) (?:an? )?(?P<k>decimal|percentage|percent)"
    r"(?: number)?[.?]*$",
    re.IGNORECASE,
)


def _fractions(text: str) -> RightAnswer | None:
    """Answer `Simplify 6/8`, `Write 0.5 as a fraction` or `Write 3/4 as a decimal`; else None."""
    found = _SIMPLIFY.match(text)
    if found and int(found["b"]):
        value = Fraction(int(found["a"]), int(found["b"]))
        return RightAnswer(f"{found['a']}/{found['b']} = {value}", "arithmetic", value)
    found = _AS_FRACTION.match(text)
    if found:
        value = Fraction(found["a"])
        return RightAnswer(f"{found['a']} = {value}", "arithmetic", value)
    found = _AS_DECIMAL.match(text)
    if not found:
        return None
    read = read_expression(found["a"])
    if read is None:
        return None
    is_share = found["k"].casefold().startswith("percent")
    value = read.value * 100 if is_share else read.value
    reason = f"{found['a']} is {number_text(value)}{' %' if is_share else ''}"
    return RightAnswer(reason, "arithmetic", value, (read.value, *read.numbers) if is_share else ())


_EQUATION: Final = re.compile(
    r"^(?:solve(?: for (?P<v>[a-z]))?(?: the equation)?|find (?P<w>[a-z])(?: if| in)?|what is "
    r"(?P<u>[a-z]) (?:if|in)|löse|resuelve|if)\s*:?\s*"
    r"(?P<l>[-+*/().\d\sa-z]{1,60})=(?P<r>[-+*/().\d\sa-z]{1,60}?)(?:,? (?:for|what is|find|solve"
    r" for) (?P<t>[a-z]))?\s*[.?]*$",
    re.IGNORECASE,
)


def _linear(text: str, name: str) -> tuple[Fraction, Fraction] | None:
    """Return (factor, constant) of a linear term: (2, 6) for `2x + 6`; None for another text."""
    factor = constant = Fraction(0)
    plain = re.sub(r"\s+", "", text).replace("*", "")
    if not re.fullmatch(
        rf"[-+]?(?:[\d./]*{name}(?:/\d+)?|[\d./]+)(?:[-+]"
        rf"(?:[\d./]*{name}(?:/\d+)?|[\d./]+))*",
        plain,
    ):
        return None
    for part in re.findall(rf"[-+]?[\d./]*{name}?(?:/\d+)?", plain):
        if not part:
            continue
        sign = -1 if part[0] == "-" else 1
        body = part.lstrip("+-")
        try:
            if name in body:
                before, _, after = body.partition(name)
                value = Fraction(before) if before else Fraction(1)
                factor += sign * value / (int(after[1:]) if after else 1)
            else:
                constant += sign * Fraction(body)
        except (ValueError, ZeroDivisionError):
            return None
    return factor, constant


def _equation(text: str) -> RightAnswer | None:
    """Solve a linear equation, as in `Solve 2x + 6 = 10`; None for another question."""
    found = _EQUATION.match(text)
    if not found:
        return None
    named = found["v"] or found["w"] or found["u"] or found["t"]
    letters = set(re.findall(r"[a-z]", f"{found['l']}{found['r']}", re.IGNORECASE))
    name = named or (letters.pop() if len(letters) == 1 else "")
    left, right = _linear(found["l"], name), _linear(found["r"], name)
    if not name or left is None or right is None or left[0] == right[0]:
        return None
    value = (right[1] - left[1]) / (left[0] - right[0])
    return RightAnswer(f"{name} = {number_text(value)}", "arithmetic", value)


_L: Final = (
    r"(?P<{}>\d[\d.]*)\s?(?:cm|mm|km|m|ft|feet|foot|inches|inch|in"
    r"|yards?|met(?:er|re)s?|centimet(?:er|re)s?|units?|miles?)?"
)
_FIGURE: Final = re.compile(
    r"^(?:(?:what(?:'s| is)|calculate|find|compute|give me)\s+)?the (?P<what>area|perimeter"
    r"|circumference|volume)\s+of\s+(?:an? |the )?"
    r"(?:(?:right )?(?P<figure>rectangle|rectangular \w+|square|circle|triangle|cube|room"
    r"|sphere))\s*"
    r"(?:(?:that (?:is|measures)|measuring|with|of|whose|which is|has|having)\s*)*(?:an? |its )?"
    r"(?:(?:sides?|length|width|radius|diameter|base|edge|dimensions|side length|edge length)\s*"
    r"(?:of |is |= ?|lengths? )*)?"
    + _L.format("a")
    + r"(?:\s*(?:wide|long|high|tall)?\s*(?:by|x|×|and|,)\s*(?:an? "
    r"|its )?(?:(?:width|height|length|base)\s*(?:of |is |= ?)*)?"
    + _L.format("b")
    + r")?(?:\s*(?:wide|long|high|tall))?\s*[.?]*$",
    re.IGNORECASE,
)


def _figure(text: str) -> RightAnswer | None:
    """Answer `What is the area of a rectangle 3 by 4?` and the like; None for another question."""
    found = _FIGURE.match(text)
    if not found:
        return None
    first = Fraction(found["a"].rstrip("."))
    second = Fraction(found["b"].rstrip(".")) if found["b"] else None
    what, figure = found["what"].casefold(), found["figure"].casefold()
    value: Fraction | None = None
    if figure.startswith(("rect", "room")) and second is not None:
        value = first * second if what == "area" else 2 * (first + second)
    elif figure == "square" and second is None:
        value = first * first if what == "area" else 4 * first
    elif figure == "triangle" and second is not None and what == "area":
        value = first * second / 2
    elif figure == "cube" and second is None and what == "volume":
        value = first**3
    elif figure == "circle" and second is None:
        radius = first / 2 if "diameter" in text.casefold() else first
        exact = radius * radius if what == "area" else 2 * radius
        answer = RightAnswer("", "arithmetic", exact * Fraction(math.pi), (first,), is_rough=True)
        reason = f"the {what} is {number_text(exact)}π, {number_text(exact * Fraction(math.pi), 2)}"
        return replace(answer, reason=reason, exact_pi=exact)
    if value is None or (what == "volume" and figure != "cube"):
        return None
    known = () if value in (first, second) else (first, second or first)
    return RightAnswer(f"the {what} is {number_text(value)}", "arithmetic", value, known)


_FORMS: Final[tuple[Callable[[str], RightAnswer | None], ...]] = (_fractions, _equation, _figure)


def about_equations(text: str, is_comma_decimal: bool = False) -> RightAnswer | None:
    """Answer a question about fractions, an equation or a figure; None for others.

    None also for long texts and decimal commas.
    """
    if len(text) > 200 or is_comma_decimal:
        return None
    for form in _FORMS:
        answer = form(text.strip())
        if answer is not None:
            return answer
    return None
