"""Equality of two formulas, in LaTeX or plain text (D01).

A formula is read into a tree and computed at a few points for its variables. Formulas that are
equal at all of them count as equal. No text is executed, no symbolic rewriting can hang, and the
formula's length bounds every step. Unreadable formulas are compared as text, without spaces and
layout.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_CHARACTERS: Final = 400
MAX_DEPTH: Final = 40
MAX_PARTS: Final = 40  # parts of a set, a tuple or a matrix
CLOSE: Final = 1e-9  # relative error between two ways to compute a value
ROUNDED: Final = 1e-4  # relative error between a rounded decimal and an exact value
POINTS: Final = (0.7390851332, 1.3247179572, 2.2360679775)  # the values of variables

_SPACING = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|,|;|:|!|quad|qquad|ldots|dots)(?![a-zA-Z])"
    r"|(?<!\\)\\ |~|\$|\\\(|\\\)|\\\[|\\\]|`"
)
_TEXT = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|textbf|textit|operatorname|mbox|boxed)\s*\{([^{}]*)\}"
)
_UNIT = re.compile(
    r"(?<=[\d}\s])(?:\\?%|\^?\{?\\circ\}?|\u00b0|degrees?|units?|(?:square |cubic )?"
    r"(?:cent|inche?|meter|metre|mile|feet|foot|dollar|hour|minute|second|day|year|cm|km|mm|kg|m|g)s?"
    r"(?:\^\{?\d\}?)?)\.?\s*$",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\b(?:and|or)\b")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|\\,)(?=\d{3}(?!\d))")
_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][-+]?\d{1,3})?|\.\d+)|\\([a-zA-Z]+|[{}|])|(\*\*|<=|>=|!=)|(.))"
)
_PLAIN_SIGNS = {"\u2212": "-", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u221e": "\\infty "}
_PLAIN_SIGNS |= {"\u03c0": "\\pi ", "\u221a": "\\sqrt ", "\u00b1": "\\pm ", "\u222a": "\\cup "}
_FUNCTIONS: Final[dict[str, Callable[[complex], complex]]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z),
    "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "ln": cmath.log,
    "log": cmath.log,
    "exp": cmath.exp,
    "sqrt": cmath.sqrt,
}
_CONSTANTS: Final = {"pi": math.pi, "infty": math.inf, "i": 1j, "e": math.e}
_TIMES: Final = {"*", "cdot", "times"}
_OVER: Final = {"/", "div"}
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


class UnreadableError(Exception):
    """The formula uses notation that this module does not read."""


@dataclass(frozen=True, slots=True)
class FormulaValue:
    """A number at each point, or parts in brackets; `kind` is empty for a number."""

    numbers: tuple[complex, ...] = ()
    parts: tuple[FormulaValue, ...] = ()
    kind: str = ""
    is_rounded: bool = False  # written as a decimal fraction


def same_formula(one: str, other: str) -> bool:
    """Return whether two formulas have one value, or if unreadable one text; False for empty."""
    first, second = strip_layout(one), strip_layout(other)
    if not first or not second:
        return False
    if _letters(first) == _letters(second):
        return True
    try:
        return _is_same(read(first), read(second))
    except (UnreadableError, ArithmeticError, ValueError):
        return False


def strip_layout(text: str) -> str:
    """Return a formula without layout, without its unit, and without the left side of `x =`.

    Only the first `MAX_CHARACTERS` characters are kept.
    """
    plain = text.strip()[:MAX_CHARACTERS]
    for sign, written in _PLAIN_SIGNS.items():
        plain = plain.replace(sign, written)
    plain = _TEXT.sub(r"\1", plain.replace("\\\\$", "$").replace("\\$", ""))
    plain = _JOINED.sub(",", plain).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    plain = _SPACING.sub(" ", _THOUSANDS.sub("", plain)).strip(" .,;:*\u20ac\u00a3")
    plain = _UNIT.sub("", plain).strip(" .,;:")
    sides = re.split(r"(?<![<>!])=", plain)
    if len(sides) > 1 and re.fullmatch(r"\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\([a-z]\))?\s*", sides[0]):
        plain = sides[-1].strip()
    return plain


def _letters(text: str) -> str:
    return re.sub(r"\s+|\\left|\\right", "", text)


def read(text: str) -> FormulaValue:
    """Return the value of a formula without layout.

    Raises UnreadableError for unknown notation; ArithmeticError or ValueError if it has no
    value.
    """
    reader = _FormulaReader(_tokens(text))
    value = reader.read_list()
    reader.end()
    return value


def _tokens(text: str) -> list[str]:
    r"""Split a formula into numbers, commands with their backslash (`\frac`), and signs."""
    found = []
    at = 0
    while at < len(text) and text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnreadableError(text)
        at = match.end()
        number, command, sign, character = match.groups()
        if command is not None:
            found.append(f"\\{command}")
        else:
            found.append(number or sign or character)
    return found


def _is_same(one: FormulaValue, other: FormulaValue) -> bool:
    """Return whether two values are equal at all points; parts of sets and lists in any order."""
    if one.kind != other.kind:
        return False
    if not one.kind:
        close = ROUNDED if one.is_rounded != other.is_rounded else CLOSE
        pairs = zip(one.numbers, other.numbers, strict=True)
        return all(_is_close(first, second, close) for first, second in pairs)
    if len(one.parts) != len(other.parts):
        return False
    if one.kind not in ("set", "list"):
        return all(map(_is_same, one.parts, other.parts))
    remaining = list(other.parts)
    for part in one.parts:
        found = next((each for each in remaining if _is_same(part, each)), None)
        if found is None:
            return False
        remaining.remove(found)
    return True


def _is_close(one: complex, other: complex, share: float) -> bool:
    """Return whether two numbers are equal, or finite and within a share of the larger."""
    if one == other:
        return True
    if not (cmath.isfinite(one) and cmath.isfinite(other)):
        return False
    return abs(one - other) <= share * max(abs(one), abs(other))


def _number(value: complex, *, is_rounded: bool = False) -> FormulaValue:
    """Return a constant as a value: the same number at each point."""
    return FormulaValue((value,) * len(POINTS), is_rounded=is_rounded)


class _FormulaReader:
    """A reader by recursive descent: lists, sums, products, powers and single terms."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at != len(self._tokens):
            raise UnreadableError(self._next())

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> str:
        """Take the next token and return it.

        Raises UnreadableError at the end, or if it is not `wanted` (where that is not
        empty).
        """
        found = self._next()
        if not found or (wanted and found != wanted):
            raise UnreadableError(found or "it ends too early")
        self._at += 1
        return found

    def read_list(self) -> FormulaValue:
        r"""Read the parts between `,`, `;` or `\cup`: one alone, or several as a list.

        Both signs of `\pm` are two parts. Raises UnreadableError for more than `MAX_PARTS`.
        """
        parts = self._read_sum()
        while self._next() in (",", ";", "\\cup"):
            sign = self._take()
            more = self._read_sum()
            if sign == "\\cup":
                parts = [FormulaValue(parts=(*parts, *more), kind="list")]
            else:
                parts += more
            if len(parts) > MAX_PARTS:
                raise UnreadableError("too many parts")
        return parts[0] if len(parts) == 1 else FormulaValue(parts=tuple(parts), kind="list")

    def _read_sum(self) -> list[FormulaValue]:
        r"""Read a sum as a list of one value, or of the two values of a `\pm`."""
        value = self._product() if self._next() != "\\pm" else None
        while self._next() in ("+", "-", "\\pm"):
            sign = self._take()
            more = self._product()
            zero = _number(0) if value is None else value
            if sign == "\\pm":
                return [
                    _apply(lambda a, b: a + b, zero, more),
                    _apply(lambda a, b: a - b, zero, more),
                ]
            add = sign == "+"
            value = _apply((lambda a, b: a + b) if add else (lambda a, b: a - b), zero, more)
        if value is None:
            raise UnreadableError("nothing follows a sign")
        return [value]

    def _product(self) -> FormulaValue:
        r"""Read factors, side by side or with signs; `2 \frac{1}{2}` is 2.5."""
        if self._next() in ("+", "-"):
            negative = self._take() == "-"
            value = self._product()
            return _apply(lambda a, _: -a, value, value) if negative else value
        value = self._power()
        while True:
            sign = self._next().lstrip("\\")
            if sign in _TIMES:
                self._take()
                value = _apply(lambda a, b: a * b, value, self._read_signed())
            elif sign in _OVER:
                self._take()
                value = _apply(lambda a, b: a / b, value, self._read_signed())
            elif self._begins_factor():
                add = self._is_mixed()  # a number before a fraction, as in `2 \\frac{1}{2}`
                further = self._power()
                value = _apply(
                    (lambda a, b: a + b) if add else (lambda a, b: a * b), value, further
                )
            else:
                return value

    def _read_signed(self) -> FormulaValue:
        """Read one power with an optional minus sign before it."""
        if self._next() == "-":
            self._take()
            value = self._power()
            return _apply(lambda a, _: -a, value, value)
        return self._power()

    def _begins_factor(self) -> bool:
        """Return whether a letter, number, command or bracket follows without a sign."""
        following = self._next()
        ends = ("", "cup", "pm", "}", "|", "end")
        return bool(following) and (
            following[0].isalnum()
            or following in ("(", "{")
            or (following[0] == "\\" and following[1:] not in ends)
        )

    def _is_mixed(self) -> bool:
        r"""Return whether a fraction follows a whole number, as in `2 \frac{1}{2}`."""
        return self._next() == "\\frac" and self._tokens[self._at - 1].isdigit()

    def _power(self) -> FormulaValue:
        """Read one term with its exponents (`^`, `**`) and factorials, and return its value."""
        value = self._read_single()
        while self._next() in ("^", "**", "!"):
            if self._take() == "!":
                value = _apply(lambda a, _: _factorial(a), value, value)
                continue
            negative = self._next() == "-"
            if negative:
                self._take()
            raised = self._read_single()
            value = _apply(lambda a, b: _power_of(a, -b if negative else b), value, raised)  # noqa: B023
        return value

    def _read_single(self) -> FormulaValue:
        """Read one term without exponents. Raises UnreadableError beyond `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        try:
            return self._read_alone(self._take())
        finally:
            self._depth -= 1

    def _read_alone(self, token: str) -> FormulaValue:
        """Read the number, bracket, command or letter that begins with the token."""
        if token[0].isdigit() or token[0] == ".":
            return _number(float(token), is_rounded="." in token)
        if token in _OPENING:
            return self._read_brackets(token)
        if token == "\\{":
            return self._read_until("\\}", "set")
        if token == "|":
            inner = self.read_list()
            self._take("|")
            return _apply(lambda a, _: abs(a), inner, inner)
        if token[0] == "\\" and len(token) > 1:
            return self._command(token[1:])
        if token in ("e", "i"):
            return _number(_CONSTANTS[token])
        if token.isalpha():
            return self._variable(token)
        raise UnreadableError(token)

    def _variable(self, name: str) -> FormulaValue:
        """Read the letter's index, if one follows, and return its value at each point.

        It is a number that mostly differs for each name, such as `x` and `x_1`.
        """
        if self._next() == "_":
            self._take()
            inner = self._take()
            name += inner
            if inner == "{":
                while self._next() != "}":
                    name += self._take()
                self._take("}")
        shift = sum((n + 1) * ord(letter) for n, letter in enumerate(name)) % 997 / 997
        return FormulaValue(tuple(complex(point + shift) for point in POINTS))

    def _read_brackets(self, opening: str) -> FormulaValue:
        """Read the rest of a bracket: one value, or the parts of a point or an interval.

        The `kind` of several parts is their brackets, such as `(]`. Raises UnreadableError
        if one value is closed by another bracket.
        """
        inner = self.read_list()
        closing = self._take()
        if closing not in (")", "]", "}"):
            raise UnreadableError(closing)
        if inner.kind == "list" and opening in "([":
            return FormulaValue(
                parts=inner.parts, kind=f"{opening}{closing}"
            )  # a point or an interval
        if closing != _OPENING[opening]:
            raise UnreadableError(closing)
        return inner

    def _read_until(self, closing: str, kind: str) -> FormulaValue:
        """Read parts up to the token `closing` as a value of this kind, such as `set`."""
        inner = self.read_list()
        self._take(closing)
        return FormulaValue(parts=inner.parts if inner.kind == "list" else (inner,), kind=kind)

    def _command(self, name: str) -> FormulaValue:
        r"""Read what follows the LaTeX command `name`, and return its value.

        An unknown one is a variable. Raises UnreadableError for a misplaced sign such as
        `\times`.
        """
        if name == "frac":
            above, below = self._argument(), self._argument()
            return _apply(lambda a, b: a / b, above, below)
        if name == "sqrt":
            root = self._root()
            inner = self._argument()
            return _apply(lambda a, b: _power_of(a, 1 / b), inner, root)
        if name in ("binom", "dbinom", "tbinom"):
            above, below = self._argument(), self._argument()
            return _apply(_binomial, above, below)
        if name == "begin":
            return self._matrix()
        if name in _CONSTANTS:
            return _number(_CONSTANTS[name])
        if name in _FUNCTIONS:
            return self._function(name)
        if name in ("cdot", "times", "div", "cup", "pm", "mp", "end"):
            raise UnreadableError(name)
        return self._variable(name)

    def _root(self) -> FormulaValue:
        """Read the degree of a root in square brackets; 2 without any."""
        if self._next() != "[":
            return _number(2)
        self._take()
        root = self.read_list()
        self._take("]")
        return root

    def _argument(self) -> FormulaValue:
        r"""Read an argument in braces, or one digit or letter: `\frac12` is a half."""
        token = self._next()
        if token.isdigit() and len(token) > 1:
            digits = list(token)
            self._tokens = [*self._tokens[: self._at], *digits, *self._tokens[self._at + 1 :]]
        return self._read_single()

    def _function(self, name: str) -> FormulaValue:
        """Read a function's argument, after an optional base and exponent, and apply it."""
        base: FormulaValue | None = None
        exponent: FormulaValue | None = None
        while self._next() in ("_", "^"):
            if self._take() == "_":
                base = self._read_single()
            else:
                exponent = self._read_single()
        inner = self._power()
        function = _FUNCTIONS[name]
        value = _apply(lambda a, _: function(a), inner, inner)
        if base is not None:
            value = _apply(lambda a, b: a / cmath.log(b), value, base)
        return value if exponent is None else _apply(_power_of, value, exponent)

    def _matrix(self) -> FormulaValue:
        r"""Read `\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}` row by row; every cell is a part."""
        self._name()
        parts = [self.read_list()]
        while self._next() != "\\end":
            token = self._take()
            if token == "&" or (token == "\\" and self._next() == "\\"):
                if token == "\\":
                    self._take()
                if self._next() == "\\end":
                    break
                parts.append(self.read_list())
                if len(parts) > MAX_PARTS:
                    raise UnreadableError("too many parts")
            else:
                raise UnreadableError(token)
        self._take("\\end")
        self._name()
        return FormulaValue(parts=tuple(parts), kind="matrix")

    def _name(self) -> None:
        self._take("{")
        while self._take() != "}":
            pass


