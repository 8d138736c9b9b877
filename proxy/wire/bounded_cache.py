"""Caches of what others choose: bounded in bytes, because only short keys are remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

LONGEST: Final = 256  # bytes or characters of a key

Text = TypeVar("Text", bytes, str)
Found = TypeVar("Found")


def remembers(most: int) -> Callable[[Callable[[Text], Found]], Callable[[Text], Found]]:
    """Remembers what a function found for `most` short texts; what raises is asked again.

    What is remembered is found without a call in Python, several times a request.
    """
    return lambda find: _Remembered(find, most).__getitem__


class _Remembered(dict[Text, Found], Generic[Text, Found]):
    """Of too many the one that came first is forgotten."""

    def __init__(self, find: Callable[[Text], Found], most: int) -> None:
        self._find: Callable[[Text], Found] = find
        self._most = most

    def __missing__(self, text: Text) -> Found:
        found: Found = self._find(text)
        if len(text) <= LONGEST:
            if len(self) >= self._most:
                self.pop(next(iter(self)), None)
            self[text] = found
        return found
