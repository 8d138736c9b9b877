"""Questions about percentages: shares, changes, and prices with discounts, tax or a tip."""

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
from calibrator.readers.evidence.computed.sums.expressions import read_expression
from calibrator.text.guarded import compile_guarded

_NUM: Final = r"-?[$€£]?\s?\d[\d.,]*\d?(?:/\d+)?(?:\s?(?:€|\$|£|dollars?|euros?|pounds?))?"
_SHARE: Final = re.compile(
    rf"^[¿\s]*(?:(?P<a>{_NUM}) is what (?:%|percent(?:age)?|per cent) of (?P<b>{_NUM})"
    rf"|what (?:%|percent(?:age)?|per cent) (?:of (?P<b2>{_NUM}) is (?P<a2>{_NUM})|is "
    rf"(?P<a3>{_NUM}) (?:out )?of (?P<b3>{_NUM}))"
    rf"|(?:what is )?(?P<a4>{_NUM}) (?:out )?of (?P<b4>{_NUM}) (?:as a|in) (?:%|percent(?:age)?"
    r"|per cent)"
    rf"|wie ?viel prozent (?:von (?P<b5>{_NUM}) sind (?P<a5>{_NUM})|sind (?P<a6>{_NUM}) von "
    rf"(?P<b6>{_NUM}))"
    rf"|qué porcentaje de (?P<b7>{_NUM}) es (?P<a7>{_NUM})"
    rf"|quel pourcentage de (?P<b8>{_NUM}) (?:représente(?:nt)?|est|font) (?P<a8>{_NUM}))[?.\s]*$",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(
    rf"^(?P<a>{_NUM}) is (?P<p>[\d.,]+)\s?(?:%|percent|per cent) of"
    r" what(?: number)?[?.\s]*$",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"^(?:what is |what's |calculate |find |compute )?(?:the )?percent(?:age)?\s?(?P<kind>change"
    r"|increase|decrease|growth|difference)?"
    rf"(?: is it)? (?:from|when \w+ \w+ from) (?P<a>{_NUM}) to (?P<b>{_NUM})[?.\s]*$",
    re.IGNORECASE,
)
_MOVED: Final = re.compile(
    rf"^(?:(?:what is|what's|what do you get if you|calculate|compute|how much is) )?(?:"
    rf"(?P<verb>increase|raise|decrease|reduce|lower|discount) (?P<a>{_NUM}) by (?P<p>[\d.,]+)\s?"
    r"(?:%|percent|per cent)"
    rf"|(?P<a2>{_NUM}) (?P<verb2>increased|raised|decreased|reduced|lowered|discounted) by "
    r"(?P<p2>[\d.,]+)\s?(?:%|percent|per cent)"
    r"|(?P<p3>[\d.,]+)\s?(?:%|percent|per cent) (?P<verb3>off|more than|less than|discount on) "
    rf"(?P<a3>{_NUM})"
    rf"|(?P<a4>{_NUM}) (?P<verb4>plus|with|minus|less|after|\+|incl(?:uding|\.)?)(?: an?)? "
    r"(?P<p4>[\d.,]+)\s?(?:%|percent|per cent)(?P<tail4> (?:tax|vat|tip|sales tax|gst|interest"
    r"|discount|off|mwst))?"
    rf")[?.\s]*$",
    re.IGNORECASE,
)

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


def amount(text: str, is_comma: bool = False) -> Fraction | None:
    """Return the value of an amount such as `$1,200`; None for another text.

    With `is_comma`, a comma is a decimal sign.
    """
    read = read_expression(text, is_comma)
    return None if read is None else read.value


def about_percentages(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer `What percent of 80 is 20?`, `What is 80 plus 15 %?` and the like.

    None for others.
    """
    if (
        "%" not in text
        and "perc" not in text
        and "per cent" not in text
        and "roz" not in text
        and "porc" not in text
        and "pourc" not in text
    ):
        return None
    found = _SHARE.match(text)
    if found:
        parts = {key[0]: value for key, value in found.groupdict().items() if value}
        part, whole = amount(parts["a"], is_comma), amount(parts["b"], is_comma)
        if part is None or not whole:
            return None
        value = part / whole * 100
        return RightAnswer(
            f"{number_text(part)} is {number_text(value)} % of {number_text(whole)}",
            "arithmetic",
            value,
            (part, whole),
        )
    found = _WHOLE.match(text)
    if found:
        part, share = amount(found["a"], is_comma), amount(found["p"], is_comma)
        if part is None or not share:
            return None
        value = part / share * 100
        return RightAnswer(
            f"{number_text(part)} is {number_text(share)} % of {number_text(value)}",
            "arithmetic",
            value,
            (part, share),
        )
    found = _CHANGE.match(text)
    if found:
        first, second = amount(found["a"], is_comma), amount(found["b"], is_comma)
        if not first or second is None:
            return None
        value = (second - first) / abs(first) * 100
        reason = (
            f"from {number_text(first)} to {number_text(second)} is a"
            f" change of {number_text(value, 2)} %"
        )
        return RightAnswer(
            reason, "arithmetic", abs(value), (first, second, -abs(value)), is_rough=True
        )
    return _change_amount(text, is_comma)


def _change_amount(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer `Increase 80 by 15 %` or `20 % off 50`; None for another question."""
    found = _MOVED.match(text)
    if not found:
        return None
    groups = {key.rstrip("234"): value for key, value in found.groupdict().items() if value}
    start, share = amount(groups["a"], is_comma), amount(groups["p"], is_comma)
    if start is None or share is None:
        return None
    verb, tail = groups["verb"].casefold(), groups.get("tail", "").casefold()
    is_less = (
        verb.startswith(("de", "re", "low", "dis", "off", "less", "minus"))
        or "disc" in tail
        or "off" in tail
    )
    if (
        verb in ("plus", "minus", "with", "after", "+", "less")
        and not tail
        and verb not in ("plus",)
    ):
        return None
    value = start * (100 + (-share if is_less else share)) / 100
    reason = (
        f"{number_text(start)} {'minus' if is_less else 'plus'}"
        f" {number_text(share)} % is {number_text(value)}"
    )
    return RightAnswer(reason, "arithmetic", value, (start, share, abs(value - start)))


def about_steps(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer a question for a price after several percentages, or one that people share.

    Else None. An example is `A coat costs 80. It is 20 % off, then another 10 % off. What do I
    pay?`.
    """
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
    computation = f"{number_text(price)} {' '.join(_sign(step) for step in steps)}"
    if people:
        count = Fraction(next(people[key] for key in ("a", "b", "c") if people[key]))
        if not count:
            return None
        known.append(count)
        value, computation = value / count, f"{computation} for each of {count}"
    rounded = Fraction(round(value * 100), 100)
    known = [each for each in known if each != rounded]
    return RightAnswer(
        f"{computation} is {number_text(rounded)}", "arithmetic", rounded, tuple(known)
    )


def _sign(step: Fraction) -> str:
    """Return a step in percent in words: `minus 20 %` for -20 (and `minus 0 %` for 0)."""
    return f"{'plus' if step > 0 else 'minus'} {number_text(abs(step))} %"


def _steps(text: str, marks: list[re.Match[str]]) -> list[Fraction] | None:
    """Return the percentages in order, negative for discounts; None if a sign is unclear.

    `marks` are their matches in the text.
    """
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
