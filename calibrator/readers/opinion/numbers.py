"""Numbers and formulas in any notation of a reply.

Only fractions of two numbers are evaluated.
"""

from __future__ import annotations

import re
from typing import Final

NUMBER: Final = re.compile(
    r"(?<![\w.,])[-\u2212]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)"
    r"|(?<![\w.])[-\u2212]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
)
_FRACTION = re.compile(r"^([-\u2212]?)\\?[dt]?frac\{([-\d.]{1,12})\}\{([-\d.]{1,12})\}$")
_RATIO = re.compile(r"^[-\u2212]?\d{1,12}/\d{1,12}$")
_LATEX = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf|operatorname)\s*\{([^{}]*)\}|\\(?:left|right|big|Big|!|,|;|:|quad)"
    r"|\\\(|\\\)|\\\[|\\\]|\\ "
)
_SPACE = re.compile(r"\s+")


def plain_formula(text: str) -> str:
    r"""Return a formula without layout: `$\dfrac{1}{2}$.` is `\frac{1}{2}`."""
    plain = _LATEX.sub(lambda found: found[1] or "", text.replace("\\\\", "\\"))
    plain = plain.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\%", "%")
    plain = plain.replace("^\\circ", "").replace("^{\\circ}", "").replace("\u00b0", "")
    plain = plain.replace("\\cdot", "*").replace("\\times", "*").replace("\\pi", "pi")
    return _SPACE.sub("", plain).strip("$*`\"'.,;:")


def number_of(text: str) -> float | None:
    """Return the value of a text that is only a number (`1,200`, `$12`, `3/4`, `20%`), or None.

    A percent sign is ignored: 20.0. None also for a division by zero.
    """
    bare = plain_formula(text).strip("$\u20ac\u00a3").rstrip("%")
    found = _FRACTION.match(bare)
    if found is not None:
        return _quotient(found[2], found[3], negative=bool(found[1]))
    if _RATIO.match(bare):
        above, below = bare.replace("\u2212", "-").split("/")
        return _quotient(above, below)
    return value_of(bare) if NUMBER.fullmatch(bare) else None


def _quotient(above: str, below: str, negative: bool = False) -> float | None:
    """Return the quotient of two numbers as text, or None for zero below or unreadable digits."""
    try:
        value = float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        return None
    return -value if negative else value


def value_of(text: str) -> float:
    """Return the value of a text that `NUMBER` matched; only its first 40 characters count."""
    return float(text.replace(",", "").replace("\u2212", "-")[:40])
