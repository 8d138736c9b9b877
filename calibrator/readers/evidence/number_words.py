"""The English words for small numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_WORDS: Final = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
NUMBER_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {word: number for number, word in enumerate(_WORDS.split())}
)
TO_TWELVE: Final[Mapping[str, int]] = MappingProxyType(
    {word: number for word, number in NUMBER_WORDS.items() if number <= 12}
)
