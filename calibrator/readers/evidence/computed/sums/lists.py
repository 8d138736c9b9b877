"""Questions about a list of numbers: sum, average, median, largest, common divisor."""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd, lcm
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import digits_for_words, number_text

_LIST: Final = re.compile(
    r"^[¿\s]*(?:(?:what(?:'s| is| are)|which(?: number)?(?: is)?|calculate|compute|find|give me"
    r"|determine|was ist|berechne"
    r"|cu[aá]l es|calcula|quel(?:le)? est|calculez?)\s+)?(?:the |der |die |das |el |la |le )?"
    r"(?P<what>average|arithmetic mean|mean|median|sum|total|product|difference|quotient|maximum"
    r"|max|minimum|min|largest|biggest|greatest|smallest|lowest|highest|range|mode|gcd|hcf|lcm"
    r"|greatest common (?:divisor|factor)|highest common factor|(?:least|lowest) common multiple"
    r"|durchschnitt|mittelwert|summe|produkt|differenz|promedio|media|suma|moyenne|somme|produit"
    r"|différence|diferencia|producto|größte|kleinste|mayor|menor)"
    r"(?: (?:value|number|zahl|número|nombre|one))?\s*(?:of|von|aus|de|zwischen|between|entre"
    r"|among|in|:|,|\()"
    r"\s*(?:the |these |this |los |les |den |dieser )?(?:\d+ )?(?:numbers|values|list|set|zahlen"
    r"|números|nombres|following numbers)?\s*:?\s*"
    r"(?P<items>[-\d][^a-zA-Z?]*?(?:\s*(?:and|und|y|et|e|or|oder|o"
    r"|ou)\s+-?[\d.,/]+)?)\s*[)\]]?[?.!\s]*$",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"-?\d+(?:[.,]\d+)?(?:/\d+)?")


def about_lists(text: str, is_comma: bool) -> RightAnswer | None:
    """Compute the sum, average, median and such of a list of numbers, or return None."""
    found = _LIST.match(digits_for_words(text))
    if not found:
        return None
    items = _items(found["items"], is_comma)
    if items is None or len(items) < 2:
        return None
    what = found["what"].casefold()
    value = _of_list(what, items)
    if value is None:
        return None
    shown = ", ".join(number_text(item) for item in items)
    known = () if value in items else tuple(items)
    return RightAnswer(f"the {what} of {shown} is {number_text(value)}", "arithmetic", value, known)


def _items(text: str, is_comma: bool) -> list[Fraction] | None:
    """Return the numbers of a list with commas, semicolons, spaces or `and`; None if not clear."""
    text = re.sub(r"\b(?:and|und|y|et|e|or|oder|o|ou)\b|&", ";", text)
    text = re.sub(r"[\[\]()]", " ", text)
    if is_comma and ";" not in text and re.search(r"\d,\d", text) and not re.search(r", ", text):
        return None  # 1,2,3 may be decimals
    text = re.sub(r",\s+|,(?=\d{4})|(?<!\d),|,(?!\d)", ";", text)
    if (
        not is_comma
        and re.search(r"\d,\d", text)
        and not re.fullmatch(r"[^,]*(?:\d,\d{3}[^,]*)+", text)
    ):
        text = text.replace(",", ";")
    items: list[Fraction] = []
    for part in re.split(r"[;\s]+", text.strip(" ;.")):
        plain = part.replace(",", "." if is_comma else "")
        if not part:
            continue
        if not re.fullmatch(r"-?\d{1,20}(?:\.\d{1,20}|/[1-9]\d{0,8})?", plain):
            return None
        items.append(Fraction(plain))
    return items


def _of_list(what: str, items: list[Fraction]) -> Fraction | None:
    """Compute the mean, the sum or another figure of a list; None for an unknown figure."""
    if what in (
        "average",
        "arithmetic mean",
        "mean",
        "durchschnitt",
        "mittelwert",
        "promedio",
        "media",
        "moyenne",
    ):
        return sum(items, Fraction(0)) / len(items)
    if what in ("sum", "total", "summe", "suma", "somme"):
        return sum(items, Fraction(0))
    if what in ("product", "produkt", "produit", "producto"):
        value = Fraction(1)
        for item in items:
            value *= item
        return value if value.numerator.bit_length() < 200 else None
    if what in ("max", "maximum", "largest", "biggest", "greatest", "highest", "größte", "mayor"):
        return max(items)
    if what in ("min", "minimum", "smallest", "lowest", "kleinste", "menor"):
        return min(items)
    return _rarer_of_list(what, items)


def _rarer_of_list(what: str, items: list[Fraction]) -> Fraction | None:
    """Compute a difference, quotient, range, median or mode of a list; None if it is not clear."""
    if what in ("difference", "differenz", "différence", "diferencia"):
        return abs(items[0] - items[1]) if len(items) == 2 else None
    if what == "quotient":
        return items[0] / items[1] if len(items) == 2 and items[1] else None
    if what == "range":
        return max(items) - min(items)
    if what == "median":
        ordered, half = sorted(items), len(items) // 2
        return ordered[half] if len(items) % 2 else (ordered[half - 1] + ordered[half]) / 2
    if what == "mode":
        counts = {item: items.count(item) for item in items[:100]}
        best = [item for item, count in counts.items() if count == max(counts.values())]
        return best[0] if len(best) == 1 else None
    if any(item.denominator != 1 or item <= 0 for item in items):
        return None
    whole = [int(item) for item in items]
    is_divisor = what in ("gcd", "hcf") or "divisor" in what or "factor" in what
    return Fraction(gcd(*whole) if is_divisor else lcm(*whole))
