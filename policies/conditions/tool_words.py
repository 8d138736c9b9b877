"""The words in a tool's name and in its arguments, in any spelling.

    words_in("mcp__db__deleteRow")              # ("mcp", "db", "delete", "row")
    Phrases(("git push --force",)).match("git push origin main --force")    # True

A phrase is one word or several, which then follow in this order in one command: not necessarily
side by side, but with no `;`, `|`, `&` or line end between them. Case is ignored. Options (`-f`,
`--force`) are words with their dashes, and a text is read once for all phrases, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COMMANDS: Final = re.compile(r"[;|&\r\n]+|\$\(|`")
_WORD: Final = re.compile(r"-{0,2}[^\W_][\w-]*")
MAX_NAME: Final = 500  # characters; a longer name of a tool is cut


def words_in(name: str) -> tuple[str, ...]:
    """Return the words of a name in snake, kebab, camel, Pascal or dotted case, in lower case.

    Only the first `MAX_NAME` characters are read.
    """
    return _words_in(name[:MAX_NAME])


@lru_cache(maxsize=4_096)
def _words_in(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _HUMPS.findall(name))


@dataclass(frozen=True, slots=True)
class NameWords:
    """Names that contain one of the words `given`, and none of those in `without`."""

    given: frozenset[str]
    without: frozenset[str] = frozenset()

    def match(self, name: str) -> bool:
        words = words_in(name)
        return not self.given.isdisjoint(words) and self.without.isdisjoint(words)

    def covers(self, other: NameWords | None) -> bool:
        """Return whether every name that `other` matches is matched here."""
        if other is None:
            return False
        return self.given >= other.given and self.without <= other.without


@dataclass(frozen=True, slots=True)
class Phrases:
    """Texts that contain one of these phrases."""

    phrases: tuple[str, ...]
    _by_first: dict[str, list[tuple[str, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_first: dict[str, list[tuple[str, ...]]] = {}
        for first, *rest in (phrase.lower().split() for phrase in self.phrases if phrase.split()):
            by_first.setdefault(first, []).append(tuple(rest))
        object.__setattr__(self, "_by_first", by_first)

    def match(self, text: str) -> bool:
        return any(self._is_in(command) for command in _commands(text))

    def _is_in(self, words: list[str]) -> bool:
        """Return whether a command's words contain a phrase.

        Each phrase advances by its next word as soon as it comes; an earlier match is never worse.
        """
        waiting: dict[str, list[tuple[str, ...]]] = {}
        begun: set[str] = set()
        for word in words:
            rests = waiting.pop(word, [])
            if word not in begun:
                begun.add(word)
                rests += self._by_first.get(word, ())
            for rest in rests:
                if not rest:
                    return True
                waiting.setdefault(rest[0], []).append(rest[1:])
        return False


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text.

    A folder in front of a program is a word of its own.
    """
    for command in _COMMANDS.split(text):
        if words := _WORD.findall(command.lower()):
            yield words
