"""Working: whether a reply agrees with itself.

The traits are sums that can be recomputed, the final number against the working's, the final option
against its text, a claim and its opposite, and a missing end. Sums such as `16 logs * 5 each = 80`
are parsed by hand, a hundred characters before each sign of equality; no part of a reply is run as
code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from calibrator.text.looking_for import SoughtPattern, reading_of
from calibrator.text.options import final_letter, options_of

MAX_SUMS = 60
REACH = 100  # characters before a sign of equality that are searched for its sum
CLOSE = 160  # a result counts as rounded below a relative error of 1 / CLOSE
RESULT = SoughtPattern(
    re.compile(
        r"(?:=|≈|\\approx|\bequals\b)\s{0,3}\\?[$€£]?\s?(-?\d[\d,]*(?:\.\d+)?)(%?)"
        r"(?![\d^!(*/\u00d7+])"
    ),
    parts=("=", "≈", "\\approx", "equals"),
)
_BEGIN = re.compile(r"[\n=≈:;?!<>{}\[\]\"]|\.\s|,\s|\\approx|\bequals\b|\bis\b|\bare\b")
_TOKEN = re.compile(
    r"(?P<unit>/\s?[A-Za-z]+)|(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)|(?P<sign>\\times|\\cdot|\\div|[-+*/\u00d7\u00f7\u00b7\u2212\u2013^()%])"
    r"|(?P<word>[A-Za-z]+)|(?P<other>\S)"
)
_SIGNS = {
    **dict.fromkeys(("\\times", "\u00d7", "\u00b7", "\\cdot", "x", "times"), "*"),
    **dict.fromkeys(("\\div", "\u00f7", "over"), "/"),
    **dict.fromkeys(("\u2212", "\u2013", "minus"), "-"),
    "plus": "+",
}
_IGNORED = frozenset("$€£\\,'")
MAX_CHARACTERS = 8_000  # characters of a reply that are read, from its two ends
LEAST = 15  # characters of a sentence that is compared with its negation
NUMBER_STATED, OPTION_NAMED = 4, 16  # columns that are 1 where a reply has a number, or an option
_NUMBER = re.compile(r"(?<![\w.,])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.])-?\d+(?:\.\d+)?")
_EQUALS = SoughtPattern(
    re.compile(r"(?:=|≈)\s*[$€£]?\s*(-?\d[\d,]*(?:\.\d+)?)(?![\d])"), parts=("=", "≈")
)
_SENTENCE = re.compile(r"[.!?\n]+\s*")
_NOT = SoughtPattern(re.compile(r"\b(?:not|never)\b|n't\b"), parts=("not", "never", "n't"))
_YES = re.compile(r"\W*(yes|no|true|false)\b", re.IGNORECASE)
_CONCLUDES = re.compile(
    r"(?:answer is|answer:|therefore|so|thus|hence)\W{0,4}(yes|no|true|false)\b", re.IGNORECASE
)
_PIECE = re.compile(r"[a-z]{3,}|\d+(?:\.\d+)?")


def working_traits(question: str, answer: str) -> list[float]:
    """Return the 41 traits of one reply; finite for every text.

    They are 0 where a check does not apply. The first and last 4,000 characters of a reply are
    read.
    """
    half = MAX_CHARACTERS // 2
    text = answer if len(answer) <= MAX_CHARACTERS else answer[:half] + answer[-half:]
    return [
        *_sums(text),
        *_last_number(question, text),
        *_last_option(question[-6_000:], text),
        *_opposites(text),
        *_ending_traits(text),
    ]


def sums_in(text: str) -> Iterator[tuple[float, float]]:
    """Yield (value, stated result) of each readable sum: (12.0, 13.0) for `3 * 4 = 13`.

    A result in percent is divided by 100. At most 4 * `MAX_SUMS` results are looked at.
    """
    for count, found in enumerate(RESULT.pattern.finditer(text)):
        if count == 4 * MAX_SUMS:
            return
        value = value_of(text[max(0, found.start() - REACH) : found.start()])
        if value is not None:
            yield value, number(found[1]) / (100 if found[2] else 1)


def value_of(left: str) -> float | None:
    """Return the value of the sum at the end of a text, or None if there is no readable one.

    `left` is the text before an equals sign, such as `So it costs 3 * 4`. A number alone is no
    sum. None also for a division by zero.
    """
    begin = 0
    for found in _BEGIN.finditer(left):
        begin = found.end()
    tokens = _tokens(left[begin:])
    if tokens is None or not any(each in "+-*/^" for each in tokens[1:] if isinstance(each, str)):
        return None
    try:
        value, end = _sum(tokens, 0)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if end == len(tokens) and math.isfinite(value) else None


def _tokens(text: str) -> list[float | str] | None:
    """Return the numbers and signs of a text as floats and strings, or None for other text.

    Units, currencies and words before the first number are left out; `20%` is 0.2. None if two
    numbers stand side by side, or for an unknown sign.
    """
    found: list[float | str] = []
    for each in _TOKEN.finditer(text):
        kind, written = each.lastgroup, each[0]
        if kind == "number":
            if found and isinstance(found[-1], float):
                return None
            found.append(number(written))
        elif written == "of" and "%" in text[: each.start()]:
            found.append("*")
        elif kind == "word" and found and written.lower() in _SIGNS:
            found.append(_SIGNS[written.lower()])
        elif kind in ("word", "unit") or written in _IGNORED:
            continue
        elif kind == "sign" and written == "%":
            if not found or not isinstance(found[-1], float):
                return None
            found[-1] /= 100
        elif (
            written == "("
            and found
            and text[each.start() - 1] != ")"
            and isinstance(found[-1], float)
        ):
            return None  # the bracket explains the number before it
        elif kind == "sign":
            found.append(_SIGNS.get(written, written))
        else:
            return None
    return found


def number(written: str) -> float:
    """Return the value of digits with commas between thousands; nan for anything else."""
    try:
        return float(written.replace(",", "").rstrip("."))
    except ValueError:
        return math.nan


def is_close(value: float, stated: float) -> bool:
    """Return whether a stated result is the value, up to its sign, rounding or a percentage."""
    value, stated = abs(value), abs(stated)  # a leading dash may be a bullet
    apart = min(abs(value - stated), abs(value * 100 - stated))
    return apart <= max(0.006, abs(stated) / CLOSE) or round(value) == stated


def _sum(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate a sum from the token `at`, and return (value, next position).

    `tokens` are those of `_tokens`. Products bind stronger; errors are those of `_atom` and
    `_power`.
    """
    total, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in ("+", "-"):
        value, end = _product(tokens, at + 1)
        total += value if tokens[at] == "+" else -value
        at = end
    return total, at


