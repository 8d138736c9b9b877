"""Questions that are one sum: expressions, shares, lists, roundings, discounts and tips."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer, is_comma_language
from calibrator.readers.evidence.computed.basics.numbers import digits_for_words, number_text
from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.sums.algebra import about_equations, without_verbs
from calibrator.readers.evidence.computed.sums.expressions import (
    Expression,
    has_only_words,
    read_expression,
    root_of,
)
from calibrator.readers.evidence.computed.sums.integers import about_integers
from calibrator.readers.evidence.computed.sums.percentages import (
    about_percentages,
    about_steps,
    amount,
)
from calibrator.readers.evidence.computed.sums.problems import about_amounts
from calibrator.text.guarded import compile_guarded
from calibrator.text.looking_for import letters_in

Form = Callable[[str, bool], RightAnswer | None]
MAX_QUESTION: Final = 400  # characters of a question
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜÀ-Ý¿¡0-9])|(?<=[?!])\s+|\n+")
_FORMAT: Final = re.compile(
    r"^(?:(?:please )?(?:just|only|answer|reply|respond|give|return|show|explain|round|no |think"
    r"|use"
    r"|write|state|output|keep|be|do not|don't|express|nur|antworte|gib|solo|responde|réponds"
    r"|donne|uniquement|seulement|erkläre|runde|redondea|arrondis|let's|step)\b)",
    re.IGNORECASE,
)
_LEAD: Final = re.compile(
    r"^[¿¡\s]*(?:(?:what(?=\s.{1,80}\sis\s*[?.]*$)|what(?: is| are|'s|s| does| do| will be| would"
    r" be)|how much(?: is| are| does| do|'s)?"
    r"|how many (?:is|are)|calculate|compute|evaluate|work out|find|solve|simplify|figure out|add"
    r" up"
    r"|give me|tell me|was (?:ist|sind|ergibt|macht|gibt)|wie ?viel (?:ist|sind|ergibt|macht|gibt)"
    r"|berechne|rechne(?: aus)?|cu[aá]nto (?:es|son|da|vale|suma|suman)|cu[aá]l es|calcula"
    r"|combien (?:font|fait|vaut|valent)|calculez?|quel(?:le)? est|quanto (?:é|fa|è))\s*:?\s+)"
    r"(?:(?:the )?(?:exact )?(?:result|value|answer|outcome) (?:of|to)\s+|das ergebnis von\s+"
    r"|el resultado de\s+|le résultat de\s+)?(?:the (?=\d|square|cube|factorial))?",
    re.IGNORECASE,
)
_TAIL: Final = re.compile(
    r"(?:\s*,?\s*\b(?:is|equals?|equal to|come to|make|makes|give|in total|altogether|exactly"
    r"|ergibt"
    r"|ergeben|as (?:a )?(?:decimal|number|whole number)|in numbers?)\b)?\s*[=?.:\s]*(?:"
    r"(?<!\d)!)?[=?.:\s]*$",
    re.IGNORECASE,
)

_TAIL_WORDS: Final = word_set(
    "is equals equal to come make makes give in total altogether exactly ergibt ergeben as a"
    " decimal whole number numbers"
)
_ROUND: Final = compile_guarded(
    r",?\s*\(?\b(?:and )?(?:please )?(?:round(?:ed|ing)?(?: (?:it|your answer|the (?:answer"
    r"|result)|off|up or down))?"
    r"(?: to)?|correct to|to|auf|gerundet auf|redondeado a|arrondi à)\s+(?:the )?"
    r"(?:(?P<places>one|two|three|four|\d)\s+(?:decimal(?: place)?s?|dp\b|nachkommastellen?"
    r"|decimales?|décimales?)(?: places?)?"
    r"|nearest\s+(?P<unit>whole(?: number)?|integer|ones?|tens?|hundreds?|thousands?|tenth"
    r"|hundredth"
    r"|thousandth|cent|dollar|euro|10|100|1000)\b)\)?",
    re.IGNORECASE,
)
_PLACES: Final = {"one": 1, "two": 2, "three": 3, "four": 4}
_UNITS: Final = {
    "whole": Fraction(1), "whole number": Fraction(1), "integer": Fraction(1), "one": Fraction(1),
    "dollar": Fraction(1), "euro": Fraction(1), "ten": Fraction(10), "10": Fraction(10),
    "hundred": Fraction(100), "100": Fraction(100), "thousand": Fraction(1000),
    "1000": Fraction(1000), "tenth": Fraction(1, 10), "hundredth": Fraction(1, 100),
    "cent": Fraction(1, 100), "thousandth": Fraction(1, 1000),
}  # fmt: skip
_NUMERALS: Final = frozenset(("hexadecimal", "hex", "binary", "roman", "octal"))
_NUMBERISH: Final = compile_guarded(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|half|third|quarter|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|dos|tres"
    r"|cuatro|cinco|seis|siete|ocho|nueve|diez|deux|trois|quatre|cinq|sept|huit|neuf|dix|hundred"
    r"|dozen|twenty|thirty|forty|fifty)\b",
    re.IGNORECASE,
)

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


def verify_arithmetic(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a question that is one sum, such as `What is 12 * 8?`; None for others.

    None also if the reply's answer is not clear.
    """
    question = exchange.question
    if not question or len(question) > MAX_QUESTION:
        return None
    if not _NUMBERISH.search(question) and not _NUMERALS & exchange.vocabulary:
        return None
    is_comma = is_comma_language(question)
    answer = compute(question, is_comma)
    return None if answer is None else answer.verdict(exchange.reply, is_comma)


