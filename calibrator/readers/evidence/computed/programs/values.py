"""Operations on the values of an evaluated program, each with a limit of size.

The values are numbers, texts, lists, tuples, dicts and sets. Nothing here reaches the machine.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.word_lists import word_set

MAX_WEIGHT: Final = 2_000  # elements of a value, with all elements of its elements
MAX_TEXT: Final = 8_000  # characters of a text
MAX_NUMBER: Final = 10**60
_SIMPLE_SPEC: Final = re.compile(r"[<>^]?0?\d{0,2},?(?:\.\d{1,2})?[dfsxbe%]?")
MAX_PATTERN: Final = 200  # characters
MAX_WORK: Final = 100_000  # places that backtracking may try
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_REFERENCE: Final = re.compile(r"\\[1-9kKgGpPXR]")
_UNKNOWN: Final = re.compile(r"\(\?(?!:|P?<[A-Za-z]\w*>)|[+*?}]\+")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,\d*\}")


class NotComputableError(Exception):
    """The program needs something that the evaluator does not offer, or too much of it."""


class RaisedError(Exception):
    """The program raises an error; its message is the name of the error's class."""


def weight(value: Any) -> int:
    """Return the number of elements of a value, nested ones included; long texts weigh more.

    Raises NotComputableError above the limit.
    """
    total, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        total += 1
        if isinstance(each, str):
            if len(each) > MAX_TEXT:
                raise NotComputableError
            total += len(each) // 16
        elif isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set):
            waiting += each
        if total + len(waiting) > MAX_WEIGHT:
            raise NotComputableError
    return total


