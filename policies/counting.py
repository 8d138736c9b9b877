"""Counts in words: `1 reply`, `1,204 replies`."""

from __future__ import annotations


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun, such as `1 reply` or `1,204 replies`.

    `many` is the plural; without it, an s is added to `one`. The noun may include the verb:
    `plural(1, "reply lacks", "replies lack")`.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
