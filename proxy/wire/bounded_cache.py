"""Caches of what others choose: bounded in bytes, because only short keys are remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import TypeVar

LONGEST = 256  # bytes or characters of a key

Text = TypeVar("Text", bytes, str)
Found = TypeVar("Found")


def remembers(most: int) -> Callable[[Callable[[Text], Found]], Callable[[Text], Found]]:
    """Remembers what a function found for the `most` short texts that were asked for last."""

    def remembering(find: Callable[[Text], Found]) -> Callable[[Text], Found]:
        known = lru_cache(maxsize=most)(find)

        def found(text: Text) -> Found:
            return known(text) if len(text) <= LONGEST else find(text)

        return update_wrapper(found, known)

    return remembering
