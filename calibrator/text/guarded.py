"""Regular expressions that are tried only on texts that hold a string which each match contains.

Most patterns of the checks match few texts, and trying dozens of alternatives at every character
costs more than all else. A look-up of a pattern's needles in the kernel's index of the text takes
a microsecond; without the kernel the pattern itself is tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from calibrator.kernel import load_kernel
from calibrator.text.looking_for import kept, reading_of, without_signs_beyond_ascii
from calibrator.text.needles import needles_of

SHORT: Final = 24  # characters; on a shorter text the pattern itself is as fast


class GuardedPattern:
    """A compiled pattern that first tests cheaply whether a text can match.

    It has the methods of `re.Pattern`, with the same results.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        # These are tried at one place only, or nearly always find something.
        self.match, self.fullmatch, self.split = pattern.match, pattern.fullmatch, pattern.split

    @kept
    def _holds_any(self) -> Callable[[object], bool] | None:
        """A look-up of the needles in an index; None if the pattern has none."""
        words, parts = needles_of(self.pattern)
        kernel = load_kernel()
        if kernel is None or not (words or parts):
            return None
        whole = frozenset(filter(str.isascii, words))
        anywhere = {without_signs_beyond_ascii(each) for each in parts | (words - whole)}
        needles = (kernel.needles(tuple(sorted(whole)), tuple(sorted(anywhere))),)
        hold_any = kernel.hold_any
        return lambda index: bool(hold_any(index, needles)[0])

    def may_match(self, text: str) -> bool:
        """Return False if the pattern certainly matches nowhere in a text."""
        if len(text) < SHORT or (holds_any := self._holds_any) is None:
            return True
        index = reading_of(text).rough_index
        return index is None or holds_any(index)

    def search(self, text: str) -> re.Match[str] | None:
        return self.pattern.search(text) if self.may_match(text) else None

    def findall(self, text: str) -> list[Any]:
        return self.pattern.findall(text) if self.may_match(text) else []

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        return self.pattern.finditer(text, start) if self.may_match(text) else iter(())

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        return self.pattern.sub(new, text, count) if self.may_match(text) else text


def compile_guarded(pattern: str, flags: int = 0) -> GuardedPattern:
    """Compile a pattern, as `re.compile` does; raises `re.error` for a wrong one."""
    return GuardedPattern(re.compile(pattern, flags))
