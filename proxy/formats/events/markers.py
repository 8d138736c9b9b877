"""Marks that show, from bytes alone, which events must be examined before they are sent on."""

from __future__ import annotations

import re

Mark = bytes | tuple[bytes, bytes]
"""A literal, or a literal and the pattern of what follows it."""


class Marks:
    """A set of marks, each of which begins with a literal.

    Each literal is searched separately, and mostly decides alone. One pattern with alternatives
    would take ten times as long.
    """

    def __init__(self, *marks: Mark) -> None:
        self._marks: list[tuple[bytes, re.Pattern[bytes] | None]] = [
            (mark, None) if isinstance(mark, bytes) else (mark[0], re.compile(mark[1]))
            for mark in marks
        ]

    def search(self, raw: bytes) -> int | None:
        """Return the index of the first mark in `raw`, or None if there is none."""
        first = len(raw)
        for literal, follows in self._marks:
            at = raw.find(literal, 0, first)
            if at < 0:  # nearly always
                continue
            if follows is not None:
                while at >= 0 and follows.match(raw, at + len(literal)) is None:
                    at = raw.find(literal, at + len(literal), first)
            if at >= 0:
                first = at
        return first if first < len(raw) else None
