"""Word lists, each written as one text."""

from __future__ import annotations


def word_list(text: str) -> list[str]:
    """Return the words of a text in order."""
    return text.split()


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())
