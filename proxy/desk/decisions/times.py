"""Ages and remaining times in words; `console/static/times.js` writes the same."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def in_words(seconds: float) -> str:
    """Return a length of time in its largest unit, rounded down, such as `3 h`."""
    for name, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"


def format_time_left(seconds: float) -> str:
    """Return a remaining time, rounded, such as `7 d` for nearly seven days.

    Between one and two of a unit the next smaller one is used, since half of one would be lost.
    """
    for name, size in _UNITS:
        count = seconds / size
        if count >= 1.95 or 0.99 <= count <= 1.05 or (size == 60 and count >= 1):
            return f"{int(count + 0.5)} {name}"
    return in_words(seconds)