def _product(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate factors from the token `at`, and return (value, next position).

    Raises ZeroDivisionError for a division by zero.
    """
    total, at = _power(tokens, at)
    while at < len(tokens) and tokens[at] in ("*", "/", "("):
        is_implied = tokens[at] == "("
        value, end = _power(tokens, at if is_implied else at + 1)
        total = total / value if tokens[at] == "/" else total * value
        at = end
    return total, at


def _power(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate a power, and return (value, next position).

    Raises ValueError for an exponent above 30 and for a root of a negative number.
    """
    base, at = _atom(tokens, at)
    if at < len(tokens) and tokens[at] == "^":
        exponent, at = _atom(tokens, at + 1)
        if abs(exponent) > 30 or (base < 0 and exponent != int(exponent)):
            raise ValueError("a power that is not worth its cost")
        base = base**exponent
    return base, at


def _atom(tokens: list[float | str], at: int) -> tuple[float, int]:
    """Evaluate a number, a minus sign or a bracket, and return (value, next position).

    Raises ValueError or IndexError if there is none at `at`.
    """
    token = tokens[at]
    if isinstance(token, float):
        return token, at + 1
    if token == "-":
        value, at = _atom(tokens, at + 1)
        return -value, at
    if token == "(":
        value, at = _sum(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError("a bracket is left open")
        return value, at + 1
    raise ValueError(f"no number: {token}")


def _sums(text: str) -> list[float]:
    """Return four traits of the sums that a reply states, such as `3 * 4 = 12`.

    These are the logs of one plus the right and the wrong ones, the share of wrong ones, and
    whether the last is wrong (0 or 1); zeros without a readable sum.
    """
    if not RESULT.may_be_in(reading_of(text)):
        return [0.0] * 4
    found = [is_close(value, stated) for value, stated in sums_in(text)]
    wrong = found.count(False)
    return [
        math.log1p(len(found) - wrong),
        math.log1p(wrong),
        wrong / len(found) if found else 0.0,
        float(bool(found) and not found[-1]),
    ]


def _last_number(question: str, text: str) -> list[float]:
    """Return 11 traits of the reply's last number: whether and where it occurs before.

    The first is 1 if there is a number at all; without one all are 0.
    """
    found = _numbers_in(text)
    if not found:
        return [0.0] * 11
    last, before = found[-1], found[:-1]
    value = number(last[0])
    values = [number(each[0]) for each in before]
    has_results = _EQUALS.may_be_in(reading_of(text))
    stated = _EQUALS.pattern.findall(text[: last.start()].rstrip()) if has_results else []
    results = [number(each) for each in stated]
    gap = text[before[-1].end() : last.start()] if before else text[: last.start()]
    same = [place for place, each in enumerate(values) if each == value]
    is_rounded = any(abs(each - value) <= max(0.51, abs(value) / CLOSE) for each in values[-8:])
    is_result = bool(results) and results[-1] == value
    return [
        1.0,
        math.log1p(len(same)),
        float(bool(same) and same[-1] == len(values) - 1),
        (len(values) - same[-1]) / max(1, len(values)) if same else 2.0,
        float(is_rounded),
        float(is_result),
        float(value in results),
        float(bool(results)),
        math.log1p(len(gap)),
        float(last[0] in question),
        math.log1p(len(text) - last.end()),
    ]


def _numbers_in(text: str) -> list[re.Match[str]]:
    """Return the matches of `_NUMBER`, as `finditer` would; trying only digits is faster."""
    found, at = [], 0
    for start in reading_of(text).digits:
        if start < at:
            continue
        has_sign = start > at and text[start - 1] == "-"
        number = (has_sign and _NUMBER.match(text, start - 1)) or _NUMBER.match(text, start)
        if number:
            found.append(number)
            at = number.end()
    return found


def _last_option(question: str, text: str) -> list[float]:
    """Return 14 traits of the final option: how much of it the working has.

    The first two say whether the question has options and the reply chooses one of them; the
    others are 0 if not. Words, numbers and letter of the option are compared with those of the
    best other option.
    """
    options = options_of(question)
    if not options:
        return [0.0, 0.0, *[0.0] * 12]
    found = final_letter(text)
    if found is None or found[1].upper() not in options:
        return [1.0, 0.0, *[0.0] * 12]
    letter = found[1].upper()
    body = text[: found.start()].lower()
    near = body[-300:]
    supports = [_option_support(options, part) for part in (near, body[-1_200:], body[:600])]
    compared = [_support_and_lead(each, letter) for each in supports]
    mentions = {
        each: len(
            re.findall(rf"(?:\(|\boption |\bchoice |\b){each}\b[).:]?", text[: found.start()])
        )
        for each in options
    }
    others = [count for each, count in mentions.items() if each != letter]
    digits = [each for each in _PIECE.findall(options[letter].lower()) if each[0].isdigit()]
    return [
        1.0,
        1.0,
        *(value for pair in compared for value in pair),
        float(mentions[letter] > 0),
        float(max(others, default=0) > mentions[letter]),
        float(bool(digits)),
        float(bool(digits) and all(each in near for each in digits)),
        float(bool(digits) and not any(each in body for each in digits)),
        math.log1p(len(body)),
    ]


def _option_support(options: dict[str, str], reason: str) -> dict[str, float]:
    """Return, by option letter, the share of its words and numbers that the reason has.

    `reason` is a part of the working. Words that many options share weigh less. Sums are exact
    (`fsum`), because the order of the parts follows their hashes, which differ between
    processes.
    """
    parts = {letter: set(_PIECE.findall(text.lower())) for letter, text in options.items()}
    counts: dict[str, int] = {}
    for own in parts.values():
        for part in own:
            counts[part] = counts.get(part, 0) + 1
    found = {}
    for letter, own in parts.items():
        weight = math.fsum(1 / counts[part] for part in own)
        shared = math.fsum(1 / counts[part] for part in own if part[:7] in reason)
        found[letter] = shared / weight if weight else 0.0
    return found


def _support_and_lead(support: dict[str, float], letter: str) -> tuple[float, float]:
    """Return (support of a letter, its lead over the best of the others)."""
    others = [value for each, value in support.items() if each != letter]
    return support[letter], support[letter] - max(others)


def _opposites(text: str) -> list[float]:
    """Return two traits, each 0 or 1, of a reply that contradicts itself.

    The first is 1 if a sentence occurs with and without its negation (`It is even`, `It is not
    even`), the second if the reply begins with yes and concludes with no, or with another such
    pair.
    """
    reading = reading_of(text)
    sentences = _SENTENCE.split(reading.lower)[:200] if _NOT.may_be_in(reading) else []
    negated = {each for each in sentences if _NOT.pattern.search(each)}
    denied = {_without_negations(each) for each in negated}
    is_opposed = any(
        len(key) > LEAST and key in denied
        for each in sentences
        if denied and each not in negated
        for key in [_without_negations(each)]
    )
    begins = _YES.match(text)
    ends = _CONCLUDES.findall(text) if begins else []
    turned = bool(begins and ends) and begins is not None and begins[1].lower() != ends[-1].lower()
    return [float(is_opposed), float(turned)]


def _without_negations(sentence: str) -> str:
    """Return a sentence's words (three letters or more) and numbers without negations."""
    return " ".join(_PIECE.findall(_NOT.pattern.sub(" ", sentence)))


def _ending_traits(text: str) -> list[float]:
    """Return ten traits of a missing end.

    These are open brackets, quotes and fences (differences or remainders), the kind of the last
    character, and the blanks among the last twelve.
    """
    bare = text.rstrip()
    last = bare[-1:]
    return [
        float(bare.count("{") - bare.count("}")),
        float(bare.count("(") - bare.count(")")),
        float(bare.count("[") - bare.count("]")),
        float(bare.count("```") % 2),
        float(bare.count('"') % 2),
        float(bare.count("$") % 2),
        float(last.isalnum()),
        float(last in ",;:-=+*/("),
        float(last in ".!?。"),
        float(bare[-12:].count(" ")),
    ]
