"""The exact value of an arithmetic expression in symbols or words.

The parser descends over tokens and never evaluates text as code. Any unknown word makes the text
unreadable, so that a sentence which merely contains numbers is no expression.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import (
    VULGAR,
    digits_for_words,
    number_words,
    readings,
)
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.text.looking_for import letters_in

MAX_LENGTH: Final = 300  # characters of an expression
MAX_BITS: Final = 2000  # size of an intermediate result
MAX_DEPTH: Final = 30

# Words for signs, in the order in which they are replaced. `@` is "of", a multiplication that
# binds more closely than all others.
_WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), sign)
    for pattern, sign in (
        (r"\bper cent\b|\bpercent\b|\bprozent\b|\bpor ciento\b|\bpour cent\b|\bpct\b|％", "%"),
        (r"\bsquare root (?:of|from)\b|\bsqrt\b|\braíz cuadrada de(?:l)?\b", "√"),
        (r"\bracine carrée de\b|\b(?:quadrat)?wurzel (?:aus|von)\b|\bsquare root\b", "√"),
        (r"\bcube root of\b|\bracine cubique de\b|\braíz cúbica de\b|\bdritte wurzel aus\b", "∛"),
        (r"\bto the power (?:of )?\b|\braised to(?: the power(?: of)?)?\b|\*\*|\bhoch\b", "^"),
        (r"\belevado a(?: la)?\b|\b(?:à la )?puissance\b", "^"),
        (r"\bto the (\d{1,2})(?:st|nd|rd|th)(?: power)?\b", r"^\1"),
        (r"\bsquared\b|²|\bau carré\b|\bal cuadrado\b|\bim quadrat\b|\bzum quadrat\b", "^2"),
        (r"\bcubed\b|³|\bau cube\b|\bal cubo\b", "^3"),
        (r"\b(?:the )?square of\b", "²"),
        (r"\b(?:the )?cube of\b", "³"),
        (r"\b(?:the )?factorial of\b", "‼"),
        (r"\bfactorial\b|！", "!"),
        (r"\bmultiplied (?:by|with)\b|\bmultipliziert mit\b|\bmultiplicado por\b", "*"),
        (r"\bmultiplié par\b|\btimes\b|\bmal\b|\bfois\b|[×·⋅∙]", "*"),
        (r"\bdivided by\b|\b(?:geteilt|dividiert) durch\b|\bdivisée? par\b|÷", "/"),
        (r"\bdividido (?:por|entre)\b|\bdurch\b|\bentre\b|\bover\b", "/"),
        (r"\bmodulo\b|\bmod\b", "~"),
        (r"\bplus\b|\badded to\b|\bmás\b|\bund\b", "+"),
        (r"\bminus\b|\bless\b|\bmenos\b|\bmoins\b|\btake away\b|[−–—]", "-"),
        (r"(?<=[\d)%])\s*\bpor\b\s*(?=[\d(])|(?<=[\d)])\s*[x]\s*(?=[\d(])", "*"),
        (r"\b(?:a |one |the |1 )?half(?: of)?\b|\bdie hälfte von\b|\bhälfte von\b", "(1/2)@"),
        (r"\b(?:la )?mitad de\b|\b(?:la )?moitié de\b", "(1/2)@"),
        (
            r"\b(?:a |one |1 )?third of\b|\bein drittel von\b|\bun tercio"
            r" de\b|\bun tiers de\b",
            "(1/3)@",
        ),
        (
            r"\b(?:a |one |1 )?(?:quarter|fourth) of\b|\bein viertel von\b"
            r"|\bun cuarto de\b",
            "(1/4)@",
        ),
        (r"\b(?:un|le) quart de\b", "(1/4)@"),
        (r"\b(?:a |one |1 )?fifth of\b|\bein fünftel von\b", "(1/5)@"),
        (r"\b(?:a |one |1 )?(?:tenth) of\b|\bein zehntel von\b", "(1/10)@"),
        (r"\b(\d{1,2}) thirds(?: of)?\b", r"(\1/3)@"),
        (r"\b(\d{1,2}) (?:quarters|fourths)(?: of)?\b", r"(\1/4)@"),
        (r"\b(\d{1,2}) fifths(?: of)?\b", r"(\1/5)@"),
        (r"\b(\d{1,2}) (?:eighths)(?: of)?\b", r"(\1/8)@"),
        (r"\b(\d{1,2}) (?:tenths)(?: of)?\b", r"(\1/10)@"),
        (r"\b(?:double|twice|das doppelte von|(?:el )?doble de|(?:le )?double de)\b(?: of)?", "2@"),
        (r"\b(?:triple|thrice|three times|das dreifache von|(?:el )?triple de)\b(?: of)?", "3@"),
        (r"\b(?:quadruple)\b(?: of)?", "4@"),
        (r"(\d{1,6})\s?/\s?(\d{1,6})\s+(?:of|von|de|du)\b", r"(\1/\2)@"),
        (r"(?<=[%)\d])\s*\b(?:of|von|de|du|des|aus|from)\b", "@"),
        (r"\b(?:a|one) hundred\b", "100"),
        (r"\ba thousand\b", "1000"),
        (r"\b(?:a )?dozen\b", "12"),
        (r"\b(?:the|number|numbers|el|le|la|les|der|die|das|von|de)\b", " "),
        (r"\bpi\b", "π"),
    )
)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[0-9]{1,3}(?:[,.'’   ][0-9]{3})++(?![0-9])(?:[.,][0-9]++)?"
    r"|[0-9]++(?:[.,][0-9]++)?|[.][0-9]++)(?P<scale>\s?(?:million|billion|thousand|millionen)\b)?"
    r"|(?P<vulgar>[½⅓⅔¼¾⅕⅛⅜⅝⅞])"
    r"|(?P<sign>[-+*/^()%!√∛²³‼@~π,;:\[\]]))"
)
_SCALE: Final = {"thousand": 1000, "million": 10**6, "millionen": 10**6, "billion": 10**9}
_MONEY: Final = re.compile(
    r"[$€£¥]|(?<=\d)\s?\b(?:dollars?|euros?|pounds?|eur|usd|gbp|bucks|cents?|francs?|franken"
    r"|pesos?)\b",
    re.IGNORECASE,
)


# Words that may be in an expression, beside the words for numbers.
_ALLOWED: Final = word_set(
    "per cent percent prozent por ciento pour pct square root of"
    " from sqrt raíz cuadrada de del racine carrée"
    " quadratwurzel wurzel aus von cube cubique cúbica dritte to the power raised hoch elevado a"
    " la à puissance st nd rd th"
    " squared au carré al cuadrado im quadrat zum cubed cubo factorial multiplied by with"
    " multipliziert mit"
    " multiplicado multiplié par times mal fois divided geteilt dividiert durch divisé divisée"
    " dividido entre over"
    " modulo mod plus added más und and minus less menos moins take away x half one die hälfte"
    " mitad moitié third ein"
    " drittel un tercio tiers quarter fourth viertel cuarto le quart fifth fünftel tenth zehntel"
    " thirds quarters"
    " fourths fifths eighths tenths double twice das doppelte el doble triple thrice dreifache"
    " quadruple du des"
    " hundred thousand million billion trillion dozen number numbers les der pi y et dollars"
    " dollar euros euro pounds pound"
    " eur usd gbp bucks cents cent francs franc franken pesos peso millionen"
)
_LETTERS: Final = re.compile(r"[^\W\d_]+")


class ExpressionError(ValueError):
    """An error for a text that is no expression, or whose value is undefined or too large."""


@dataclass(slots=True)
class Expression:
    """The value of an expression, its numbers in order, and its signs such as `+*` as one text."""

    value: Fraction
    numbers: list[Fraction] = field(default_factory=list)
    signs: str = ""


def has_only_words(text: str, more: frozenset[str] = frozenset()) -> bool:
    """Return whether each word of a text is a number, part of an expression, or in `more`."""
    known = number_words()
    words = letters_in(text.casefold())
    return not any([w not in _ALLOWED and w not in known and w not in more for w in words])


def read_expression(text: str, is_comma_decimal: bool = False) -> Expression | None:
    """Return a text that is one expression, computed, such as `15 % of 240`.

    None for another text.
    """
    if not text or len(text) > MAX_LENGTH:
        return None
    if not has_only_words(text):
        return None
    tokens = tokenize(text, is_comma_decimal)
    if not tokens:
        return None
    parser = _Parser(tokens)
    try:
        value = parser.sum()
        if parser.at != len(tokens):
            return None
    except (ExpressionError, ZeroDivisionError, OverflowError, IndexError, ValueError):
        return None
    numbers = [token for token in tokens if isinstance(token, Fraction)]
    return Expression(value, numbers, "".join(t for t in tokens if isinstance(t, str)))


def tokenize(text: str, is_comma_decimal: bool) -> list[Fraction | str] | None:
    """Return the numbers and signs of a text in order; None if it has anything else."""
    text = _MONEY.sub(" ", text)
    if _LETTERS.search(text):
        text = digits_for_words(text)
    for pattern, sign in _WORDS:
        text = pattern.sub(sign, text)
    tokens: list[Fraction | str] = []
    at, text = 0, text.strip().strip("=?. ").strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.end() == at:
            return None
        at = found.end()
        if found["number"]:
            if len(found["number"]) > 30:
                return None
            value = readings(found["number"], is_comma_decimal)[0][0]
            if found["scale"]:
                value *= _SCALE[found["scale"].strip().casefold()]
            tokens.append(value)
        elif found["vulgar"]:
            half = VULGAR[found["vulgar"]]
            if tokens and isinstance(tokens[-1], Fraction):
                tokens[-1] += half
            else:
                tokens.append(half)
        else:
            sign = found["sign"]
            tokens.append({"[": "(", "]": ")", ":": "/"}.get(sign, sign))
    return tokens


class _Parser:
    """A recursive-descent parser of tokens: sum, product, share (`of`), power, atom.

    The methods consume tokens from position `at`.
    """

    def __init__(self, tokens: list[Fraction | str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def _next(self) -> Fraction | str | None:
        """Return the next token without consuming it; None at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _take(self, signs: str) -> str:
        """Consume and return the next token if it is one of these signs; else return ""."""
        token = self._next()
        if isinstance(token, str) and token in signs:
            self.at += 1
            return token
        return ""

    def sum(self) -> Fraction:
        """Parse terms that are added or subtracted, and return their value.

        Raises ExpressionError for a syntax error, and if a percentage is added.
        """
        value = self.product()
        while sign := self._take("+-"):
            start = self.at
            term = self.product()
            if self.tokens[self.at - 1] == "%" and self.at - start == 2:
                raise ExpressionError("what a percentage is added to is ambiguous")
            value = _check_size(value + term if sign == "+" else value - term)
        return value

    def product(self) -> Fraction:
        """Parse factors that are multiplied or divided, and return their value."""
        value = self.signed_factor()
        while True:
            if sign := self._take("*/~"):
                factor = self.signed_factor()
                if sign == "*":
                    value = _check_size(value * factor)
                elif sign == "/":
                    value = _check_size(value / factor)
                else:
                    value = value % factor
            elif self._next() == "(":  # 2(3 + 4)
                value = _check_size(value * self.power())
            else:
                return value

    def signed_factor(self) -> Fraction:
        """Parse a factor that may have signs, such as `-5`, and return its value.

        Raises ExpressionError if it is nested too deeply.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError("nested too deeply")
        sign = self._take("+-")
        value = self.signed_factor() if sign else self.portion()
        self.depth -= 1
        return -value if sign == "-" else value

    def portion(self) -> Fraction:
        """Parse a share such as `15 % of 240`, or a power, and return its value."""
        value = self.power()
        if self._take("@"):
            return _check_size(value * self.portion())
        return value

    def power(self) -> Fraction:
        """Parse a power and return its value; `2^3^2` is 2^9."""
        base = self.postfix()
        if self._take("^"):
            return power_of(base, self.signed_factor())
        return base

    def postfix(self) -> Fraction:
        """Parse an atom with `!` or `%` after it, and return its value."""
        value = self.atom()
        while sign := self._take("!%"):
            value = factorial_of(value) if sign == "!" else value / 100
        return value

    def atom(self) -> Fraction:
        """Parse a number, a parenthesis, or a root or square before one, and return its value.

        Raises ExpressionError for anything else, and IndexError at the end.
        """
        token = self._next()
        self.at += 1
        if isinstance(token, Fraction):
            return token
        if token == "π":
            return Fraction(math.pi)
        if token == "(":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ExpressionError("nested too deeply")
            value = self.sum()
            if not self._take(")"):
                raise ExpressionError("a parenthesis is not closed")
            self.depth -= 1
            return value
        if token == "√":
            return root_of(self.postfix(), 2)
        if token == "∛":
            return root_of(self.postfix(), 3)
        if token == "²":
            return power_of(self.postfix(), Fraction(2))
        if token == "³":
            return power_of(self.postfix(), Fraction(3))
        if token == "‼":
            return factorial_of(self.postfix())
        raise ExpressionError("a number is missing")


def _check_size(value: Fraction) -> Fraction:
    """Return a value. Raises ExpressionError if it has too many digits."""
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise ExpressionError("the result is too large")
    return value


def power_of(base: Fraction, exponent: Fraction) -> Fraction:
    """Return a power, exact if it is rational.

    Raises ExpressionError if undefined or too large.
    """
    if exponent.denominator == 1:
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) > 1000 or size * abs(exponent) > MAX_BITS:
            raise ExpressionError("the power is too large")
        if base == 0 and exponent <= 0:
            raise ExpressionError("the power is undefined")
        return Fraction(base) ** int(exponent)
    if exponent.denominator in (2, 3) and abs(exponent.numerator) <= 20:
        return power_of(root_of(base, exponent.denominator), Fraction(exponent.numerator))
    if base <= 0:
        raise ExpressionError("the power is not real")
    return Fraction(float(base) ** float(exponent))


def root_of(value: Fraction, degree: int) -> Fraction:
    """Return the root of a degree (2: square), exact if it is rational, else as a float has it.

    A negative value has a negative root of an odd degree. Raises ExpressionError for an even one.
    """
    if value < 0:
        if degree % 2 == 0:
            raise ExpressionError("the root is not real")
        return -root_of(-value, degree)
    numerator = _whole_root(value.numerator, degree)
    denominator = _whole_root(value.denominator, degree)
    if numerator is not None and denominator is not None:
        return Fraction(numerator, denominator)
    return Fraction(float(value) ** (1 / degree))


def _whole_root(value: int, degree: int) -> int | None:
    """Return the whole root of a whole number; None if there is none."""
    root = math.isqrt(value) if degree == 2 else round(float(value) ** (1 / degree))
    return root if root**degree == value else None


def factorial_of(value: Fraction) -> Fraction:
    """Return the factorial of a whole number up to 100. Raises ExpressionError for others."""
    if value.denominator != 1 or not 0 <= value <= 100:
        raise ExpressionError("the factorial is undefined or too large")
    return Fraction(math.factorial(int(value)))
