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

_SMALL: Final = frozenset(("mini", "luna", "small", "lite", "haiku"))  # variants by their size
_SMALLEST: Final = frozenset(("nano", "tiny", "micro"))
_LARGE: Final = frozenset(("sol", "astra", "terra"))
_FAMILIES: Final = {"claude": ("opus", "sonnet", "haiku", "fable"), "gemini": ("pro", "flash")}
_UNSIZED: Final = {  # words of a name that say nothing about a model's size
    *("latest", "preview", "exp", "experimental", "beta", "alpha", "stable", "snapshot", "new"),
    *("free", "chat", "instruct", "it", "turbo", "fast", "online", "vision", "think", "thinking"),
    *("reasoning", "none", "minimal", "low", "medium", "high", "xhigh", "max"),
}
_LARGER: Final = {  # sizes by which a small one is rated if its own is unknown; never too low
    "smallest": ("small", "large"),
    "small": ("large",),
    "flash-lite": ("flash", "pro"),
    "haiku": ("sonnet", "opus"),
}
_LINE: Final = re.compile(  # a maker's line, behind the names of a gateway, cloud or region
    r"(?:^|[.:@~]|(?:openai|azure|anthropic|google|vertex|databricks|bedrock)-)"
    r"(?:chat)?(gpt|claude|gemini)[-_ .]([^:@]*)(.*)"
)
_WORDS: Final = re.compile(r"[-_ :@]+")
_VERSION: Final = re.compile(r"\d{1,2}(?:\.\d{1,2})?")
_MINOR: Final = re.compile(r"\d{1,2}")
_NUMBER: Final = re.compile(r"v?\d+")  # of a date or a revision
_DATE: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)$")
_ADDED: Final = re.compile(  # what gateways add to a name
    r"(?:[:@](?:free|beta|latest|default|nitro|floor|online|extended|thinking)|-latest)$"
)


@dataclass(frozen=True, slots=True, order=True)
class _ParsedName:
    """A parsed name; names of the same line and size differ by their version alone."""

    line: str
    size: str
    version: tuple[int, int]


def predecessor(name: str, known: Collection[str]) -> str | None:
    """Return the known model by which an unknown one is rated, or None.

    It has the same line (such as gpt) and size, and the highest version that is not above; for some
    small sizes a larger size will do. `known` are names in lower case. The part before the last
    slash, the owner, is ignored.
    """
    parsed_name = _parse(name.lower()[-MAX_NAME:].rpartition("/")[2])
    if parsed_name is None:
        return None
    lines = [(each, parsed) for each in known if (parsed := _parse_known(each)) is not None]
    for size in (parsed_name.size, *_LARGER.get(parsed_name.size, ())):
        alike = [
            (parsed.version, each)
            for each, parsed in lines
            if (parsed.line, parsed.size) == (parsed_name.line, size)
            and parsed.version <= parsed_name.version
        ]
        if alike:
            return max(alike)[1]
    return None


class Predecessors:
    """The names by which models are rated, among those of a checkpoint (`known`, in lower case)."""

    def __init__(self, known: Collection[str]) -> None:
        """Remember the known names; answers for 1,024 names are cached."""

        def rated_as(name: str) -> str:
            if known_name(name, known) is not None:
                return name
            plain = plain_name(name)
            return plain if plain in known else predecessor(name, known) or name

        self._rated_as = lru_cache(maxsize=1_024)(rated_as)

    def rated_as(self, name: str | None) -> str | None:
        """Return the name by which a model is rated: its own if known, or its predecessor's.

        An unknown name without a predecessor is returned as it is, cut to `MAX_NAME` characters;
        None for None.
        """
        return None if name is None else self._rated_as(name[:MAX_NAME])

    def of_items(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items with the names by which their models are rated.

        This includes the models of other replies. Changed items are copies; most are the same
        objects.
        """
        return [self._rename_item(item) for item in items]

    def _rename_item(self, item: Item) -> Item:
        """Return an item with the names by which models are rated; itself if unchanged."""
        name = self.rated_as(item.source_model)
        others = tuple(self._rename_reply(other) for other in item.others)
        if name == item.source_model and others == tuple(item.others):
            return item
        return replace(item, source_model=name, others=others)

    def _rename_reply(self, other: OtherReply) -> OtherReply:
        """Return a reply with the name by which its model is rated; itself if unchanged."""
        name = self.rated_as(other.source_model)
        return other if name == other.source_model else replace(other, source_model=name)


def plain_name(name: str) -> str:
    """Return a model's name in lower case without its owner, its date and what gateways add.

    plain_name("openai/GPT-6-Sol-2026-09-01:free")  # "gpt-6-sol"
    """
    name = name[:MAX_NAME].lower().rpartition("/")[2]
    return _DATE.sub("", _ADDED.sub("", _DATE.sub("", name)))


def _parse_known(name: str) -> _ParsedName | None:
    """Parse a known model's name, without its date, or return None.

    None for a name of no known line or size, and for one with further words such as `preview`.
    """
    words = _WORDS.split(_DATE.sub("", name))
    is_plain = not any(
        word in _UNSIZED or (len(word) > 3 and _NUMBER.fullmatch(word)) for word in words
    )
    return _parse(_DATE.sub("", name)) if is_plain else None


def _parse(name: str) -> _ParsedName | None:
    """Parse a model's name to line, size and version; None if one of them is missing."""
    found = _LINE.search(name[:MAX_NAME])
    if found is None:
        return None
    line, words, added = found[1], _WORDS.split(found[2]), _WORDS.split(found[3])
    at = next((i for i, word in enumerate(words) if _VERSION.fullmatch(word)), None)
    if at is None:
        return None
    major, dot, minor = words[at].partition(".")
    if not dot and at + 1 < len(words) and _MINOR.fullmatch(words[at + 1]):
        minor = words.pop(at + 1)
    del words[at]
    words += (word for word in added if word in _SMALL or word in _SMALLEST)
    size = _size_of(line, words)
    return None if size is None else _ParsedName(line, size, (int(major), int(minor or 0)))


def _size_of(line: str, words: Sequence[str]) -> str | None:
    """Return the size that the words of a name, without line and version, stand for, or None.

    It is `large`, `small`, `smallest`, `pro`, or the family's word, such as `opus`. A small variant
    of a family counts as the smallest family of that maker.
    """
    telling = {word for word in words if word and not _NUMBER.fullmatch(word)} - _UNSIZED
    family = next((each for each in _FAMILIES.get(line, ()) if each in telling), None)
    if line == "gemini" and "flash" in telling and "lite" in telling:
        return "flash-lite"
    is_small = bool(telling & (_SMALL | _SMALLEST))
    if line == "claude":
        return "haiku" if is_small and family else family
    if line == "gemini":
        return "flash-lite" if is_small else family
    if telling & _SMALLEST:
        return "smallest"
    if is_small:
        return "small"
    if "pro" in telling:
        return "pro"
    return "large" if not telling or telling & _LARGE else None
