"""Globs, the only patterns in policies: `*`, `?` and `[ab]`, as in a shell.

A glob is matched in time linear in the text for each of its stars, whatever the text: no pattern
of a policy becomes slow on a model's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Final

_SPECIAL: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Globs:
    """Patterns such as `db.*`, of which one must match the whole text; case counts."""

    patterns: tuple[str, ...]
    match: Callable[[str | None], bool] = field(init=False, repr=False, compare=False)
    """The test of whether a pattern matches the whole text; None never matches."""

    prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The beginnings of matching texts, where every pattern is a literal beginning; else empty."""

    def __post_init__(self) -> None:
        """Set `match`, and `prefixes` where all patterns are plain text with a final star."""
        is_simple = all(each.endswith("*") and is_literal(each[:-1]) for each in self.patterns)
        prefixes = tuple(pattern[:-1] for pattern in self.patterns) if is_simple else ()
        object.__setattr__(self, "prefixes", prefixes)
        object.__setattr__(self, "match", _matcher(self.patterns, prefixes))

    def covers(self, other: Globs) -> bool:
        """Return whether every text that `other` matches is matched here.

        False also where this is uncertain, as with most brackets.
        """
        return all(
            any(_covers(wider, narrower) for wider in self.patterns) for narrower in other.patterns
        )


def is_literal(pattern: str) -> bool:
    """Return whether the pattern has none of `*`, `?` and `[`, so that it matches only itself."""
    return _SPECIAL.isdisjoint(pattern)


def _matcher(patterns: tuple[str, ...], prefixes: tuple[str, ...]) -> Callable[[str | None], bool]:
    """Return the cheapest test of a text by `patterns`; it returns False for None.

    `prefixes` are the patterns without their final star where all have one and no other, else
    empty. Hundreds of tests may run for one completion.
    """
    if prefixes:
        return lambda text: text is not None and text.startswith(prefixes)
    if all(map(is_literal, patterns)):
        return frozenset(patterns).__contains__
    matches = re.compile("|".join(map(translate, patterns))).match
    return lambda text: text is not None and matches(text) is not None


@lru_cache(maxsize=4_096)
def glob_test(pattern: str) -> Callable[[str | None], bool]:
    """Return a cached function that tests whether the glob `pattern` matches a whole text.

    The function returns False for None.
    """
    return Globs((pattern,)).match


def _covers(wide: str, narrow: str) -> bool:
    """Return whether the glob `wide` surely matches all that the glob `narrow` matches.

    Each star of `narrow` is replaced by nothing and by letters that occur in no pattern, and the
    results are matched. A bracket in `wide` could exclude letters that were not tried, so with
    brackets only the same pattern and `*` cover.
    """
    if wide == narrow:
        return True
    if "[" in wide or "[" in narrow:
        return wide == "*"
    match = glob_test(wide)
    strange = (
        narrow.replace("?", "\x01").replace("*", filler) for filler in ("", "\x02", "\x02\x03\x02")
    )
    return all(map(match, strange))