def compute(question: str, is_comma_decimal: bool = False) -> RightAnswer | None:
    """Return the answer to a one-line question such as `What is 15 % of 80?`; None for others.

    With `is_comma_decimal`, `1,5` is 1.5.
    """
    rounding = re.match(
        r"^(?:what is |please )?round (?P<a>-?[\d.,]+)(?= )", question, re.IGNORECASE
    )
    digits = _ROUND.search(question)
    if rounding and digits:
        value = amount(rounding["a"], is_comma_decimal)
        if value is None:
            return None
        known = (value,)
        return _round_answer(RightAnswer(number_text(value, 8), "arithmetic", value, known), digits)
    rounded = _ROUND.sub("", question) if digits else question
    parts = [part for part in _SENTENCE.split(rounded) if part.strip(" .?!")]
    question_parts = [part for part in parts if not _FORMAT.match(part)] or parts[:1]
    main = " ".join(question_parts).strip()
    main = without_verbs(_from_lead(main))
    words = set(letters_in(main.casefold()))
    for form, needed in _FORMS:
        if needed and not needed & words:
            continue
        answer = form(main, is_comma_decimal)
        if answer is not None:
            return _round_answer(answer, digits) if digits else answer
    return None


_LATER_LEAD: Final = compile_guarded(
    r"(?:[:,;–—-]|\bthat|\bso|\bis,)\s+(?=(?:what(?:'s| is)|how"
    r" much is|calculate|compute)\b)",
    re.IGNORECASE,
)


def _from_lead(text: str) -> str:
    """Return a question without the words before its question word.

    Unchanged if they have a digit.
    """
    found = _LATER_LEAD.search(text)
    if found is None or any(character.isdigit() for character in text[: found.start()]):
        return text
    return text[found.end() :]


def _round_answer(answer: RightAnswer, rounding: re.Match[str]) -> RightAnswer | None:
    """Return an answer rounded as the question asks.

    An example is `to two decimals` or `to the nearest ten`. `rounding` is a match of `_ROUND`. An
    answer that is no number is unchanged.
    """
    if answer.number is None:
        return answer
    if rounding["places"]:
        places = _PLACES.get(rounding["places"].casefold()) or int(rounding["places"])
        step = Fraction(1, 10**places)
    else:
        unit = rounding["unit"].casefold()
        step = _UNITS.get(unit) or _UNITS[unit.rstrip("s")]
    return with_step(answer, step)


def with_step(answer: RightAnswer, step: Fraction) -> RightAnswer:
    """Return an answer rounded to a multiple of `step`, half away from zero."""
    number = answer.number or Fraction(0)
    whole = abs(number) / step
    below = whole.numerator // whole.denominator
    nearest = (below + (1 if whole - below >= Fraction(1, 2) else 0)) * step
    nearest = nearest if number >= 0 else -nearest
    reason = (
        answer.reason if nearest == number else f"{answer.reason}, rounded {number_text(nearest)}"
    )
    return replace(answer, number=nearest, reason=reason, is_rounded=True)


