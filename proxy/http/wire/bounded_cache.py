"""Caches whose keys are chosen by others. They stay small, because only short keys are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

LONGEST: Final = 256  # bytes or characters of a key

Text = TypeVar("Text", bytes, str)
Found = TypeVar("Found")


def remembers(most: int) -> Callable[[Callable[[Text], Found]], Callable[[Text], Found]]:
    """Cache a function's results for at most `most` short texts; exceptions are not cached.

    A cached result is found without a call of a Python function, which matters because it happens
    several times per request.
    """
    return lambda find: _BoundedDict(find, most).__getitem__


class _BoundedDict(dict[Text, Found], Generic[Text, Found]):
    """A dictionary that computes missing values; when full, it drops the oldest entry."""

    def __init__(self, find: Callable[[Text], Found], most: int) -> None:
        self._find: Callable[[Text], Found] = find
        self._most = most

    def __missing__(self, text: Text) -> Found:
        """Compute a text's value and return it; it is stored if the text is short."""
        value: Found = self._find(text)
        if len(text) <= LONGEST:
            if len(self) >= self._most:
                self.pop(next(iter(self)), None)
            self[text] = value
        return value