def check_value(value: Any) -> Any:
    """Return the value itself. Raises NotComputableError if it is too large, or complex."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise NotComputableError
    if isinstance(value, complex):
        raise NotComputableError
    if isinstance(value, str | list | tuple | set | dict) and len(value) > MAX_TEXT:
        raise NotComputableError
    return value


def guarded_call(function: Callable[..., Any], *args: Any) -> Any:
    """Return `function(*args)`. Raises RaisedError with the name of an error that Python raises.

    Raises NotComputableError for a result beyond the limits.
    """
    try:
        return check_value(function(*args))
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise RaisedError(type(error).__name__) from None


def set_of(every: list[Any]) -> Any:
    """Return the set of some values. Raises RaisedError if one of them is not hashable."""
    weight(every)
    return guarded_call(set, every)


def put(owner: list[Any] | dict[Any, Any], key: Any, value: Any) -> None:
    """Set `owner[key] = value` in place.

    Raises NotComputableError for values that are too large.
    """
    weight(owner if isinstance(key, slice) else key)
    weight((owner, value))
    guarded_call(owner.__setitem__, key, value)


_OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
    ast.LShift: operator.lshift,
}
_COMPARISONS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, all_: one in all_,
    ast.NotIn: lambda one, all_: one not in all_,
}


def combine(kind: type, left: Any, right: Any) -> Any:
    """Return `left <operator> right`; `kind` is a class such as `ast.Add`.

    Raises NotComputableError for an unknown operator or a large result, and RaisedError where
    Python raises.
    """
    if kind not in _OPERATORS or (kind is ast.Mod and isinstance(left, str)):
        raise NotComputableError
    if kind is ast.Pow and not (
        isinstance(left, int | float)
        and isinstance(right, int | float)
        and abs(left) <= 10**6
        and abs(right) <= 64
    ):
        raise NotComputableError
    if kind in (ast.LShift, ast.RShift) and not (isinstance(right, int) and 0 <= right <= 64):
        raise NotComputableError
    if kind is ast.Mult:
        for many, times in ((left, right), (right, left)):
            is_repeated = isinstance(many, str | list | tuple) and isinstance(times, int)
            if is_repeated and len(many) * max(times, 0) > MAX_WEIGHT:
                raise NotComputableError
    if isinstance(left, list | tuple | set | dict | str):
        weight((left, right))
    return guarded_call(_OPERATORS[kind], left, right)


def compare(kind: type, left: Any, right: Any) -> Any:
    """Return `left <comparison> right`; `kind` is a class such as `ast.Lt`.

    Raises RaisedError where Python raises.
    """
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        weight((left, right))
    return guarded_call(_COMPARISONS[kind], left, right)


_BY_TYPE: Final[dict[type, frozenset[str]]] = {
    str: word_set(
        "lower upper strip lstrip rstrip split rsplit join replace startswith endswith find rfind"
        " index count isdigit isalpha isalnum isspace isupper islower title capitalize swapcase"
        " casefold zfill ljust rjust center removeprefix removesuffix splitlines partition"
        " rpartition isnumeric isdecimal"
    ),
    list: word_set("append extend pop insert remove index count sort reverse copy clear"),
    tuple: word_set("index count"),
    dict: word_set("get keys values items pop setdefault update copy clear"),
    set: word_set(
        "add discard remove union intersection difference update issubset issuperset copy clear"
        " symmetric_difference isdisjoint"
    ),
    int: word_set("bit_length bit_count"),
    float: word_set("is_integer"),
}


def method_of(owner: Any, name: str, args: list[Any]) -> Any:
    """Return the value of `owner.name(*args)` for a method that the evaluator knows.

    It may change `owner` in place. Raises NotComputableError for others and for large values, and
    RaisedError where Python raises.
    """
    if name not in _BY_TYPE.get(type(owner), ()):
        raise NotComputableError
    weight((owner, args))
    if any(isinstance(each, int) and abs(each) > MAX_WEIGHT for each in args):
        raise NotComputableError
    new = len(str(args[1])) if name == "replace" and len(args) > 1 else 0
    if new and (len(owner) + 1) * new > 10 * MAX_TEXT:
        raise NotComputableError
    if name == "join":
        args = [elements(args[0])]
        if len(owner) * len(args[0]) > 10 * MAX_TEXT:
            raise NotComputableError
    value = guarded_call(getattr(owner, name), *args)
    return list(value) if name in ("keys", "values", "items") else value


def elements(value: Any) -> list[Any]:
    """Return the elements of a value in order.

    Raises NotComputableError for a set of two or more, whose order is not defined, and RaisedError
    for a number or None.
    """
    if isinstance(value, set) and len(value) > 1:
        raise NotComputableError
    if isinstance(value, str | list | tuple | dict | set):
        return list(value)
    if isinstance(value, int | float) or value is None:
        raise RaisedError("TypeError")
    raise NotComputableError


def text_of(value: Any) -> str:
    """Return what `print` writes for a value.

    Raises NotComputableError if it has a set of two or more.
    """
    weight(value)
    if _has_set(value):
        raise NotComputableError
    return str(value)


def _has_set(value: Any) -> bool:
    """Return whether a value is, or a list in it has, a set of two or more elements."""
    if isinstance(value, list | tuple):
        return any(map(_has_set, value))
    return isinstance(value, set) and len(value) > 1


def format_value(value: Any, spec: str) -> str:
    """Return a value in the format of an f-string, such as `1.50` for `.2f`.

    Raises NotComputableError for a rare format, and RaisedError for one that does not fit.
    """
    if not _SIMPLE_SPEC.fullmatch(spec):
        raise NotComputableError
    return str(guarded_call(format, value, spec)) if spec else text_of(value)


def _range(*args: Any) -> list[int]:
    """Return the numbers of `range(*args)`. Raises NotComputableError above MAX_WEIGHT of them."""
    if all(isinstance(each, int) for each in args) and 1 <= len(args) <= 3:
        numbers: range = guarded_call(range, *args)
        if len(numbers) > MAX_WEIGHT:
            raise NotComputableError
        return list(numbers)
    raise RaisedError("TypeError")


def _of_elements(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` for the evaluator, so that its first argument may be a set of any size.

    The order of its elements does not matter to such a function, as to `sum`.
    """

    def call(value: Any, *more: Any) -> Any:
        return function(list(value) if isinstance(value, set) else elements(value), *more)

    return call


def _extreme(function: Callable[[Iterable[Any]], Any]) -> Callable[..., Any]:
    """Return `min` or `max` for the evaluator: of one collection, or of several arguments."""

    def call(*args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], set):
            return function(args[0])
        return function(elements(args[0]) if len(args) == 1 else args)

    return call


