"""Faults of single keys of a JSON reply.

The text gives an amount or currency another name or sign, or the prompt states a limit or format
for the key, as in `summary (max 12 words)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import numbers_in
from calibrator.readers.evidence.computed.structured.json_requests import JsonRequest
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.structured.json_values import amount_of, leaves

MAX_TEXT: Final = 8_000  # characters of a text that are read
MAX_KEYS: Final = 60  # keys and values of a reply that are compared with the text
MAX_LEAVES: Final = 100  # values of a reply, and of a list, that are compared with remarks
MAX_REMARK: Final = 100  # characters after a key that are its remark
_WHOLE_KEY: Final = re.compile(
    r"^(?:(?:grand|order|invoice|receipt|bill)?total(?:amount|price|cost|sum|due|gross|paid|ttc)?"
    r"|amount(?:due|paid|payable|total)?|gesamt(?:betrag|summe|preis)?|endbetrag|gross(?:amount)?"
    r"|montant(?:total|ttc)?|importe(?:total)?|sum|summe|brutto(?:betrag)?)$"
)
_PART: Final = re.compile(
    r"\b(?:sub-?\s?total|net|netto|zwischensumme|sous-total|total ht|hors taxe|neto|base imponible"
    r"|before tax|excl\w*|tax|vat|mwst|ust|tva|iva|gst|tip|gratuity|discount|rabatt|remise"
    r"|descuento|shipping|delivery|versand|livraison|envío|change|rückgeld|wechselgeld|cash"
    r"|tendered|gegeben|deposit|anzahlung|acompte|fee|service)\b",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(
    r"\b(?:total|amount due|balance due|to pay|total due|gesamt\w*|zu zahlen\w*|endbetrag|summe"
    r"|rechnungsbetrag|net à payer|à payer|a pagar|importe total|grand total|brutto\w*)\b",
    re.IGNORECASE,
)
_WITHOUT: Final = re.compile(
    r"excl|before|without|net\b|netto|ohne|hors|sin\b|\bht\b|pre-?tax", re.IGNORECASE
)
_SIGNS: Final = {"€": "EUR", "£": "GBP", "₹": "INR", "zł": "PLN", "₺": "TRY", "₩": "KRW"}
_CODES: Final = re.compile(
    r"\b(?:EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|CZK|HUF|AUD|CAD|NZD|INR|CNY|BRL|MXN|ZAR|TRY)\b"
)
_DOLLARS: Final = frozenset({"USD", "AUD", "CAD", "NZD", "MXN", "SGD", "HKD"})
_CURRENCY_KEY: Final = re.compile(r"^(?:currency(?:code)?|währung|waehrung|devise|moneda)$")
_EXACT: Final = re.compile(r"(?<![\d.,'])\d{1,3}(?:([.,'])\d{3}){1,3}(?!\1)[.,]\d{1,2}(?![\d.,])")
_THOUSANDS: Final = re.compile(
    r"(?:€|EUR)\s?(?P<a>\d{1,3}(?:\.\d{3})+)(?![\d,.]\d)"
    r"|(?<![\d.,])(?P<b>\d{1,3}(?:\.\d{3})+)\s?(?:€|EUR|euros?|Euro|Stück|Stk|pesos|unidades|Einwohner)"
)
_LABELLED: Final = re.compile(r"[^\d\n]{0,14}?(?P<n>\d[\d.,']{0,14}\d|\d)")
_MOST: Final = re.compile(
    r"\b(?:max(?:imum|imal|\.)?|at most|no more than|not more than|up to|höchstens|au plus"
    r"|como máximo|máximo|<=|≤)(?: of)?\s*(?P<n>\d{1,4})[ -]"
    r"(?P<u>words?|wörtern?|mots|palabras|char(?:acter)?s?|zeichen|caractères|caracteres|letters"
    r"|items?|entries|elements|tags|keywords|einträge)\b"
    r"|(?P<n2>\d{1,4})[ -](?P<u2>words?|wörter|mots|palabras|char(?:acter)?s?|zeichen|items?|tags"
    r"|keywords) (?:max(?:imum)?|at most|or (?:less|fewer)|höchstens)\b"
    r"|\bexactly (?P<n3>\d{1,3}) (?P<u3>words|items|tags|keywords|entries|elements|bullet points)",
    re.IGNORECASE,
)
_EMPTY: Final = re.compile(
    r"\[\] (?:if|when|for|wenn|falls|si)\b|\bempty (?:list|array) (?:if|when)"
)
_ORDERED: Final = re.compile(
    r"\b(?:ascending|alphabetical\w*|aufsteigend|alphabetisch\w*|croissant|ascendente)\b"
    r"|\b(?P<down>descending|absteigend|décroissant|descendente)\b",
    re.IGNORECASE,
)
_FORMATS: Final = (
    (re.compile(r"\bE\.164\b"), re.compile(r"\+[1-9][\d ().-]{6,20}"), "E.164"),
    (
        re.compile(r"\bISO[ -]?3166(?:-1)?(?: alpha-?2)?\b|\b(?:two|2)-letter country", re.I),
        re.compile(r"[A-Z]{2}|[A-Z]{3}"),
        "a country code",
    ),
    (
        re.compile(r"\bISO[ -]?4217\b|\b(?:three|3)-letter currency", re.I),
        re.compile(r"[A-Z]{3}"),
        "a currency code",
    ),
    (
        re.compile(r"\bISO[ -]?639(?:-1)?\b|\b(?:two|2)-letter language", re.I),
        re.compile(r"[a-z]{2,3}(?:-[A-Z]{2})?"),
        "a language code",
    ),
    (re.compile(r"\bsnake_case\b", re.I), re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*"), "snake_case"),
    (re.compile(r"\bkebab-case\b", re.I), re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*"), "kebab-case"),
    (re.compile(r"\blower-?\s?case\b", re.I), re.compile(r"[^A-Z]*"), "lower case"),
    (re.compile(r"\bupper-?\s?case\b", re.I), re.compile(r"[^a-z]*"), "upper case"),
)


def fault_of_labels(value: Any, data: str, wanted: JsonRequest) -> str | None:
    """Describe a number or currency under a key for which the text has another one, or return None.

    An example is `"total": 50` where the text says `Subtotal: 50` and `Total: 60`.
    """
    if len(data) > MAX_TEXT:
        return None
    if fault := _swapped_fault(value, data):
        return fault
    exact = {amount: text for text, amount in _exact_amounts(data)}
    for _, (path, leaf) in zip(range(MAX_KEYS), leaves(value), strict=False):
        if (
            isinstance(leaf, float)
            and not leaf.is_integer()
            and (fault := _scaled_fault(path, leaf, exact))
        ):
            return fault
        key = path[-1] if path else ""
        plain = plain_key(key)
        if _WHOLE_KEY.match(plain) and len(path) == 1 and not _is_net(key, wanted.prompt):
            if fault := _total_fault(key, leaf, data):
                return fault
        elif _CURRENCY_KEY.match(plain) and (fault := _currency_fault(key, leaf, data)):
            return fault
    return None


def _exact_amounts(data: str) -> list[tuple[str, Fraction]]:
    """Return (text, value) of amounts with thousands signs that can be read in one way.

    An example is `1.234,50`.
    """
    found = []
    for match in _EXACT.finditer(data):
        whole, _, rest = re.sub(r"[.,]", ".", match[0]).rpartition(".")
        found.append((match[0], Fraction(f"{re.sub(r'[^0-9]', '', whole)}.{rest}")))
    for match in _THOUSANDS.finditer(data):
        text = match["a"] or match["b"]
        found.append((text, Fraction(text.replace(".", ""))))
    return found


def _scaled_fault(path: tuple[str, ...], leaf: float, exact: dict[Fraction, str]) -> str | None:
    """Describe a number that is a 100th or 1000th of an exact amount of the text, or return None.

    `exact` has the texts of the amounts by value.
    """
    value = amount_of(leaf)
    if not value or value in exact:
        return None
    text = next((exact[each] for each in (value * 1000, value * 100) if each in exact), None)
    return f'"{path[-1] if path else ""}" is {leaf}, but the text has {text}' if text else None


def _swapped_fault(value: Any, data: str) -> str | None:
    """Describe a number that the text states after the word of another key, or return None."""
    if not isinstance(value, dict):
        return None
    labelled: dict[str, set[Fraction]] = {}
    for key in [*value][:MAX_KEYS]:
        word = re.split(r"[_\W]|(?<=[a-z])(?=[A-Z])", str(key))[0]
        if len(word) >= 5:
            labelled[key] = _numbers_after(word, data)
    for key, numbers in labelled.items():
        stated, amount = value[key], amount_of(value[key])
        if not numbers or amount is None or amount in numbers:
            continue
        for other, others in labelled.items():
            if other != key and amount in others and not others & numbers:
                return f'"{key}" is {stated}, which the text calls {other}'
    return None


def _numbers_after(word: str, data: str) -> set[Fraction]:
    """Return the numbers right after a word in a text, in all readings; empty without any."""
    found: set[Fraction] = set()
    for at in re.finditer(rf"\b{re.escape(word)}\b", data, re.IGNORECASE):
        number = _LABELLED.match(data, at.end())
        if number is not None:
            found.update(each for one in numbers_in(number["n"]) for each in one.values)
    return found


def _is_net(key: str, prompt: str) -> bool:
    """Return whether the prompt says that the key is an amount before tax."""
    at = prompt.find(key)
    return at >= 0 and _WITHOUT.search(re.split(r"[,;)\n]", prompt[at:])[0]) is not None


def _total_fault(key: str, leaf: Any, data: str) -> str | None:
    """Describe a total whose amount is only in a line for a part, such as `Subtotal: 50`.

    None unless another line has a larger amount as the total.
    """
    if isinstance(leaf, bool) or not isinstance(leaf, int | float | str):
        return None
    stated = [number.values for number in numbers_in(str(leaf)[:40])]
    if len(stated) != 1:
        return None
    called, has_total = "", False
    for line in data.splitlines():
        amounts = {each for number in numbers_in(line[:300]) for each in number.values}
        if not amounts:
            continue
        part, whole = _PART.search(line), _WHOLE.search(_PART.sub(" ", line))
        if amounts & {*stated[0]}:
            if part is None or whole is not None or called:
                return None
            called = part[0]
        elif whole is not None and part is None:
            has_total = has_total or _may_be_whole(stated[0], amounts)
    return f'"{key}" is {leaf}, which the text calls "{called}"' if called and has_total else None


def _may_be_whole(stated: tuple[Fraction, ...], amounts: set[Fraction]) -> bool:
    """Return whether one of a line's amounts is larger than the stated one, as a total is."""
    return any(amount > min(stated) for amount in amounts)


