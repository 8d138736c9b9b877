"""Word lists, each written as one text."""

from __future__ import annotations


def word_list(text: str) -> list[str]:
    """Split a text at white space and return its words in order."""
    return text.split()


def word_set(text: str) -> frozenset[str]:
    """Split a text at white space and return its words as a set."""
    return frozenset(text.split())
