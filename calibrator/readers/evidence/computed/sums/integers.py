"""Questions about whole numbers: primes, divisors, comparisons, orders, numeral systems."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import digits_for_words, number_text
from calibrator.readers.evidence.computed.sums.expressions import read_expression
from calibrator.readers.evidence.computed.sums.letters import (
    WHOLE_NUMBER,
    about_numerals,
    whole_number,
)

LARGEST: Final = 10**9  # largest number whose divisors are searched for
MAX_SERIES: Final = 60


def is_prime(number: int) -> bool:
    """Return whether a number up to LARGEST is prime."""
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    return all(number % divisor for divisor in range(3, isqrt(number) + 1, 2))


_PROPERTY: Final = re.compile(
    r"^(?:is|ist|es|est|¿es)\s+(?:the number |die zahl |el número |le nombre )?"
    rf"{WHOLE_NUMBER}\s+(?:an? "
    r"|ein[e]? |un[ae]? )?"
    r"(?P<what>prime|even|odd|perfect square|square|composite|primzahl|gerade|ungerade|primo|par"
    r"|impar|premier|pair|impair|divisible by (?P<by>\d{1,9})|(?:a )?multiple of (?P<of>\d{1,9})"
    r"|durch (?P<durch>\d{1,9}) teilbar)"
    r"(?:\s+(?:number|zahl))?(?:\s*,?\s*(?:or not|or (?:an? )?(?:composite|odd|even|prime)(?:"
    r" number)?|oder nicht|oder (?:un)?gerade|o (?:im)?par|o no|ou (?:im)?pair))?\s*\?",
    re.IGNORECASE,
)


def _property(text: str) -> RightAnswer | None:
    """Answer `Is 91 prime?`, `Is 12 divisible by 5?`, `Is 7 odd or even?`; None for others."""
    found = _PROPERTY.match(text)
    if not found:
        return None
    number, what = whole_number(found["n"]), found["what"].casefold()
    if number > LARGEST:
        return None
    by = found["by"] or found["of"] or found["durch"]
    if by:
        if int(by) == 0:
            return None
        is_true = number % int(by) == 0
        return RightAnswer(
            f"{number} is {'' if is_true else 'not '}divisible by {by}",
            "arithmetic",
            is_yes=is_true,
        )
    if "square" in what:
        is_true = isqrt(number) ** 2 == number
        return RightAnswer(
            f"{number} is {'' if is_true else 'not '}a square", "arithmetic", is_yes=is_true
        )
    choice = re.search(
        r"\b(?:or|oder|o|ou)\s+(?:an? )?(composite|odd|even|prime|"
        r"(?:un)?gerade|(?:im)?par|(?:im)?pair)",
        text,
        re.IGNORECASE,
    )
    if what in ("prime", "primzahl", "primo", "premier", "composite"):
        prime = is_prime(number)
        named = "prime" if prime else "not prime"
        if choice:
            return RightAnswer(
                f"{number} is {named}",
                "arithmetic",
                words=("prime",) if prime else ("composite", "not prime", "not a prime"),
                others=("composite",) if prime else (),
            )
        return RightAnswer(
            f"{number} is {named}", "arithmetic", is_yes=prime != (what == "composite")
        )
    even = number % 2 == 0
    named = "even" if even else "odd"
    is_even_asked = what in ("even", "gerade", "par", "pair")
    if choice:
        right, wrong = (("even", "gerade", "par", "pair"), ("odd", "ungerade", "impar", "impair"))[
            :: 1 if even else -1
        ]
        return RightAnswer(f"{number} is {named}", "arithmetic", words=right, others=wrong)
    return RightAnswer(f"{number} is {named}", "arithmetic", is_yes=even == is_even_asked)


_PRIME_LIST: Final = re.compile(
    r"^(?:what are|list|name|give(?: me)?|write|tell me|show(?: me)?|nenne|liste|enumera|dime|cite"
    r"|which are)?\s*(?:all )?(?:the |die |los |las |les )?"
    r"(?:(?:first|ersten|primeros|premiers)\s+(?P<count>\d{1,2})\s+|(?P<count2>\d{1,2})\s+"
    r"(?:primeros |premiers |first ))?"
    r"(?P<what>prime(?: number)?s|prime numbers|even numbers|odd numbers|primzahlen|números primos"
    r"|nombres premiers|perfect squares|square numbers|squares|fibonacci numbers|multiples of "
    r"(?P<of>\d{1,6})|powers of (?P<power>\d{1,2}))"
    r"(?:\s+(?:between|zwischen|entre|from)\s+(?P<a>\d{1,6})\s+(?:and|to|und|y|et)\s+(?P<b>\d{1,6})"
    r"|\s+(?:below|under|less than|smaller than|unter|kleiner als|menores (?:que|de)|inférieurs à"
    r"|up to)\s+(?P<under>\d{1,6}))?\s*[?.!]*$",
    re.IGNORECASE,
)


def _members(what: str, found: re.Match[str]) -> Callable[[int], bool] | None:
    """Return a test for a kind of whole number, such as `primes`; None for an unknown kind."""
    if "prim" in what or "premier" in what:
        return is_prime
    if "even" in what:
        return lambda number: number % 2 == 0 and number > 0
    if "odd" in what:
        return lambda number: number % 2 == 1
    if "square" in what:
        return lambda number: number > 0 and isqrt(number) ** 2 == number
    if found["of"] and int(found["of"]):
        return lambda number: number > 0 and number % int(found["of"]) == 0
    return None


_NTH: Final = re.compile(
    r"^(?:what(?:'s| is) |tell me |give me )?the (?P<n>\d{1,3})(?:st|nd|rd|th) (?P<what>prime(?:"
    r" number)?|fibonacci number|perfect square|square number|even number|odd number)\s*[?.]*$",
    re.IGNORECASE,
)


def _nth_number(text: str) -> RightAnswer | None:
    """Answer `What is the 10th prime?`, also for squares, even and odd numbers.

    None for others.
    """
    found = _NTH.match(text)
    if not found or found["what"].casefold().startswith("fib"):
        return None
    what, left, at = found["what"].casefold(), int(found["n"]), 0
    while left and at < 10_000:
        at += 1
        is_member = (
            is_prime(at)
            if "prime" in what
            else isqrt(at) ** 2 == at
            if "square" in what
            else at % 2 == (0 if "even" in what else 1)
        )
        left -= is_member
    return (
        RightAnswer(f"it is {at}", "arithmetic", Fraction(at), (Fraction(int(found["n"])),))
        if not left
        else None
    )


def _series(text: str) -> RightAnswer | None:
    """Answer `List the first 5 primes` or `the primes between 10 and 30`; None for others.

    None also if it is not clear whether the ends count.
    """
    found = _PRIME_LIST.match(digits_for_words(text))
    if not found:
        return None
    what = found["what"].casefold()
    count = int(found["count"] or found["count2"] or 0)
    is_member = _members(what, found)
    if is_member is None:
        return None
    if count and count <= MAX_SERIES and not found["a"] and not found["under"]:
        series: list[int] = []
        at = 0
        while len(series) < count and at < 100_000:
            at += 1
            if is_member(at):
                series.append(at)
        known: tuple[int, ...] = (count,)
    elif found["a"]:
        low, high = int(found["a"]), int(found["b"])
        if high - low > 2000 or is_member(low) or is_member(high):
            return None  # it is not clear whether the ends are included
        series, known = [n for n in range(low, high + 1) if is_member(n)], (low, high)
    elif found["under"]:
        high = int(found["under"])
        if high > 2000 or is_member(high):
            return None
        series, known = [n for n in range(1, high) if is_member(n)], (high,)
    else:
        return None
    if not 0 < len(series) <= MAX_SERIES:
        return None
    listed = ", ".join(map(str, series[:12])) + (", .." if len(series) > 12 else "")
    return RightAnswer(
        f"they are {listed}",
        "arithmetic",
        series=tuple(map(Fraction, series)),
        known=tuple(map(Fraction, known)),
    )


_FACTORS: Final = re.compile(
    r"^(?:what (?:is|are)|list|name|give(?: me)?|find|was (?:ist|sind))?\s*(?:all )?(?:the )?"
    r"(?P<what>prime factori[sz]ation|prime factors|factors|divisors|positive divisors"
    rf"|primfaktorzerlegung|teiler) (?:of|von) {WHOLE_NUMBER}\s*[?.]*$",
    re.IGNORECASE,
)
_HOW_MANY: Final = re.compile(
    r"^how many (?:prime numbers|primes)(?: are there)?(?: (?:are|exist))? (?:between "
    r"(?P<a>\d{1,6}) and (?P<b>\d{1,6})|(?:below|under|less than|smaller than|up to) "
    r"(?P<under>\d{1,6}))(?: are there)?\s*\?*$",
    re.IGNORECASE,
)
_NEXT: Final = re.compile(
    r"^(?:what(?:'s| is) )?(?:the )?(?P<what>next|smallest|first|largest|biggest|previous|nächste"
    r"|kleinste|größte)\s+(?P<kind>prime(?: number)?|primzahl|perfect square|even number|odd"
    rf" number|multiple of (?P<of>\d{{1,6}}))\s+(?:after|above|greater than|larger than|bigger"
    rf" than|nach|über|before|below|less than|smaller than|under)\s+{WHOLE_NUMBER}\s*[?.]*$",
    re.IGNORECASE,
)


def _factors(text: str) -> RightAnswer | None:
    """Answer a question for divisors, a count of primes, or the next number of a kind; else None.

    An example is `What are the factors of 12?`.
    """
    found = _FACTORS.match(text)
    if found:
        number, what = whole_number(found["n"]), found["what"].casefold()
        if not 1 < number <= LARGEST:
            return None
        if "prim" not in what:
            if number > 100_000:
                return None
            divisors = [n for n in range(1, number + 1) if number % n == 0]
            return (
                RightAnswer(
                    f"the divisors of {number} are {', '.join(map(str, divisors[:20]))}",
                    "arithmetic",
                    series=tuple(map(Fraction, divisors)),
                )
                if len(divisors) > 2
                else None
            )
        return None
    found = _HOW_MANY.match(text)
    if found:
        low, high = (
            (int(found["a"]) + 1, int(found["b"])) if found["a"] else (2, int(found["under"]))
        )
        if is_prime(high) or is_prime(low - 1):
            return None
        count = sum(map(is_prime, range(low, min(high, 100_000))))
        known = tuple(Fraction(int(found[key])) for key in ("a", "b", "under") if found[key])
        return RightAnswer(f"there are {count} of them", "arithmetic", Fraction(count), known)
    found = _NEXT.match(text)
    if not found:
        return None
    return _next_number(found, text)


def _next_number(found: re.Match[str], text: str) -> RightAnswer | None:
    """Return the answer to `the smallest prime greater than 20`; None if the number is not found.

    `found` is a match of `_NEXT` in `text`. None also for `the largest prime greater than 20`.
    """
    start, kind = whole_number(found["n"]), found["kind"].casefold()
    is_up = bool(
        re.search(r"\b(?:after|above|greater|larger|bigger|nach|über)\b", text, re.IGNORECASE)
    )
    if start > 10**6 or (
        is_up == (found["what"].casefold() in ("largest", "biggest", "previous", "größte"))
    ):
        return None

    def is_member(number: int) -> bool:
        """Return whether a number is of the kind that the question names."""
        if "prim" in kind:
            return is_prime(number)
        if "square" in kind:
            return isqrt(number) ** 2 == number
        if found["of"]:
            return number % int(found["of"]) == 0 if int(found["of"]) else False
        return number % 2 == (0 if "even" in kind else 1)

    at = start
    for _ in range(10_000):
        at += 1 if is_up else -1
        if at < 0:
            return None
        if is_member(at):
            known = [Fraction(start)] + ([Fraction(int(found["of"]))] if found["of"] else [])
            return RightAnswer(f"it is {at}", "arithmetic", Fraction(at), tuple(known))
    return None


_COMPARED: Final = re.compile(
    r"^(?:which (?:number |one |of these |of the following |fraction )*(?:is|are)|what(?:'s| is)"
    r"|welche (?:zahl )?ist|cuál es|¿cuál es|lequel est|quel nombre est)\s*(?:the )?(?:el |le |la"
    r" )?(?P<what>larger|bigger|greater|more|smaller|less|lesser|higher|lower|largest|biggest"
    r"|smallest|größer|kleiner|mayor|menor|plus grand|plus petit)(?: number| one|, )?\s*[:,]?\s*"
    r"(?P<a>[-\d][\d.,/^]*)\s*,?\s*(?:or|and|oder|o|ou|vs\.?)\s*(?P<b>[-\d][\d.,/^]*)\s*\?*$",
    re.IGNORECASE,
)
_IS_LARGER: Final = re.compile(
    r"^(?:is|ist|es|¿es|est)\s+(?P<a>-?\d[\d.,/^]*)\s+(?P<what>larger|bigger|greater|more|smaller"
    r"|less|higher|lower|größer|kleiner|mayor|menor)\s+(?:than|als|que)\s+"
    r"(?P<b>-?\d[\d.,/^]*)\s*\?+$",
    re.IGNORECASE,
)
_SMALL: Final = ("smaller", "less", "lesser", "lower", "smallest", "kleiner", "menor", "plus petit")


def _compare(text: str) -> RightAnswer | None:
    """Answer `Which is larger, 9.9 or 9.11?` or `Is 3/4 greater than 0.7?`; None for others."""
    text = digits_for_words(text)
    found = _COMPARED.match(text) or _IS_LARGER.match(text)
    if not found:
        return None
    first, second = (
        read_expression(found["a"].rstrip(".,")),
        read_expression(found["b"].rstrip(".,")),
    )
    if first is None or second is None or first.value == second.value:
        return None
    is_small = found["what"].casefold() in _SMALL
    is_first = (first.value < second.value) == is_small
    if found.re is _IS_LARGER:
        return RightAnswer(
            f"{found['a']} is {'' if is_first else 'not '}{found['what']} than {found['b']}",
            "arithmetic",
            is_yes=is_first,
        )
    right, wrong = (found["a"], found["b"]) if is_first else (found["b"], found["a"])
    right, wrong = right.rstrip(".,"), wrong.rstrip(".,")
    reason = f"{right} is {'smaller' if is_small else 'larger'} than {wrong}"
    return RightAnswer(reason, "arithmetic", words=(right,), others=(wrong,), is_first=True)


_SORT: Final = re.compile(
    r"^(?:sort|order|arrange|put|rank|list|sortiere|ordne|ordena|trie|triez)\s+(?:these |the |the"
    r" following |diese |die |estos |los |ces |les )*(?:numbers|values|zahlen|números|nombres)?\s*"
    r"(?P<order>(?:in |from |by |de |vom |von |en )?[^:\d-]{0,60}?)\s*:?\s*"
    r"(?P<items>-?\d[-\d\s,.;/]*\d(?:\s*(?:and|und|y|et)\s*-?[\d.]+)?)\s*(?P<order2>[^\d]{0,70})$",
    re.IGNORECASE,
)


def _sort_numbers(text: str) -> RightAnswer | None:
    """Answer `Sort 5, 2, 9 in descending order`, for 3 or more numbers; None for others."""
    found = _SORT.match(text)
    if not found:
        return None
    order = f"{found['order']} {found['order2']}".casefold()
    is_down = bool(
        re.search(
            r"descend|decreas|largest (?:to|first)|high(?:est)? to low|big"
            r"(?:gest)? to small|absteigend|descendente|décroissant|größten zu|mayor a menor",
            order,
        )
    )
    is_up = bool(
        re.search(
            r"ascend|increas|smallest (?:to|first)|low(?:est)? to high"
            r"|small to (?:big|large)|aufsteigend|ascendente|(?<!dé)croissant|kleinsten zu|menor a"
            r" mayor",
            order,
        )
    )
    if is_up == is_down and order.strip(" .?!:"):
        return None
    parts = re.split(r"\s*(?:[;\s]|,\s|,(?=-?\d)|\band\b|\bund\b|\by\b|\bet\b)\s*", found["items"])
    try:
        items = [Fraction(part) for part in parts if part]
    except ValueError:
        return None
    if not 3 <= len(items) <= MAX_SERIES:
        return None
    series = sorted(items, reverse=is_down)
    return RightAnswer(
        f"in order they are {', '.join(number_text(item) for item in series[:15])}",
        "arithmetic",
        series=tuple(series),
    )


_GOES_ON: Final = re.compile(
    r"^(?:what (?:number )?(?:is|comes)(?: the)? next(?: number)?(?: in (?:the|this) (?:sequence"
    r"|series|pattern))?|complete the (?:sequence|series)|continue the (?:sequence|series)|next"
    r" number in the sequence)\s*[:?,]?\s*(?P<items>-?\d[-\d\s,.]*?\d)\s*,?\s*(?:\.{3}|…|_+|\?"
    r"|\.)*\s*$",
    re.IGNORECASE,
)


def _goes_on(text: str) -> RightAnswer | None:
    """Answer `What comes next: 2, 4, 6, 8?` if the rule is clear; None for others.

    The rule is a constant step or ratio, or the sum of the two numbers before.
    """
    found = _GOES_ON.match(text)
    if not found:
        return None
    try:
        items = [Fraction(part) for part in re.split(r"[,\s]+", found["items"]) if part]
    except ValueError:
        return None
    if len(items) < 4:
        return None
    steps = {second - first for first, second in pairwise(items)}
    ratios = {second / first for first, second in pairwise(items) if first} if all(items) else set()
    if len(steps) == 1:
        value = items[-1] + steps.pop()
    elif len(ratios) == 1:
        value = items[-1] * ratios.pop()
    elif all(items[at] == items[at - 1] + items[at - 2] for at in range(2, len(items))):
        value = items[-1] + items[-2]
    else:
        return None
    return RightAnswer(
        f"the next number is {number_text(value)}", "arithmetic", value, tuple(items)
    )


_FORMS: Final = (
    _nth_number,
    _property,
    _series,
    _factors,
    about_numerals,
    _compare,
    _sort_numbers,
    _goes_on,
)


def about_integers(text: str, is_comma_decimal: bool = False) -> RightAnswer | None:
    """Return the answer to a question about whole numbers, such as `Is 91 a prime number?`.

    None for another question. `is_comma_decimal` is part of every form's signature; whole numbers
    do not depend on it.
    """
    text = text.strip()
    for form in _FORMS:
        answer = form(text)
        if answer is not None:
            return answer
    return None
