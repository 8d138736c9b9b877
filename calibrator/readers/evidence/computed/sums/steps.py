"""Prices that change in several steps: discounts one after the other, a tip, a division."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import (
    digits_for_words,
    number_text,
    numbers_in,
)
from calibrator.text.guarded import compile_guarded

MAX_QUESTION: Final = 320  # characters
_PERCENT: Final = re.compile(
    r"(?P<n>\d+(?:[.,]\d+)?)\s?-?(?:%|percent|per cent|prozent)", re.IGNORECASE
)
_LESS: Final = re.compile(
    r"\b(?:off|discount\w*|reduc\w+|voucher|coupon|cheaper|less|rebate|rabatt|reduziert|günstiger"
    r"|descuento|rebaja\w*|remise|réduction|rabais)\b",
    re.IGNORECASE,
)
_MORE: Final = re.compile(
    r"\b(?:tip|gratuity|service(?: charge)?|tax|vat|surcharge|trinkgeld|mehrwertsteuer|mwst|propina"
    r"|iva|pourboire|tva)\b",
    re.IGNORECASE,
)
_STACKED: Final = re.compile(
    r"\b(?:another|additional|extra|further|then|after(?:wards)?|reduced|on top|weitere?[rn]?|dann"
    r"|danach|nochmals?|otro|adicional|después|luego|supplémentaires?|ensuite|puis)\b",
    re.IGNORECASE,
)
_ASKS: Final = compile_guarded(
    r"\bwhat (?:do|will|would|does|did) (?:i|we|it|you|she|he|they|each)\b[^?]{0,30}\b(?:pay"
    r"|cost|owe)"
    r"|\b(?:how much|what)\b[^?]{0,30}\b(?:pay|cost|each|total|per person|end up|final|everyone"
    r"|owe)\b"
    r"|\bhow much each\b|\b(?:final|total|end) price\b|\b(?:was|wie ?viel) (?:zahle|kostet"
    r"|bezahle)\b"
    r"|\bwie ?viel (?:zahlt|muss)\b|\bcuánto (?:pago|pagamos|cuesta|paga)\b|\bcombien (?:je|ça"
    r"|on|paie)\b",
    re.IGNORECASE,
)
_EACH: Final = re.compile(
    r"\b(?:each|per person|apiece|everyone|jeder?|pro (?:person|kopf)|cada un[oa]|por persona"
    r"|chacun"
    r"|par personne)\b",
    re.IGNORECASE,
)
_PEOPLE: Final = re.compile(
    r"\b(?P<a>\d{1,2}) (?:of us|people|persons|friends|guests|colleagues|ways|personen|leuten?"
    r"|freunden?"
    r"|personas|amigos|personnes|amis)\b|\b(?:split|divide\w*|share\w*)\b[^?.]{0,40}\b(?:by|between|among)"
    r" (?P<b>\d{1,2})\b|\b(?:wir sind|somos|on est|nous sommes) (?:zu )?(?P<c>\d{1,2})\b",
    re.IGNORECASE,
)
_STRANGE: Final = re.compile(
    r"\b(?:original|per|each (?:cost|item)|interest|years?|months?|before tax|pre-tax|profit"
    r"|mark\w*"
    r"|save|saved|saving|difference|cheaper than|compare\w*|better)\b",
    re.IGNORECASE,
)


def about_steps(text: str, is_comma: bool) -> RightAnswer | None:
    """Compute a price after several percentages, or one that is shared; None for other texts."""
    if len(text) > MAX_QUESTION or not _ASKS.search(text):
        return None
    text = digits_for_words(text)
    marks = list(_PERCENT.finditer(text))
    if not 1 <= len(marks) <= 3 or _STRANGE.search(text):
        return None
    people = _PEOPLE.search(text)
    wants_each = bool(_EACH.search(text))
    if wants_each != bool(people) or (len(marks) == 1 and not people):
        return None
    taken = [mark.start() for mark in marks]
    taken += [people.start(key) for key in ("a", "b", "c") if people[key]] if people else []
    prices = [number for number in numbers_in(text, is_comma) if number.start not in taken]
    if len(prices) != 1:
        return None
    price = prices[0].value
    steps = _steps(text, marks)
    if steps is None or not price:
        return None
    value, known = price, [price]
    for step in steps:
        part = value * abs(step) / 100
        value += part if step > 0 else -part
        known += [part, value, Fraction(abs(step)), Fraction(100 - abs(step)), Fraction(100 + step)]
    shown = f"{number_text(price)} {' '.join(_sign(step) for step in steps)}"
    if people:
        count = Fraction(next(people[key] for key in ("a", "b", "c") if people[key]))
        if not count:
            return None
        known.append(count)
        value, shown = value / count, f"{shown} for each of {count}"
    rounded = Fraction(round(value * 100), 100)
    known = [each for each in known if each != rounded]
    return RightAnswer(f"{shown} is {number_text(rounded)}", "arithmetic", rounded, tuple(known))


def _sign(step: Fraction) -> str:
    return f"{'plus' if step > 0 else 'minus'} {number_text(abs(step))} %"


def _steps(text: str, marks: list[re.Match[str]]) -> list[Fraction] | None:
    """Return the percentages with their signs; None if one is unclear."""
    steps: list[Fraction] = []
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(text)
        after = text[mark.end() : min(end, mark.end() + 45)]
        before = text[marks[at - 1].end() if at else 0 : mark.start()][-40:]
        signs = {kind for kind in (_LESS, _MORE) if kind.search(after)}
        signs = signs or {kind for kind in (_LESS, _MORE) if kind.search(before)}
        if len(signs) != 1:
            return None
        number = Fraction(mark["n"].replace(",", "."))
        steps.append(-number if _LESS in signs else number)
    if len(steps) > 1 and not _STACKED.search(text):
        return None
    return None if sum(step > 0 for step in steps) > 1 else steps
