"""Values of a JSON reply that contradict each other, the order or a threshold of the prompt."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice, pairwise
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import number_text
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.structured.json_values import amount_of, objects_in

MAX_OBJECTS: Final = 200
MAX_RULES: Final = 20
_QUANTITIES: Final = word_set(
    "qty quantity count units pieces pcs menge anzahl stück quantité quantite qté cantidad cant"
)
_PRICES: Final = word_set(
    "unitprice priceperunit pricepereach priceeach unitcost rate hourlyrate einzelpreis stückpreis"
    " prixunitaire preciounitario"
)
_PRODUCTS: Final = word_set(
    "linetotal lineamount totalprice totalcost amount total subtotal sum gesamt gesamtpreis summe"
    " betrag montant importe"
)
_NETS: Final = word_set(
    "subtotal net netamount nettotal netto nettobetrag totalnet totalht montantht ht"
    " zwischensumme soustotal neto baseimponible"
)
_TAXES: Final = word_set("tax vat taxamount vatamount mwst ust steuer tva iva gst salestax")
_EXTRAS: Final = word_set(
    "shipping shippingcost delivery deliveryfee versand versandkosten livraison envío tip"
    " gratuity servicecharge fee fees"
)
_REDUCTIONS: Final = word_set("discount rebate rabatt skonto remise descuento coupon credit")
_GROSSES: Final = word_set(
    "total grandtotal totalamount gross grossamount grosstotal brutto bruttobetrag gesamtbetrag"
    " amountdue totaldue totalttc montantttc ttc totalgeneral"
)
_REDUCED: Final = re.compile(
    r"discount|rabatt|skonto|remise|descuento|coupon|voucher|gutschein|promo|deposit|rounding"
    r"|free\b|\boff\b|-\s?\d+\s?%|credit|minimum|refund",
    re.IGNORECASE,
)
_ONCE: Final = re.compile(
    r"\b(?:no (?:duplicates|repeats|repetitions)|without (?:duplicates|repetition)|duplicates? "
    r"(?:removed|are removed)|de-?duplicate[ds]?|(?:each|every) (?:\w+ ){1,3}(?:only )?once\b"
    r"|unique (?:values|entries|items)|distinct (?:values|entries|items)"
    r"|keine (?:duplikate|doppelten)|ohne (?:duplikate|doppelte)|nur einmal|sans doublons?"
    r"|sin (?:duplicados|repetir))\b",
    re.IGNORECASE,
)
_PER: Final = re.compile(
    r"\b(?:(?:each|every)\s+(?P<a>\w+)\s+(?:only )?once|group(?:ed)? by (?:the )?(?P<b>\w+)"
    r"|one (?:object|entry|row|item|element) (?:per|for each) (?P<c>\w+)"
    r"|jede[rsn]? (?P<d>\w+) (?:nur )?einmal|gruppiert nach (?P<e>\w+))\b",
    re.IGNORECASE,
)
_SORTED: Final = re.compile(
    r"\b(?:sort(?:ed)?|order(?:ed)?|sortiert|trié\w*|ordenad\w*) (?:the \w+ )?(?:by|nach|par|por)"
    r" (?:the |descending |ascending )?[`\"']?(?P<k>\w+)[`\"']?"
    r"(?P<rest>[^.;\n]{0,60})",
    re.IGNORECASE,
)
_DOWN: Final = re.compile(
    r"\bdesc|\bhighest|\blargest|\bnewest|\blatest|\bmost\b|\babsteigend|\bdécroissant"
    r"|\bdescend|\breverse|\bbiggest|\bhigh to low",
    re.IGNORECASE,
)
_UP: Final = re.compile(
    r"\basc|\blowest|\bsmallest|\boldest|\bearliest|\baufsteigend|\bcroissant", re.I
)
_COMPARED: Final = re.compile(
    r"(?P<k>[^\W\d]\w{1,30})[`\"']?\s*(?:is |ist |est |es )?"
    r"(?P<o><=|>=|≤|≥|<|>|at least|at most|more than|less than|greater than|over|above|under|below"
    r"|up to|exceeds|mindestens|höchstens|über|unter|mehr als|weniger als|plus de|moins de"
    r"|más de|menos de)\s*(?:[$€£]\s?)?(?P<n>\d(?:[\d,.]{0,12}\d)?)(?P<x>[^,;.\n]{0,60})",
    re.IGNORECASE,
)
_BOUNDS: Final = {
    "<=": ("<=", "≤", "at most", "up to", "höchstens"),
    ">=": (">=", "≥", "at least", "mindestens"),
    "<": ("<", "less than", "under", "below", "unter", "weniger als", "moins de", "menos de"),
    ">": (
        *(">", "more than", "greater than", "over", "above", "exceeds", "über", "mehr als"),
        *("plus de", "más de"),
    ),
}
_OPERATORS: Final = {word: sign for sign, words in _BOUNDS.items() for word in words}
_HOLDS: Final[Mapping[str, Callable[[Fraction, Fraction], bool]]] = {  # of the bound and a value
    "<=": operator.ge,
    ">=": operator.le,
    "<": operator.gt,
    ">": operator.lt,
}
_RESULT: Final = re.compile(
    r"[\"'`“](?P<v>[\w -]{1,30})[\"'`”]\s*(?:\([^)\n]{0,30}\)\s*)?(?:=\s*)?"
    r"(?:if|when|wenn|falls|si|for|für|bei|pour|para|cuando)\s+"
    r"(?:the |der |die |das |le |la |el )?$",
    re.IGNORECASE,
)
_OTHERWISE: Final = re.compile(
    r"^\W{0,3}(?:and )?(?:else|otherwise|sonst|sinon|si no|de lo contrario)\s*,?\s*[\"'`“]"
    r"(?P<v>[\w -]{1,30})[\"'`”]",
    re.IGNORECASE,
)
_ALSO: Final = re.compile(r"\b(?:and|or|und|oder|et|ou|y|o|&&|\|\|)\b|&&|\|\|", re.IGNORECASE)


def fault_of_relations(value: Any, source: str, wish: str) -> str | None:
    """Describe values in JSON that contradict each other or the prompt, or return None.

    These are sums, rules such as `"auto" if amount <= 50`, repeated items and the order. `source`
    is the text with the values and `wish` the request for JSON.
    """
    objects = [*islice(objects_in(value), MAX_OBJECTS)]
    is_reduced = _REDUCED.search(source) is not None
    rules = [*islice(_threshold_rules(wish), MAX_RULES)]
    for one in objects:
        fault = None if is_reduced else _sum_fault(one)
        if fault := fault or _threshold_fault(one, rules):
            return fault
    return _repeated_fault(value, wish) or _order_fault(value, wish)


def _sum_fault(one: Mapping[str, Any]) -> str | None:
    """Describe a product or sum in an object that does not hold, or return None.

    An example is `{"quantity": 2, "unit_price": 5, "total": 11}`.
    """
    amounts = {
        plain: amount
        for key, value in one.items()
        if (amount := amount_of(value)) is not None and (plain := plain_key(str(key)))
    }

    def only(names: frozenset[str]) -> Fraction | None:
        """Return the amount under one of these plain keys; None unless there is exactly one."""
        found = [amount for name, amount in amounts.items() if name in names]
        return found[0] if len(found) == 1 else None

    if len(amounts) < 3 or only(_REDUCTIONS):
        return None
    count, price, product = only(_QUANTITIES), only(_PRICES), only(_PRODUCTS)
    if count and price and product is not None and abs(count * price - product) > Fraction(2, 100):
        sides = f"{number_text(count)} × {number_text(price)}"
        return f"{sides} is {number_text(count * price)}, not {number_text(product)}"
    net, tax, whole = only(_NETS), only(_TAXES), only(_GROSSES)
    if net is None or tax is None or whole is None or amounts.keys() & _QUANTITIES:
        return None
    more = only(_EXTRAS) or Fraction(0)
    sums = {net + tax, net + tax + more, net + net * tax / 100, net + net * tax / 100 + more}
    if min(abs(each - whole) for each in sums) <= Fraction(2, 100):
        return None
    sides = f"{number_text(net)} + {number_text(tax)}"
    return f"{sides} is {number_text(net + tax)}, not {number_text(whole)}"


@dataclass(frozen=True, slots=True)
class _ThresholdRule:
    """A rule such as `"auto" if amount <= 50, else "manual"`; some parts may be missing."""

    key: str
    text: str  # the comparison, for people
    holds: Callable[[Fraction], bool]
    result: str  # the value where the comparison is true
    otherwise: str  # the value where it is false, or ""
    has_or: bool
    has_more: bool  # further conditions follow


def _threshold_rules(wish: str) -> Iterator[_ThresholdRule | None]:
    """Yield the rules of a prompt such as `"auto" if amount <= 50`.

    None is yielded for each comparison that is no such rule.
    """
    for found in _COMPARED.finditer(wish):
        result = _RESULT.search(wish[max(0, found.start() - 60) : found.start()])
        bound = _read_bound(found["n"])
        if result is None or bound is None:
            yield None
            continue
        sign = _OPERATORS[found["o"].casefold()]
        otherwise = _OTHERWISE.match(wish[found.end() :])
        yield _ThresholdRule(
            plain_key(found["k"]),
            f"{found['k']} {sign} {number_text(bound)}",
            partial(_HOLDS[sign], bound),
            result["v"],
            otherwise["v"] if otherwise else "",
            re.search(r"\b(?:or|oder|ou|o)\b", found["x"]) is not None,
            _ALSO.search(found["x"]) is not None,
        )


def _threshold_fault(one: Mapping[str, Any], rules: Sequence[_ThresholdRule | None]) -> str | None:
    """Describe a value that breaks a threshold rule, or return None.

    Entries that are None are skipped.
    """
    texts = {str(value).casefold(): key for key, value in one.items() if isinstance(value, str)}
    if not texts:
        return None
    amounts = {plain_key(str(key)): amount_of(value) for key, value in one.items()}
    for rule in rules:
        amount = None if rule is None else amounts.get(rule.key)
        if rule is None or amount is None:
            continue
        is_true = rule.holds(amount)
        wanted, otherwise = rule.result.casefold(), rule.otherwise.casefold()
        if not is_true and wanted in texts and not rule.has_or:
            return f'"{texts[wanted]}" is "{rule.result}", although {rule.text} is false'
        if is_true and not rule.has_more and otherwise and otherwise in texts:
            return f'"{texts[otherwise]}" is "{rule.otherwise}", although {rule.text} is true'
    return None


def _read_bound(text: str) -> Fraction | None:
    """Return a number such as `1,500.00` as a fraction; None for another text."""
    plain = text.rstrip(".,").replace(",", "")
    return Fraction(plain) if re.fullmatch(r"\d+(?:\.\d+)?", plain) else None


def _lists_in(value: Any) -> Iterator[Sequence[Any]]:
    """Yield a value that is a list, or the lists directly in an object."""
    if isinstance(value, list):
        yield value
    elif isinstance(value, Mapping):
        yield from (part for part in value.values() if isinstance(part, list))


def _repeated_fault(value: Any, wish: str) -> str | None:
    """Describe the first item that occurs twice although the prompt `wish` wants each once.

    Return None without one. Reads the first `MAX_OBJECTS` items of `value`, or of each list in it.
    Items are scalars, or objects compared by the key that the prompt names: `one object per city`.
    """
    if not (_ONCE.search(wish) or _PER.search(wish)):
        return None
    keys = {plain_key(name) for each in _PER.finditer(wish) for name in each.groups() if name}
    for items in _lists_in(value):
        seen: set[str] = set()
        for item in items[:MAX_OBJECTS]:
            identity = _identity(item, keys)
            if identity and identity in seen:
                return f"{identity[:60]} occurs twice"
            seen.add(identity)
    return None


def _identity(item: Any, keys: set[str]) -> str:
    """Return the text of an item, or of its value under one of `keys`, in lower case.

    Else empty.
    """
    if not isinstance(item, Mapping):
        return str(item).casefold() if isinstance(item, str | int | float) else ""
    for key, value in item.items():
        plain = plain_key(str(key))
        if isinstance(value, str) and plain in {*keys, *(f"{each}name" for each in keys)}:
            return value.casefold()
    return ""


def _order_fault(value: Any, wish: str) -> str | None:
    """Describe two items against the order that the prompt wants, as in `sorted by price`.

    Else None.
    """
    rules = [*_SORTED.finditer(wish[:20_000])]
    if len(rules) != 1:
        return None
    rule = rules[0]
    if _DOWN.search(rule["rest"]) and _UP.search(rule["rest"]):
        return None
    is_down = _DOWN.search(rule["rest"]) is not None or "descending" in rule[0].casefold()
    key = plain_key(rule["k"])
    for items in _lists_in(value):
        values = [
            next((part for name, part in item.items() if plain_key(str(name)) == key), None)
            for item in items[:MAX_OBJECTS]
            if isinstance(item, Mapping)
        ]
        amounts = [amount_of(each) for each in values]
        if len(amounts) < 2 or any(each is None for each in amounts):
            continue
        for one, other in pairwise(amount for amount in amounts if amount is not None):
            if (one < other) if is_down else (one > other):
                return f"{number_text(one)} is before {number_text(other)} in {rule['k']}"
    return None
