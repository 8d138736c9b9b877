"""Amounts and currencies of a JSON reply that a text gives another name or sign."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import numbers_in
from calibrator.readers.evidence.computed.structured.json_requests import JsonRequest
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.structured.json_values import amount_of, leaves

MAX_TEXT: Final = 8_000  # characters of a text that are read
MAX_LEAVES: Final = 60
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


def fault_of_labels(value: Any, data: str, wanted: JsonRequest) -> str | None:
    """Describe a number or currency under a key for which the text has another one, or return None.

    An example is `"total": 50` where the text says `Subtotal: 50` and `Total: 60`.
    """
    if len(data) > MAX_TEXT:
        return None
    if fault := _swapped_fault(value, data):
        return fault
    exact = {amount: text for text, amount in _exact_amounts(data)}
    for _, (path, leaf) in zip(range(MAX_LEAVES), leaves(value), strict=False):
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


_EXACT: Final = re.compile(r"(?<![\d.,'])\d{1,3}(?:([.,'])\d{3}){1,3}(?!\1)[.,]\d{1,2}(?![\d.,])")
_THOUSANDS: Final = re.compile(
    r"(?:€|EUR)\s?(?P<a>\d{1,3}(?:\.\d{3})+)(?![\d,.]\d)"
    r"|(?<![\d.,])(?P<b>\d{1,3}(?:\.\d{3})+)\s?(?:€|EUR|euros?|Euro|Stück|Stk|pesos|unidades|Einwohner)"
)
_LABELLED: Final = re.compile(r"[^\d\n]{0,14}?(?P<n>\d[\d.,']{0,14}\d|\d)")


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
    for key in [*value][:MAX_LEAVES]:
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
