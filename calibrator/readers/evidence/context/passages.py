"""A search for the parts of a long context that are closest to a piece of a reply.

A context is cut into units: sentences, lines, and rows of tables. A unit is close to a query if
they share words; numbers count most, and rare words more than frequent ones. A row of a table
brings its header with it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from calibrator.readers.evidence.number_words import TO_TWELVE

MAX_CONTEXT: Final = 60_000  # characters that are read
MAX_UNIT: Final = 400  # characters; a longer sentence is cut at spaces
WORD: Final = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+")
_CUT: Final = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+|(?<=[\u3002\uff01\uff1f\uff1b])")
_ROW: Final = re.compile(r"^\s*\||\t|^[^|]*\|[^|]*\|")
_RULE: Final = re.compile(r"^[\s|:+-]+$")  # the line below a header
_FREQUENT = """
    a an the and or of in on at to for from by with as is are was were be been it its this that
    these those i you we they he she me my your our their his her do does did has have had will
    would can could not no yes if so but about into there here what which who when where how
    please all any
"""
FREQUENT: Final = frozenset(_FREQUENT.split())
NEIGHBOUR: Final = 0.25  # share of a unit's closeness that its neighbours get
NUMBER: Final = 2.0  # weight of a number beside a word


def words_of(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case, in order."""
    return WORD.findall(text.lower())


def stem(word: str) -> str:
    """Return a word without a common English ending: `opened` becomes `open`.

    `word` is in lower case. Unchanged if fewer than three letters would remain.
    """
    for ending in ("ing", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_THOUSANDS: Final = re.compile(r"\d{1,3}(?:[,.]\d{3})+")


def number_of(word: str) -> str:
    """Return one spelling of a number: `1000` for `1,000`, `2.5` for `2,50`, `6` for `six`.

    "" for words that are no number up to twelve. `word` is not empty and in lower case.
    """
    if not word[0].isdigit():
        return str(TO_TWELVE.get(word, ""))
    if _THOUSANDS.fullmatch(word):
        return word.replace(",", "").replace(".", "")
    if "." in word or "," in word:
        return word.replace(",", ".").rstrip("0").rstrip(".")
    return word


@dataclass(frozen=True, slots=True)
class ContextUnit:
    """A sentence, a line or a row of a context.

    `text` is its text, `stems` the stems of its content words, and `words` counts all its
    words. `header` is the index of the unit with the names of the columns, or -1. `numbers` are
    its numbers in one spelling, `vocabulary` its words unchanged.
    """

    text: str
    stems: frozenset[str]
    words: int
    header: int = -1
    numbers: frozenset[str] = frozenset()
    vocabulary: frozenset[str] = frozenset()


class Passages:
    """A context in units (sentences, lines, rows), ready to be searched.

    `pairs` are all pairs of consecutive words, `rarity` maps the stem of each content word to a
    weight that falls with the units that have it. `is_complete` is False if there were more
    than 60,000 characters, of which the rest was not read.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        """Cut the documents into units, at most 60,000 characters together."""
        self.units: list[ContextUnit] = []
        self.pairs: set[tuple[str, str]] = set()
        self.is_complete = True
        left = MAX_CONTEXT
        for document in documents:
            if len(document) > left:
                document, self.is_complete = document[:left], False
            left -= len(document)
            self._add(document)
        found = Counter(each for unit in self.units for each in unit.stems)
        count = len(self.units) + 1
        self.rarity = {each: math.log(1 + count / seen) for each, seen in found.items()}

    def _add(self, document: str) -> None:
        """Add a document's sentences, lines and rows; rows are linked to the first, their header.

        Sentences of more than 400 characters are cut. A line that is no row ends a table.
        """
        header = -1
        for piece in _CUT.split(document):
            if not piece or piece.isspace() or _RULE.match(piece):
                continue
            is_row = bool(_ROW.search(piece))
            if is_row and header < 0:
                header = len(self.units)
                self._append(piece, -1)
            elif is_row:
                self._append(piece, header)
            else:
                header = -1
                for start in range(0, len(piece), MAX_UNIT):
                    self._append(piece[start : start + MAX_UNIT], -1)

    def _append(self, text: str, header: int) -> None:
        """Add one unit and its pairs of words; `header` is the index of its header, or -1."""
        words = words_of(text)
        stems = frozenset(stem(word) for word in words if word not in FREQUENT)
        numbers = frozenset(number for word in words if (number := number_of(word)))
        self.pairs.update(pairwise(words))
        self.units.append(
            ContextUnit(text.strip(), stems, len(words), header, numbers, frozenset(words))
        )

    def closeness(self, query: str) -> list[float]:
        """Return the closeness of each unit to a query text, in the order of `units`.

        It is the sum of the rarities of the content words that both have, numbers counting
        double. A quarter of the better neighbour's closeness is added, less for long units.
        """
        rarity = self.rarity
        wanted: dict[str, float] = {}
        for word in words_of(query):
            if word not in FREQUENT and (known := rarity.get(stem(word))) is not None:
                wanted[stem(word)] = known * (NUMBER if word[0].isdigit() else 1.0)
        common = [unit.stems & wanted.keys() for unit in self.units]
        own = [math.fsum(map(wanted.__getitem__, each)) for each in common]
        if len(own) < 2:
            return own
        near = [0.0, *own, 0.0]
        return [
            value + NEIGHBOUR * max(near[at], near[at + 2]) / (1 + 0.02 * self.units[at].words)
            for at, value in enumerate(own)
        ]

    def closest_units(self, queries: Sequence[tuple[str, float]], words: int) -> list[str]:
        """Return the texts of the units closest to the queries, in the context's order.

        `queries` are (text, weight). Units are chosen by the sum of their weighted
        closeness, together with their header, up to `words` words; the best one is cut if
        it alone is too long. All units are returned if they are short enough. Without a
        shared word the beginning of the context is returned.
        """
        if sum(unit.words for unit in self.units) <= words:
            return [unit.text for unit in self.units]
        total = [0.0] * len(self.units)
        for query, weight in queries:
            for at, value in enumerate(self.closeness(query)):
                total[at] += weight * value
        order = sorted(range(len(total)), key=lambda at: (-total[at], at))
        chosen: set[int] = set()
        left = words
        for at in order:
            wanted = {at, self.units[at].header} - {-1} - chosen
            cost = sum(self.units[each].words for each in wanted)
            if cost <= left:
                chosen |= wanted
                left -= cost
            elif not chosen:
                return [" ".join(self.units[at].text.split()[:words])]
            if left < 8:
                break
        return [self.units[at].text for at in sorted(chosen)]