def _apply(
    operation: Callable[[complex, complex], complex], one: FormulaValue, other: FormulaValue
) -> FormulaValue:
    """Return the operation's result on two numbers at each point; rounded if either is.

    Raises UnreadableError for values with parts.
    """
    if one.kind or other.kind:
        raise UnreadableError("brackets with several parts are no number")
    pairs = zip(one.numbers, other.numbers, strict=True)
    rounded = one.is_rounded or other.is_rounded
    return FormulaValue(tuple(operation(a, b) for a, b in pairs), is_rounded=rounded)


def _power_of(base: complex, exponent: complex) -> complex:
    """Return base to the exponent; an odd root of a negative number is real."""
    if base.real < 0 and base.imag == 0 and exponent.imag == 0:  # an odd root is real
        inverse = 1 / exponent.real if exponent.real else 0.0
        if abs(inverse - round(inverse)) < CLOSE and round(inverse) % 2 == 1:
            return complex(-((-base.real) ** exponent.real))
    return complex(base**exponent)


def _factorial(value: complex) -> complex:
    """Return the factorial; raises UnreadableError but for whole numbers from 0 to 170."""
    whole = round(value.real)
    if value.imag or abs(whole - value.real) > CLOSE or not 0 <= whole <= 170:
        raise UnreadableError("no factorial")
    return complex(math.factorial(whole))


def _binomial(above: complex, below: complex) -> complex:
    """Return the binomial; raises UnreadableError unless 0 <= below <= above <= 1000."""
    first, second = round(above.real), round(below.real)
    if not 0 <= second <= first <= 1_000:
        raise UnreadableError("no binomial")
    return complex(float(math.comb(first, second)))
