"""The numbers of a text: separators of several languages, words, fractions, percentages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT
from calibrator.readers.evidence.computed.basics.word_lists import word_list

MAX_NUMBERS: Final = 200  # numbers of a text that are read
MAX_DIGITS: Final = 40

_ENGLISH: Final = word_list(
    "zero one two three four five six seven eight nine ten eleven"
    " twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_ENGLISH_TENS: Final = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN: Final = word_list(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn"
    " elf zwölf dreizehn vierzehn fünfzehn"
    " sechzehn siebzehn achtzehn neunzehn"
)
_GERMAN_TENS: Final = word_list("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_SPANISH: Final = word_list(
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez"
    " once doce trece catorce quince"
    " dieciséis diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro"
    " veinticinco veintiséis veintisiete veintiocho veintinueve"
)
_SPANISH_TENS: Final = word_list("treinta cuarenta cincuenta sesenta setenta ochenta noventa")
_FRENCH: Final = word_list(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze"
    " douze treize quatorze quinze seize"
    " dix-sept dix-huit dix-neuf"
)
_FRENCH_TENS: Final = word_list("vingt trente quarante cinquante soixante")
_SCALES: Final = {
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
SCALE_WORDS: Final = {
    **_SCALES,
    "millions": 10**6,
    "thousands": 1000,
    "tausend": 1000,
    "millionen": 10**6,
    "mil": 1000,
    "millones": 10**6,
    "mille": 1000,
    "k": 1000,
    "m": 10**6,
    "bn": 10**9,
}
VULGAR: Final = {
    "½": Fraction(1, 2),
    "⅓": Fraction(1, 3),
    "⅔": Fraction(2, 3),
    "¼": Fraction(1, 4),
    "¾": Fraction(3, 4),
    "⅕": Fraction(1, 5),
    "⅛": Fraction(1, 8),
    "⅜": Fraction(3, 8),
    "⅝": Fraction(5, 8),
    "⅞": Fraction(7, 8),
}


@cache
def number_words() -> dict[str, int]:
    """Return the number words of English, German, Spanish and French with their values, 0 to 99.

    Keys are in lower case, such as `twenty-one`, `einundzwanzig` and `treinta y uno`. Computed
    once; the dict is shared.
    """
    words = {word: at for at, word in enumerate(_ENGLISH)}
    for ten, name in enumerate(_ENGLISH_TENS, 2):
        words[name] = 10 * ten
        for one in range(1, 10):
            words[f"{name}-{_ENGLISH[one]}"] = 10 * ten + one
    words.update({word: at for at, word in enumerate(_GERMAN)})
    for ten, name in enumerate(_GERMAN_TENS, 2):
        words[name] = words[name.replace("ß", "ss")] = 10 * ten
        for one in range(1, 10):
            unit = "ein" if one == 1 else _GERMAN[one]
            words[f"{unit}und{name}"] = words[f"{unit}und{name.replace('ß', 'ss')}"] = (
                10 * ten + one
            )
    words.update({word: at for at, word in enumerate(_SPANISH)})
    for ten, name in enumerate(_SPANISH_TENS, 3):
        words[name] = 10 * ten
        for one in range(1, 10):
            words[f"{name} y {_SPANISH[one]}"] = 10 * ten + one
    french = {word: at for at, word in enumerate(_FRENCH)}
    for ten, name in enumerate(_FRENCH_TENS, 2):
        french[name] = 10 * ten
        for one in range(1, 10):
            french[f"{name}-et-un" if one == 1 else f"{name}-{_FRENCH[one]}"] = 10 * ten + one
    for one in range(10, 20):
        french["soixante-et-onze" if one == 11 else f"soixante-{_FRENCH[one]}"] = 60 + one
    french["quatre-vingts"] = 80
    for one in range(1, 20):
        french[f"quatre-vingt-{_FRENCH[one]}"] = 80 + one
    for word, value in french.items():
        words.setdefault(word, value)
        words.setdefault(word.replace("-", " "), value)
    words.pop("un", None)  # also an article
    return words


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text: possible values (likeliest first), decimals written, and start and end.

    `is_word` is True for a number in words.
    """

    values: tuple[Fraction, ...]
    decimals: int
    start: int
    end: int
    is_percent: bool = False
    is_word: bool = False

    @property
    def value(self) -> Fraction:
        """The likeliest value."""
        return self.values[0]

    def is_close(self, wanted: Fraction) -> bool:
        """Return whether a reading equals `wanted`, within half a unit of its last decimal.

        A number without decimals must be equal.
        """
        slack = Fraction(1, 2 * 10**self.decimals) if self.decimals else Fraction(0)
        return any(abs(value - wanted) <= slack for value in self.values)

    def is_within(self, wanted: Fraction, share: Fraction) -> bool:
        """Return whether a reading differs from `wanted` by at most `share` of it; 0.01 is 1 %."""
        return any(abs(value - wanted) <= abs(wanted) * share for value in self.values)


