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
    """Return the words of a name in lower case: `db.deleteRow2` has `("db", "delete", "row", "2")`.

    The name may be in snake, kebab, camel, Pascal or dotted case; only its first 500 characters
    count.
    """
    return _words_in(name[:MAX_NAME])


@lru_cache(maxsize=4_096)
def _words_in(name: str) -> tuple[str, ...]:
    """Return the runs of ASCII letters (split as in camelCase) and of digits, in lower case."""
    return tuple(word.lower() for word in _HUMPS.findall(name))


@dataclass(frozen=True, slots=True)
class NameWords:
    """Names that contain one of `words`, and none of the words in `without`."""

    words: frozenset[str]
    without: frozenset[str] = frozenset()

    def match(self, name: str) -> bool:
        """Return whether the name has one of `words` and none of the words in `without`."""
        contained = words_in(name)
        return not self.words.isdisjoint(contained) and self.without.isdisjoint(contained)

    def covers(self, other: NameWords | None) -> bool:
        """Return whether every name that `other` matches surely matches here; False for None."""
        if other is None:
            return False
        return self.words >= other.words and self.without <= other.without


@dataclass(frozen=True, slots=True)
class Phrases:
    """Texts that contain a phrase, such as `git push --force`; blank phrases never match."""

    phrases: tuple[str, ...]
    _by_first: dict[str, list[tuple[str, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the phrases by their first word, in lower case."""
        by_first: dict[str, list[tuple[str, ...]]] = {}
        for first, *rest in (phrase.lower().split() for phrase in self.phrases if phrase.split()):
            by_first.setdefault(first, []).append(tuple(rest))
        object.__setattr__(self, "_by_first", by_first)

    def match(self, text: str) -> bool:
        """Return whether one command in the text has all words of a phrase in order, in any case.

        Other words may be between them. Commands end at `;`, `|`, `&`, line ends, `$(` and
        backquotes.
        """
        return any(self._is_in(command) for command in _commands(text))

    def _is_in(self, words: list[str]) -> bool:
        """Return whether a command's words, in lower case, contain those of a phrase in order.

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
    """Yield the words of each command in a text that has any, in lower case; options keep dashes.

    Of `/usr/bin/rm`, each name of the path is a word of its own.
    """
    for command in _COMMANDS.split(text):
        if words := _WORD.findall(command.lower()):
            yield words