def _expression(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer a question that is one arithmetic expression, such as `3 + 4 * 2`.

    None for others.
    """
    lead = _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    if not has_only_words(rest, _TAIL_WORDS):
        return None
    source = _TAIL.sub("", rest).strip()
    read = read_expression(source, is_comma)
    if read is None:
        return None
    if not lead and not _is_sum(rest, read):
        return None
    if lead and not _has_operation(source, read):
        return None
    return _sum_answer(source, read)


def _is_sum(text: str, read: Expression) -> bool:
    """Return whether a text without a question word is a sum and no date or score.

    An example is `9/11`.
    """
    if re.fullmatch(r"[\d\s./:-]+[?.]?", text.strip()):  # 9/11, 24/7, 555-1234, 16:9, 1 - 10
        return bool(re.fullmatch(r"\d+ - \d+\s*\?|\d{1,9} [/:] \d{1,9}\s*[?.]?", text.strip()))
    return bool(set(read.signs) & set("+*/^@√∛!~-"))


def _has_operation(text: str, read: Expression) -> bool:
    """Return whether an expression computes something.

    False for a number, a share alone or `24/7`.
    """
    if re.fullmatch(r"\d+[/:-]\d+", text):  # what is 24/7?
        return False
    if read.signs.strip("+-()") == "%" or not read.signs.strip("+-()π"):
        return bool(re.search(r"\d\s*[-+]", text)) and "%" not in text
    return True


def _sum_answer(source: str, read: Expression) -> RightAnswer:
    """Return the answer of an expression; `source` is its source."""
    is_simple = bool(re.fullmatch(r"[\d\s.,+*/×x·÷^()−-]+", source))
    text = f"{source} {'=' if is_simple else 'is'} {number_text(read.value)}"
    return RightAnswer(text, "arithmetic", read.value, tuple(read.numbers))


def _powers(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer `the 5th root of 32`, for degrees 2 to 12; None for another question."""
    found = re.match(
        r"^(?:what(?:'s| is) )?(?:the )?(?P<n>\d{1,2})(?:th|rd|nd) root of (?P<a>[\d.,]+)[?.\s]*$",
        text,
        re.IGNORECASE,
    )
    if found and 2 <= int(found["n"]) <= 12:
        value = amount(found["a"], is_comma)
        if value is None or value < 0:
            return None
        degree = int(found["n"])
        root = Fraction(round(float(value) ** (1 / degree)))
        if root**degree != value:
            root = Fraction(float(value) ** (1 / degree)) if degree > 3 else root_of(value, degree)
        return RightAnswer(
            f"the {degree}th root of {number_text(value)} is {number_text(root)}",
            "arithmetic",
            root,
            (value, Fraction(degree)),
        )
    return None


def about_lists(text: str, is_comma: bool) -> RightAnswer | None:
    """Answer `What is the average of 3, 5 and 7?`, also sums, medians and such.

    None for others.
    """
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
    listed = ", ".join(number_text(item) for item in items)
    known = () if value in items else tuple(items)
    return RightAnswer(
        f"the {what} of {listed} is {number_text(value)}", "arithmetic", value, known
    )


def _items(text: str, is_comma: bool) -> list[Fraction] | None:
    """Return the numbers of a list with commas, semicolons, spaces or `and`; None if not clear.

    With `is_comma`, a comma is a decimal sign.
    """
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
    """Return the mean, sum, product, maximum, minimum or a rarer figure of `items`, exactly.

    `what` names it in lower case, in one of several languages (`mean`, `summe`); `items` must not
    be empty. None if the name is not known, or if a product has 200 bits or more.
    """
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
    """Return a difference, quotient, range, median, mode or common divisor or multiple.

    None if it is not clear.
    """
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


_LISTS: Final = word_set(
    "average mean median sum total product difference quotient"
    " maximum max minimum min largest biggest"
    " greatest smallest lowest highest range mode gcd hcf lcm least durchschnitt mittelwert summe"
    " produkt"
    " differenz promedio media suma moyenne somme produit différence diferencia producto größte"
    " kleinste"
    " mayor menor"
)
_INTEGERS: Final = word_set(
    "prime primes even odd square squares perfect composite"
    " primzahl primzahlen gerade ungerade primo"
    " primos par impar premier premiers pair impair divisible multiple multiples teilbar fibonacci"
    " powers"
    " factors factorization factorisation divisors teiler next roman römisch römischen römische"
    " romanos"
    " romains binary octal hexadecimal hex decimal base binär binario binaire larger bigger"
    " greater more"
    " smaller less lesser higher lower largest biggest smallest größer kleiner mayor menor plus"
    " sort order"
    " arrange rank sortiere ordne ordena trie triez sequence series pattern"
)
_ALGEBRA: Final = word_set(
    "simplify reduce fraction decimal percentage percent solve x y area perimeter circumference"
    " volume"
    " surface hypotenuse rectangle square circle triangle cube kürze löse resuelve simplifica"
    " simplifie"
    " fläche umfang área perímetro aire périmètre"
)
_AMOUNTS: Final = word_set(
    "cost costs costing price priced discount discounted off"
    " reduced tip tax gratuity bill meal dinner"
    " lunch order vat commission deposit charge split divide share divided shared pays pay buys"
    " buy change"
    " car train bus cyclist bike plane runner boat truck hiker walker km mph kph far take takes"
    " left remain"
    " have has now bought ordered purchased recipe dish serves older younger absent missing there"
    " each"
)
_STEPS: Final = word_set(
    "pay cost costs each total price owe person zahle kostet bezahle zahlt muss pago pagamos cuesta"
    " paga combien paie chacun"
)
_FORMS: Final[tuple[tuple[Form, frozenset[str]], ...]] = (
    (_expression, frozenset()),
    (about_lists, _LISTS),
    (about_percentages, frozenset()),
    (_powers, frozenset(("root",))),
    (about_integers, _INTEGERS),
    (about_equations, _ALGEBRA),
    (about_amounts, _AMOUNTS),
    (about_steps, _STEPS),
)