_DIGITS: Final = re.compile(
    r"(?<![\w.,])(?P<sign>[-+−–]\s?)?"
    r"(?P<whole>[0-9]{1,3}(?:[,.'’   ][0-9]{3})++(?![0-9])(?:[.,][0-9]++)?"
    r"|[0-9]++(?:[.,][0-9]++)?|[.][0-9]++)"
    r"(?:\s?[x×*·]\s?10\s?(?:\^|\*\*)?\s?\{?(?P<power>[-−]?[0-9]{1,2}|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]{1,3})\}?"
    r"|[eE](?P<exponent>[-+]?[0-9]{1,2}))?"
    r"(?P<fraction>\s?[½⅓⅔¼¾⅕⅛⅜⅝⅞]|\s[0-9]{1,3}\s?[/⁄]\s?[0-9]{1,3}(?![0-9])"
    r"|\s?[/⁄]\s?[0-9]{1,9}(?![0-9/]))?"
    r"(?:(?P<scale>\s?(?:thousand|million|billion|trillion|millions?|millionen|millones)\b|(?:k"
    r"|bn)\b))?"
    r"(?P<percent>\s?(?:%|percent\b|per cent\b|prozent\b|por ciento\b|pour cent\b|pct\b))?",
    re.IGNORECASE,
)
_HALVES: Final = re.compile(r"(?<!\w)[½⅓⅔¼¾⅕⅛⅜⅝⅞]")
_SUPERSCRIPT: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")
_WORD: Final = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")


def readings(text: str, is_comma_decimal: bool = False) -> tuple[tuple[Fraction, ...], int]:
    """Return the possible values of digits with separators, and the decimals of the first one.

    The likeliest value is first: `1,500` is ((1500, 3/2), 0), and ((3/2, 1500), 3) with
    `is_comma_decimal`; `2.75` is ((11/4,), 2).
    """
    plain = re.sub(r"['’   ]", "", text)
    commas, dots = plain.count(","), plain.count(".")
    if not commas and not dots:
        return (Fraction(int(plain)),), 0
    if commas and dots:
        last = max(plain.rfind(","), plain.rfind("."))
        whole, part = re.sub(r"[.,]", "", plain[:last]), plain[last + 1 :]
        return (Fraction(int(whole + part), 10 ** len(part)),), len(part)
    mark = "," if commas else "."
    joined = Fraction(int(plain.replace(mark, "") or 0))
    if commas + dots > 1:
        return (joined,), 0
    whole, _, part = plain.partition(mark)
    as_decimal = Fraction(int((whole or "0") + part), 10 ** len(part))
    if len(part) != 3 or not whole or len(whole) > 3 or whole.startswith("0"):
        return (as_decimal,), len(part)
    is_decimal = (mark == ",") == is_comma_decimal
    return ((as_decimal, joined) if is_decimal else (joined, as_decimal)), (3 if is_decimal else 0)


def _digit_number(found: re.Match[str], text: str, is_comma_decimal: bool) -> Number | None:
    """Return the number of a match of `_DIGITS` in `text`, such as `-1.5 million` or `3 1/2 %`.

    It has all readings of its separators; `is_comma_decimal` is for these. A dash behind a word or
    a number, as in `3-5`, is no sign. None if its whole part has more than MAX_DIGITS characters,
    or for a denominator 0. A percentage keeps its number (50 for `50 %`).
    """
    whole = found["whole"]
    if len(whole) > MAX_DIGITS:
        return None
    values, decimals = readings(whole, is_comma_decimal)
    factor = Fraction(1)
    power = found["power"] or found["exponent"]
    if power:
        factor *= Fraction(10) ** int(power.translate(_SUPERSCRIPT))
    if found["scale"]:
        factor *= SCALE_WORDS[found["scale"].strip().casefold()]
    added = Fraction(0)
    if found["fraction"]:
        part = found["fraction"].strip()
        if part in VULGAR:
            added = VULGAR[part]
        else:
            above, _, below = part.replace("⁄", "/").partition("/")
            if int(below) == 0:
                return None
            if above.strip():  # 1 1/2
                added = Fraction(int(above), int(below))
            else:
                factor /= int(below)
    sign = -1 if (found["sign"] or "").strip() in ("-", "−", "–") else 1
    start = found.start()
    if sign < 0 and re.search(r"[\w)%]\s?$", text[max(0, start - 2) : start]):
        sign = 1  # a dash between two numbers, as in 3-5
    values = tuple(sign * (value + added) * factor for value in values)
    if power or found["scale"]:
        decimals = max(0, decimals - _tens(factor))
    elif found["fraction"]:
        decimals = 9  # a fraction is exact
    return Number(values, decimals, start, found.end(), bool(found["percent"]))