def _currency_fault(key: str, leaf: Any, data: str) -> str | None:
    """Describe a currency code that is not among those of the text, or return None."""
    code = leaf.strip().upper() if isinstance(leaf, str) else ""
    if not _CODES.fullmatch(code):
        return None
    named = {code for sign, code in _SIGNS.items() if sign in data} | {*_CODES.findall(data)}
    if "$" in data:
        named |= _DOLLARS
    if re.search(r"\beuros?\b", data, re.IGNORECASE):
        named.add("EUR")
    if not named or code in named or re.search(r"dollar|pound|franc|krona|peso", data, re.I):
        return None
    if named >= _DOLLARS:
        return f'"{key}" is {code}, but the text has dollars'
    return f'"{key}" is {code}, but the text has {", ".join(sorted(named))}'


def fault_of_remarks(value: Any, prompt: str) -> str | None:
    """Describe a value that breaks the limit or format stated for its key, or return None.

    An example of a prompt is `title (max 5 words), tags: alphabetical`.
    """
    has_remark = _MOST.search(prompt) or _EMPTY.search(prompt) or _ORDERED.search(prompt)
    if not (has_remark or any(asks.search(prompt) for asks, _, _ in _FORMATS)):
        return None
    remark_on = lru_cache(partial(_remark_on, prompt))  # a list has the same keys many times
    for key, items in _pairs(value):
        remark = remark_on(key)
        if items is None and _EMPTY.search(remark):
            return f'"{key}" is null instead of []'
        if not isinstance(items, list):
            continue
        if fault := _unsorted(key, items, remark):
            return fault
        most = _limit(remark)
        if most and most[1].startswith(("item", "entr", "elem", "tag", "keyw", "bull", "eint")):
            is_exact = most[2]
            if len(items) > most[0] or (is_exact and len(items) != most[0]):
                return f'"{key}" has {len(items)} entries instead of {most[0]}'
    for _, (path, leaf) in zip(range(MAX_LEAVES), leaves(value), strict=False):
        if not path or not isinstance(leaf, str) or not leaf:
            continue
        if fault := _text_fault(path[-1], leaf, remark_on(path[-1])):
            return fault
    return None


