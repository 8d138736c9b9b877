"""Questions about percentages: shares, wholes, changes, and amounts plus or minus a percentage."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import number_text
from calibrator.readers.evidence.computed.sums.expressions import read_expression

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


def amount(text: str, is_comma: bool = False) -> Fraction | None:
    """Return the value of an amount with or without a sign of currency; None for other texts."""
    read = read_expression(text, is_comma)
    return None if read is None else read.value


def about_percentages(text: str, is_comma: bool) -> RightAnswer | None:
    """Compute a share, a whole, a change or an amount with a percentage, or return None."""
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
        shown = (
            f"from {number_text(first)} to {number_text(second)} is a"
            f" change of {number_text(value, 2)} %"
        )
        return RightAnswer(
            shown, "arithmetic", abs(value), (first, second, -abs(value)), is_rough=True
        )
    return _change_amount(text, is_comma)


def _change_amount(text: str, is_comma: bool) -> RightAnswer | None:
    """Compute an amount raised or lowered by a percentage; None for another question."""
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
    shown = (
        f"{number_text(start)} {'minus' if is_less else 'plus'}"
        f" {number_text(share)} % is {number_text(value)}"
    )
    return RightAnswer(shown, "arithmetic", value, (start, share, abs(value - start)))
