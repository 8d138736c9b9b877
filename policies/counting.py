"""Counts in words: `1 reply`, `1,204 replies`."""

from __future__ import annotations


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun; `many` is the plural where an added s is not enough.

    The noun may include the verb: `plural(1, "reply lacks", "replies lack")`.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
