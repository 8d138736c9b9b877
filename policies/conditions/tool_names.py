"""The names under which a client may look up the tool that a model calls.

Models write names that were not offered, and clients normalise them before they run the tool:

    offered = OfferedTools(["send_money", "look"])
    offered.readings("functions.send_money:0")   # ("send_money", ..)
    offered.readings("SEND-MONEY")               # ("send_money", ..)
    offered.readings("send_money")               # (): every client finds this tool
    offered.readings("send_money_now")           # None: it is none of them

A rule that restrains a tool looks at all of these names, and a rule that delivers has to match each
of them. The time is linear in the length of the name, however many tools there are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

LONGEST: Final = 500
"""The characters of a name that are read for its spellings; no tool has a longer name."""

_MOST_BORDERS: Final = 16
_WRAPPERS: Final = re.compile(
    r"(?:(?:functions?|tools?|default[\W_]{0,3}api|api|namespace|mcp|multi_tool_use)"
    r"(?:->|[^\w-]+|__))+",
    re.IGNORECASE,
)  # models copy these prefixes from their templates
_TOKENS: Final = re.compile(
    r"(?:\s*(?:<[^<>=]*>|<\w+(?:\s+name)?\s*=|(?:to|tool_calls?|call|function|name|action)\s*[=:]))+",
    re.IGNORECASE,
)  # and these tokens
_ENDS: Final = re.compile(r"[:#]\d+|[({\[<>?;&]|\\(?!_)")  # a counter, arguments or a token
_MARKS: Final = re.compile(r"[\W_]+")
_BORDERS: Final = re.compile(r"\\_|__+|[^\w-]+")
_QUOTES: Final = " \t\r\n\"'`"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]*")
_UNSEEN: Final = frozenset({"Cf", "Cc", "Mn", "Me"})  # format characters, variation selectors


class OfferedTools:
    """The names of the tools that a request offers; empty where they are unknown."""

    __slots__ = ("_by_fold", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._by_fold: dict[str, list[str]] | None = None  # built on first use

    def readings(self, name: str, *extra_names: str) -> tuple[str, ...] | None:
        """Return the other names as which a client may read a call's name: () for an offered tool.

        Without `extra_names`, return None where no offered tool can be read from the name.
        `extra_names` are names that a client may take instead; they and their readings are added to
        a tuple (never None). Where `name` is an offered tool, those that are no tool are ignored.
        """
        own = self._readings(name)
        if not extra_names:
            return own
        pairs = [(each, self._readings(each)) for each in extra_names]
        if own == ():
            pairs = [(each, found) for each, found in pairs if found is not None]
        others = [(each, *(spellings(each) if found is None else found)) for each, found in pairs]
        own = spellings(name) if own is None else own
        return tuple(dict.fromkeys((*own, *(each for found in others for each in found))))

    def _readings(self, name: str) -> tuple[str, ...] | None:
        """Return the offered tools that `name` may mean, then its spellings, without repeats.

        Return () for the name of an offered tool, and None where no offered tool is meant.
        """
        if name in self.names:
            return ()
        tools = dict.fromkeys(self._tools_in_name(name))
        return tuple(dict.fromkeys((*tools, *spellings(name)))) if tools else None

    def _tools_in_name(self, name: str) -> Iterator[str]:
        """Yield the offered tools whose folded name is a run of whole words of `name`.

        `functions.send_money` holds `send_money`, and so does the repetition `sendmoneysendmoney`.
        A tool may come more than once. The first call builds an index of the offered names.
        """
        if self._by_fold is None:
            self._by_fold = {}
            for each in sorted(self.names):
                self._by_fold.setdefault(fold_name(each), []).append(each)
        for text in _pieces([fold_name(part) for part in _BORDERS.split(_clean_name(name))]):
            yield from self._by_fold.get(text, ())


def _pieces(parts: list[str]) -> Iterator[str]:
    """Yield the texts that a client may take out of a name, given as its folded parts.

    These are the whole, its repeated unit (`ab` of `abab`) and all runs of successive parts; with
    more than 16 parts only the first and the last ones.
    """
    parts = [part for part in parts if part]
    whole = "".join(parts)
    yield whole
    if period := (whole + whole).find(whole, 1) if whole else 0:
        times = len(whole) // period
        yield from (whole[: period * n] for n in range(1, times) if times % n == 0 and n <= LONGEST)
    if len(parts) <= _MOST_BORDERS:
        for first in range(len(parts)):
            for last in range(first, len(parts)):
                yield "".join(parts[first : last + 1])
    else:  # only the first and the last parts, as the number of pieces grows with its square
        ends = range(1, _MOST_BORDERS)
        yield from ("".join(parts[:end]) for end in ends)
        yield from ("".join(parts[-end:]) for end in ends)


def spellings(name: str) -> tuple[str, ...]:
    """Return the forms of a name without the text that models put around it, none equal to `name`.

    Of `functions.look:0` these are `look:0` and `look`. Nearly all names have none (()). Only the
    first 500 characters are read. Case is kept, because rules that restrain ignore it.
    """
    return _spellings(name[:LONGEST])


@lru_cache(maxsize=1_024)
def _spellings(name: str) -> tuple[str, ...]:
    """Return the distinct forms of a name without quotes, prefixes, tokens or a suffix; cached.

    Prefixes are such as `functions.`, tokens such as `<tool_call>`, suffixes such as `:0` or
    `(x=1)`. Return () for a name of plain letters, digits, `_` and `-` without a prefix.
    """
    if _PLAIN.fullmatch(name) and _WRAPPERS.match(name) is None:
        return ()
    cleaned = _clean_name(name)
    bare = cleaned
    while match := _TOKENS.match(bare) or _WRAPPERS.match(bare):  # with quotes between two of them
        bare = bare[match.end() :].strip(_QUOTES)
    end = _ENDS.search(bare, 1)
    cut = bare[: end.start()] if end else bare
    names = cleaned, _unescape(bare), _unescape(cut)
    return tuple(dict.fromkeys(each for each in names if each and each != name))


def _unescape(name: str) -> str:
    """Return the name with each escaped underscore as `_`, without blanks and quotes around it."""
    return name.replace("\\_", "_").strip(_QUOTES)


def fold_name(name: str) -> str:
    """Return a name in lower case without separators and invisible characters.

    `SEND-money` becomes `sendmoney`. A generous client takes two names that are equal here for the
    same tool.
    """
    return _MARKS.sub("", _clean_name(name)).casefold()


def _clean_name(name: str) -> str:
    """Return the name in NFKC without invisible characters, blanks and quotes around it dropped."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKC", name)
        name = "".join(each for each in plain if unicodedata.category(each) not in _UNSEEN)
    return name.strip(_QUOTES)