def _unsorted(key: str, items: list[Any], remark: str) -> str | None:
    """Describe two neighbours of a list that are not in the order of the remark, or return None.

    `remark` is what the prompt says of the key, such as `ascending`. Mixed lists are not judged.
    """
    found = _ORDERED.search(remark)
    is_alike = all(isinstance(each, str) for each in items) or all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in items
    )
    if found is None or not is_alike:
        return None
    folded = [each.casefold() if isinstance(each, str) else each for each in items[:MAX_LEAVES]]
    for one, other in pairwise(folded):
        if one < other if found["down"] else one > other:
            return f'"{key}" has {one} before {other}'
    return None


def _pairs(value: Any, depth: int = 0) -> list[tuple[str, Any]]:
    """Return (key, value) of objects in a JSON value, up to three levels deep."""
    if depth > 3:
        return []
    if isinstance(value, Mapping):
        inner = [each for part in value.values() for each in _pairs(part, depth + 1)]
        return [*((str(key), part) for key, part in value.items()), *inner]
    parts = value[:MAX_LEAVES] if isinstance(value, list) else []
    return [each for part in parts for each in _pairs(part, depth + 1)]


def _remark_on(prompt: str, key: str) -> str:
    """Return what a prompt says of a key: the rest of its line up to the next key; else empty."""
    found = re.search(
        rf"(?<!\w)[\"'`“]?{re.escape(key)}[\"'`”]?\??\s*(?:[:=(–—-]|is\b|must\b)(?P<r>[^\n{{}}]*)",
        prompt,
    )
    if found is None:
        return ""
    rest = found["r"][:MAX_REMARK]
    return re.split(r",\s*[\"'`“]?[A-Za-z_]\w*[\"'`”]?\s*[:(]|\.\s|;|\)\s*[,;]", rest)[0]


def _limit(remark: str) -> tuple[int, str, bool] | None:
    """Return (number, unit in lower case, is exact) of `max 5 words`; None without a limit."""
    found = _MOST.search(remark)
    if found is None:
        return None
    number = found["n"] or found["n2"] or found["n3"]
    unit = (found["u"] or found["u2"] or found["u3"]).casefold()
    return int(number), unit, found["n3"] is not None


def _text_fault(key: str, leaf: str, remark: str) -> str | None:
    """Describe how a string breaks the limit or the format in its key's remark, or return None."""
    most = _limit(remark)
    if most is not None:
        limit, unit, is_exact = most
        if unit.startswith(("word", "wört", "mots", "pala")):
            count = len(leaf.split())
            if count > limit or (is_exact and count != limit):
                return f'"{key}" has {count} words instead of {limit}'
        elif unit.startswith(("char", "zei", "cara", "lett")) and len(leaf) > limit:
            return f'"{key}" has {len(leaf)} characters instead of {limit}'
    for asks, form, name in _FORMATS:
        if asks.search(remark) and not form.fullmatch(leaf.strip()):
            return f'"{key}" is not written in {name}'
    return None
