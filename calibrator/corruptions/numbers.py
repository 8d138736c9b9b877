"""Numbers of a reply that are changed: the last one, or a result inside the working."""

from __future__ import annotations

import random
import re

_NUMBER = re.compile(
    r"(?<![\w.,\\])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.\\])-?\d+(?:\.\d+)?(?!\w)"
)
_RESULT = re.compile(r"=\s*[$€£]?\s*(-?\d[\d,]*(?:\.\d+)?)(?![\d\w])")
MAX_DIGITS = 15  # a longer one is an identifier


def last_number_changed(answer: str, rng: random.Random) -> str | None:
    """The reply with its last number moved to another value of the same form."""
    numbers = list(_NUMBER.finditer(answer))
    if not numbers or len((found := numbers[-1])[0]) > MAX_DIGITS:
        return None
    return answer[: found.start()] + moved(found[0], rng) + answer[found.end() :]


def result_changed(answer: str, rng: random.Random) -> str | None:
    """The reply with one result of its working changed (`= 42`), and what follows kept."""
    found = [each for each in _RESULT.finditer(answer) if len(each[1]) <= MAX_DIGITS]
    if not found:
        return None
    one = rng.choice(found)
    return answer[: one.start(1)] + moved(one[1].rstrip(","), rng) + answer[one.end(1) :]


def moved(number: str, rng: random.Random) -> str:
    """Another number of the same form: a step away, a digit changed, or another size."""
    plain = number.replace(",", "")
    decimals = len(plain.partition(".")[2])
    value = float(plain)
    step = 10.0**-decimals
    ways = [
        value + step * rng.choice((-3, -2, -1, 1, 2, 3)),
        value * rng.choice((0.5, 2, 10, 0.1, 1.1, 0.9, 1.25)),
        value + 10 ** rng.randint(0, max(0, len(plain.partition(".")[0]) - 1)) * rng.randint(1, 9),
    ]
    rng.shuffle(ways)
    for new in ways:
        written = f"{new:,.{decimals}f}" if "," in number else f"{new:.{decimals}f}"
        is_signed = written.startswith("-") and not number.startswith("-")
        if float(written.replace(",", "")) != value and not is_signed:
            return written
    return f"{abs(value) + 7 * step:.{decimals}f}"
