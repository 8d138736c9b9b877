"""The evaluator of small programs: its values, its limits, and its patterns."""

from __future__ import annotations

import ast
import time
from typing import Any

import pytest

from calibrator.readers.evidence.computed.programs.evaluator import Evaluator
from calibrator.readers.evidence.computed.programs.values import (
    NotComputableError,
    RaisedError,
    is_quick,
)


def value(code: str, *args: Any) -> Any:
    """Return the value of the function `f` of a program."""
    evaluator = Evaluator(ast.parse(code))
    evaluator.define()
    return evaluator.call("f", list(args))


PROGRAMS = [
    ("def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)", (9,)),
    ("def f(a):\n    a.sort(key=lambda x: -x)\n    return a[:2]", ([3, 9, 4],)),
    ("def f(t):\n    return {w: t.count(w) for w in sorted(set(t.split()))}", ("b a b",)),
    ("def f(n):\n    out = []\n    while n:\n        n, d = divmod(n, 2)\n        out += [d]\n"
     "    return out", (6,)),
    ("def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        return 0",
     ("x",)),
    ("def f(x):\n    for i in range(5):\n        if i == x:\n            break\n    else:\n"
     "        return 'none'\n    return f'{i:03d}|{x!r}'", (3,)),
    ("def f(m):\n    return [list(r) for r in zip(*m)]", ([[1, 2], [3, 4]],)),
    ("def f(a, b=2, *, c=1):\n    return a", (3,)),
    ("def f(s):\n    return sorted(s.split(), key=lambda w: (-len(w), w))[-1:]", ("bb a ccc",)),
    ("def f(d):\n    for k in list(d):\n        if d[k] is None:\n            del d[k]\n"
     "    return d", ({"a": None, "b": 1},)),
    ("import math\ndef f(x):\n    return math.ceil(x / 3) ** 2 if not x % 2 else -x", (8,)),
    ("def f(x):\n    return max(x, key=len), min(map(len, x)), sum(len(e) for e in x)",
     (["a", "bcd"],)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "args"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_values_are_those_of_python(code: str, args: tuple[Any, ...]) -> None:
    """A program has the value that Python computes, or none."""
    names: dict[str, Any] = {}
    exec(code, names)
    wanted = names["f"](*ast.literal_eval(repr(args)))
    try:
        assert value(code, *args) == wanted
    except NotComputableError:
        assert "*, c" in code


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n        x = x + 1",
        "return f(x)",
        "return 9 ** 9 ** 9",
        "return 'a' * 10 ** 9",
        "return [0] * 10 ** 9",
        "return list(range(10 ** 9))",
        "x = 7\n    for i in range(900):\n        x = x * x\n    return x",
        "s = 'ab'\n    for i in range(900):\n        s = s.replace('a', s)\n    return s",
        "a, b = [1], [1]\n    for i in range(99):\n        a = [a, a]\n        b = [b, b]\n"
        "    return a == b",
        "a, b = (1,), (1,)\n    for i in range(99):\n        a = (a, a)\n    return {a: 1}",
        "return '{0.__class__}'.format(x)",
        "return x.__class__",
        "return ().__class__.__bases__[0].__subclasses__()",
        "return open('/etc/passwd').read()",
        "return __import__('os').system('true')",
        "return eval('1')",
        "import os\n    return os.getcwd()",
        "return 1 << 10 ** 9",
        "return 'x'.ljust(10 ** 9)",
        "return f'{x:999999999}'",
        "return sorted(range(2000), key=lambda e: [e] * 900)",
    ],
)
def test_a_program_beyond_the_limits_has_no_value(body: str) -> None:
    """Endless, huge and unsafe programs end within half a second without a value."""
    start = time.process_time()
    with pytest.raises((NotComputableError, RaisedError)):
        value(f"def f(x):\n    {body}", 1)
    assert time.process_time() - start < 0.5


def test_an_error_of_the_program_is_named() -> None:
    """An error of the program is reported by its class."""
    with pytest.raises(RaisedError, match="ZeroDivisionError"):
        value("def f(x):\n    return sum(x) / len(x)", [])


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*$", r"(?=a)b", r"(\w)\1", "a*" * 40])
def test_slow_patterns_are_not_tried(pattern: str) -> None:
    """A pattern that may take many steps is not tried, an ordinary one is."""
    assert not is_quick(pattern, "a" * 30)
    assert is_quick(r"^\d{3}-[a-z*+]+(?:\.\d)?$", "123-abc.4")
