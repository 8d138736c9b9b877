"""Find the known model by which an unknown one is rated: its predecessor of the same line and size.

    predecessor("gpt-6-sol", known)     # "gpt-5.4"
    predecessor("gpt-6-luna", known)    # "gpt-5.4-mini"
    predecessor("my-own-model", known)  # None

Otherwise a model that training never saw would be rated by what its name states. That can be less
than its predecessor's rate, and the same for a small variant as for the large one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from calibrator.scorer import Item, OtherReply, known_name

MAX_NAME: Final = 200  # characters of a model's name

_SMALL: Final = ("mini", "luna", "small", "lite", "haiku")  # variants, grouped by size
_SMALLEST: Final = ("nano", "tiny", "flash-lite", "micro")
_LARGE: Final = ("", "sol", "astra", "terra", "latest")
_LINES: Final = (  # names of a maker's models: line, version and variant
    re.compile(r"(?P<line>gpt)-(?P<version>\d{1,2}(?:\.\d{1,2})?)(?:-(?P<variant>[a-z]+))?"),
    re.compile(
        r"(?P<line>claude)-(?P<variant>opus|sonnet|haiku|fable)"
        r"-(?P<version>\d{1,2}(?:[.-]\d{1,2})?)"
    ),
    re.compile(
        r"(?P<line>gemini)-(?P<version>\d{1,2}(?:\.\d{1,2})?)-(?P<variant>pro|flash-lite|flash)"
    ),
)
_DATE: Final = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d)$")


@dataclass(frozen=True, slots=True, order=True)
class _Read:
    """A parsed name; names of the same line and size differ by their version alone."""

    line: str
    size: str
    version: tuple[int, int]


def predecessor(name: str, known: Collection[str]) -> str | None:
    """Return the known name under which an unknown model is rated; None if it has no predecessor.

    `known` are names in lower case. The part before the last slash, the owner, is ignored.
    """
    asked = _read(name.lower().rpartition("/")[2])
    if asked is None:
        return None
    lines = [(each, read) for each in known if (read := _read(each)) is not None]
    alike = [
        (read.version, each)
        for each, read in lines
        if (read.line, read.size) == (asked.line, asked.size) and read.version <= asked.version
    ]
    return max(alike)[1] if alike else None


class Predecessors:
    """The names by which models are rated, among those of a checkpoint (`known`, in lower case)."""

    def __init__(self, known: Collection[str]) -> None:
        def rated_as(name: str) -> str:
            is_known = known_name(name, known) is not None
            return name if is_known else predecessor(name, known) or name

        self._rated_as = lru_cache(maxsize=1_024)(rated_as)

    def rated_as(self, name: str | None) -> str | None:
        """Return a known model's own name, an unknown one's predecessor, or else the name itself.

        Return None for None.
        """
        return None if name is None else self._rated_as(name[:MAX_NAME])

    def of_items(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return items under the names by which their models are rated; most are unchanged."""
        return [self._of_item(item) for item in items]

    def _of_item(self, item: Item) -> Item:
        name = self.rated_as(item.source_model)
        others = tuple(self._of_other(other) for other in item.others)
        if name == item.source_model and others == tuple(item.others):
            return item
        return replace(item, source_model=name, others=others)

    def _of_other(self, other: OtherReply) -> OtherReply:
        name = self.rated_as(other.source_model)
        return other if name == other.source_model else replace(other, source_model=name)


def _read(name: str) -> _Read | None:
    """Parse a name; None if it belongs to no known line or size."""
    name = _DATE.sub("", name)
    for line in _LINES:
        if (found := line.fullmatch(name)) is not None:
            major, _, minor = found["version"].replace("-", ".").partition(".")
            size = _size_of(found["variant"] or "")
            return (
                None if size is None else _Read(found["line"], size, (int(major), int(minor or 0)))
            )
    return None


def _size_of(variant: str) -> str | None:
    """Return the size of a variant, or its own word where it names a line, as `opus` does.

    Return None for an unknown variant.
    """
    if variant in _LARGE:
        return "large"
    if variant in _SMALLEST:
        return "smallest"
    if variant in _SMALL:
        return "small"
    return variant if variant in ("opus", "sonnet", "fable", "pro", "flash") else None