def _tens(factor: Fraction) -> int:
    """Return about how many powers of ten a factor is: 3 for 1000, -2 for 1/100."""
    return len(str(factor.numerator)) - len(str(factor.denominator))


def numbers_in(text: str, is_comma_decimal: bool = False) -> list[Number]:
    """Return the numbers of a text in order, in digits, words or as `½`, at most MAX_NUMBERS.

    With `is_comma_decimal`, the first reading of `1,500` is 1.5.
    """
    found: list[Number] = []
    for match in _DIGITS.finditer(text):
        number = _digit_number(match, text, is_comma_decimal)
        if number is not None:
            found.append(number)
        if len(found) >= MAX_NUMBERS:
            break
    for match in _HALVES.finditer(text):
        found.append(Number((VULGAR[match[0]],), 0, match.start(), match.end()))
    found += word_numbers(text)
    found.sort(key=lambda number: number.start)
    return found[:MAX_NUMBERS]


def word_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers written as words, in order, such as `two hundred and five`.

    At most MAX_NUMBERS, and only of the first MAX_TEXT characters.
    """
    known, text = number_words(), text[:MAX_TEXT]
    if not any(word.casefold() in known for word in _WORD.findall(text)):
        return
    words = list(_WORD.finditer(text))
    at = count = 0
    while at < len(words) and count < MAX_NUMBERS:
        if words[at][0].casefold() not in known:
            at += 1
            continue
        value, used = _read_words(words, at, text, known)
        if used:
            first, last = words[at], words[at + used - 1]
            yield Number((Fraction(value),), 0, first.start(), last.end(), is_word=True)
            at += used
            count += 1
        else:
            at += 1


def _read_words(
    words: list[re.Match[str]], at: int, text: str, known: dict[str, int]
) -> tuple[int, int]:
    """Return the value of the number that begins at word `at`, and how many words it takes.

    (0, 0) if none begins there. `words` are the matches of all words of `text`, and `known` maps
    number words to values.
    """
    total = part = used = 0
    is_ten = False
    while at + used < len(words) and used < 12:
        word = words[at + used][0].casefold()
        if used and not _is_joined(words[at + used - 1], words[at + used], text):
            break
        three = " ".join(each[0].casefold() for each in words[at + used : at + used + 3])
        if word in known and (part == 0 or part % 100 == 0):
            if " y " in three and three in known:  # treinta y cinco
                part, used, is_ten = part + known[three], used + 3, False
                continue
            value = known[word]
            part, used, is_ten = part + value, used + 1, value >= 20 and value % 10 == 0
        elif word in known and is_ten and known[word] < 10:
            part, used, is_ten = part + known[word], used + 1, False
        elif word == "hundred" and used and part < 100:
            part, used, is_ten = (part or 1) * 100, used + 1, False
        elif word in _SCALES and word != "hundred" and used and part:
            total, part, used, is_ten = total + part * _SCALES[word], 0, used + 1, False
        elif (
            word == "and"
            and used
            and at + used + 1 < len(words)
            and _goes_on(words, at + used, part, total, known)
        ):
            used += 1
        else:
            break
    return (total + part, used) if used else (0, 0)


def _goes_on(
    words: list[re.Match[str]], at: int, part: int, total: int, known: dict[str, int]
) -> bool:
    """Return whether the `and` at word `at` is part of a number, as in `one hundred and five`.

    `part` is the value read below the last scale word and `total` the one above it.
    """
    following = words[at + 1][0].casefold()
    is_round = (part and part % 100 == 0) or (total and not part)
    return bool(is_round) and following in known


def _is_joined(before: re.Match[str], after: re.Match[str], text: str) -> bool:
    """Return whether only a space, a hyphen or a spaced hyphen is between two words."""
    return text[before.end() : after.start()] in (" ", "-", " - ")


@lru_cache(maxsize=32)  # dates, times and units ask for the same question
def digits_for_words(text: str) -> str:
    """Return a text with its number words replaced by digits: `3 days` for `three days`."""
    parts: list[str] = []
    end = 0
    for number in word_numbers(text):
        parts += [text[end : number.start], str(number.value)]
        end = number.end
    return "".join((*parts, text[end:]))


def number_text(value: Fraction, decimals: int = 4) -> str:
    """Return a value as people write it, with at most `decimals` decimals: `36`, `0.25`, `3.3333`.

    Very large and very small values are in scientific notation, such as `1e+15`.
    """
    if value.denominator == 1:
        return f"{value.numerator}" if abs(value) < 10**15 else f"{float(value):.6g}"
    if abs(value) < Fraction(1, 1000) or abs(value) >= 10**12:
        return f"{float(value):.6g}"
    return f"{float(round(value, decimals)):.{decimals}f}".rstrip("0").rstrip(".")