def _bound_work(function: Callable[..., Any], most: int) -> Callable[..., Any]:
    """Return a function that raises NotComputableError for whole numbers beyond `most`."""

    def call(*args: Any) -> Any:
        if any(isinstance(each, int) and abs(each) > most for each in args):
            raise NotComputableError
        return function(*args)

    return call


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "len": len,
    "range": _range,
    "sum": _of_elements(sum),
    "min": _extreme(min),
    "max": _extreme(max),
    "abs": abs,
    "sorted": _of_elements(sorted),
    "any": _of_elements(any),
    "all": _of_elements(all),
    "reversed": lambda value: elements(value)[::-1],
    "list": lambda *args: elements(*args) if args else [],
    "tuple": lambda *args: tuple(elements(*args)) if args else (),
    "set": lambda *args: set(args[0]) if args else set(),
    "frozenset": lambda *args: set(args[0]) if args else set(),
    "dict": lambda *args: dict(*args),
    "str": lambda *args: text_of(*args) if args else "",
    "repr": lambda value: repr(value) if not _has_set(value) else text_of(value),
    "int": int,
    "float": float,
    "bool": bool,
    "enumerate": lambda value, start=0: list(enumerate(elements(value), start)),
    "zip": lambda *args: list(zip(*map(elements, args), strict=False)),
    "round": round,
    "divmod": divmod,
    "ord": ord,
    "chr": _bound_work(chr, 0x10FFFF),
    "bin": bin,
    "hex": hex,
    "math.sqrt": math.sqrt,
    "math.isqrt": math.isqrt,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.gcd": math.gcd,
    "math.lcm": math.lcm,
    "math.prod": _of_elements(math.prod),
    "math.fabs": math.fabs,
    "math.factorial": _bound_work(math.factorial, 40),
    "math.hypot": math.hypot,
    "math.trunc": math.trunc,
    "re.match": lambda *args: match_text(re.match, *args),
    "re.fullmatch": lambda *args: match_text(re.fullmatch, *args),
    "re.search": lambda *args: match_text(re.search, *args),
    "statistics.mean": _of_elements(lambda values: sum(values) / len(values)),
}
TYPES: Final[dict[str, type]] = {
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "bool": bool,
}
CONSTANTS: Final[dict[str, Any]] = {
    "math.pi": math.pi,
    "math.e": math.e,
    "math.inf": math.inf,
    "re.I": re.IGNORECASE.value,
    "re.IGNORECASE": re.IGNORECASE.value,
    "re.ASCII": re.ASCII.value,
    "string.ascii_lowercase": "abcdefghijklmnopqrstuvwxyz",
    "string.ascii_uppercase": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "string.digits": "0123456789",
    "string.punctuation": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}


def is_quick(pattern: str, text: str) -> bool:
    """Return whether a pattern can be tried on a text in few steps.

    A repeated group with a repetition or a choice inside is never quick, nor is a pattern with
    references or a look around. Otherwise the number of repetitions and the length of the text
    bound the steps.
    """
    if len(pattern) > MAX_PATTERN or _REFERENCE.search(pattern):
        return False
    plain = _CLASS.sub("c", re.sub(r"\\.", "e", _CLASS.sub("c", pattern)))
    if _UNKNOWN.search(plain):
        return False
    opened: list[int] = []
    for at, sign in enumerate(plain):
        if sign == "(":
            opened.append(at)
        elif sign == ")":
            if not opened:
                return False
            inner = plain[opened.pop() : at]
            is_repeated = plain[at + 1 : at + 2] in ("*", "+", "{")
            if is_repeated and re.search(r"[*+|{]|[^(]\?", inner[1:]):
                return False
    repeats = len(_REPEAT.findall(plain))
    return bool((len(text) + 2) ** repeats <= MAX_WORK)


def match_text(search: Callable[..., Any], pattern: Any, text: Any, flags: Any = 0) -> str | None:
    """Return `match` and the matched text, or None; `search` is a function such as `re.search`.

    Raises NotComputableError for a slow pattern or rare flags, and RaisedError for a wrong pattern.
    """
    if not isinstance(pattern, str) or not isinstance(flags, int):
        raise NotComputableError
    if not isinstance(text, str):
        raise RaisedError("TypeError")
    if not is_quick(pattern, text) or flags not in (0, re.IGNORECASE, re.ASCII):
        raise NotComputableError
    try:
        found = search(pattern, text, flags)
    except (re.error, OverflowError):
        raise RaisedError("error") from None
    return None if found is None else "match" + str(found[0])
