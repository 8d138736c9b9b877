"""Changes to the numbers of a reply: the last one, or a result inside the working."""

from __future__ import annotations

import random
import re

_NUMBER = re.compile(
    r"(?<![\w.,\\])-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?!\w)"
    r"|(?<![\w.\\])-?[0-9]++(?:\.[0-9]++)?(?!\.?\w)"
)
_RESULT = re.compile(
    r"=[ \t]{0,4}(?:[$€£][ \t]{0,2})?(-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?)(?![.,]?\w)"
)
_OPERATION = re.compile(r"[-+*/^%\u00d7\u00b7\u00f7\u2212]|\\(?:[dt]?frac|times|cdot|div|sqrt)")
MAX_DIGITS = 15  # characters; a longer number is an identifier
LEFT_SIDE = 120  # characters before an equals sign that are searched for an operation
YEARS = range(1000, 2101)  # whole numbers that are mostly years; another size would be absurd


def last_number_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with another last number of the same form: `so 42.` gives `so 43.`.

    None without a number, or if the last one is longer than `MAX_DIGITS` characters.
    """
    found = None
    for found in _NUMBER.finditer(answer):  # noqa: B007  # the last one is used
        pass
    if found is None or len(found[0]) > MAX_DIGITS:
        return None
    return answer[: found.start()] + move_number(found[0], rng) + answer[found.end() :]


def result_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with one result of its working changed, such as the 42 in `6 * 7 = 42`.

    A result follows an equals sign with an operation on its left side (an argument of a call
    has none) and precedes another number; the reply's last number is kept. None if there is no
    such result.
    """
    end = 0
    for number in _NUMBER.finditer(answer):
        end = number.start()
    found = [
        each
        for each in _RESULT.finditer(answer)
        if each.end(1) <= end and len(each[1]) <= MAX_DIGITS and _is_computed(answer, each.start())
    ]
    if not found:
        return None
    one = rng.choice(found)
    return answer[: one.start(1)] + move_number(one[1], rng) + answer[one.end(1) :]


def arrival_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply whose working arrives at another number than its unchanged end, or None.

    All earlier occurrences of the last number get one other value. None if the last number does
    not occur before, or is longer than `MAX_DIGITS` characters.
    """
    found = list(_NUMBER.finditer(answer))
    if len(found) < 2 or len(found[-1][0]) > MAX_DIGITS:
        return None
    last = found[-1][0]
    before = [each for each in found[:-1] if each[0] == last]
    if not before:
        return None
    other, end, parts = move_number(last, rng), 0, []
    for each in before:
        parts += [answer[end : each.start()], other]
        end = each.end()
    return "".join([*parts, answer[end:]])


def _is_computed(answer: str, equals: int) -> bool:
    """Return whether the text left of the equals sign at `equals`, in its line, computes something.

    It must have a digit and an operation, as in `6 * 7 =`. False for comparisons such as `<=`.
    """
    left = re.split(r"[=\n&?]", answer[max(0, equals - LEFT_SIDE) : equals])[-1].strip(" \t*-")
    if left.endswith(("!", "<", ">")):  # a comparison
        return False
    return any(each.isdigit() for each in left) and _OPERATION.search(left) is not None


def move_number(number: str, rng: random.Random) -> str:
    """Return another number of the same form: a step away, a digit changed, or another size.

    Years (1000 to 2100) move by at most 40. A minus sign is never added.
    """
    plain = number.replace(",", "")
    whole, _, fraction = plain.partition(".")
    decimals, value, step = len(fraction), float(plain), 10.0 ** -len(fraction)
    ways = [
        value + step * rng.choice((-3, -2, -1, 1, 2, 3)),
        value * rng.choice((0.5, 2, 10, 0.1, 1.1, 0.9, 1.25)),
        value + 10 ** rng.randint(0, max(0, len(whole) - 1)) * rng.randint(1, 9),
    ]
    if not fraction and "," not in number and value in YEARS:
        ways[1:] = [value + rng.choice((-40, -20, -10, 10)), value + rng.choice((-7, -4, 5, 8))]
    rng.shuffle(ways)
    ways += [value + 7 * step, abs(value) + 7 * step]
    written = (_write_like(new, number, decimals) for new in ways)
    return next(each for each in written if _is_another(each, number, value))


def _write_like(value: float, number: str, decimals: int) -> str:
    """Write a value in the form of `number`, with its thousands commas, decimals and zeros."""
    if "," in number:
        return f"{value:,.{decimals}f}"
    has_zeros = number.lstrip("-").startswith("0") and decimals == 0
    return f"{value:0{len(number)}.0f}" if has_zeros else f"{value:.{decimals}f}"


def _is_another(written: str, number: str, value: float) -> bool:
    """Return whether a written number differs from `value`, without a new minus sign."""
    is_signed = written.startswith("-") and not number.startswith("-")
    return float(written.replace(",", "")) != value and not is_signed
