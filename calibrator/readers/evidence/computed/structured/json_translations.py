"""Translations of JSON texts, which have to keep the keys, placeholders and tags of the source."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from calibrator.readers.evidence.computed.structured.json_values import leaves

MAX_LEAVES: Final = 200
_TRANSLATES: Final = re.compile(
    r"\b(?:translat\w+|locali[sz]\w+|übersetz\w*|tradu[ciz]\w*)", re.IGNORECASE
)
_FIXED: Final = re.compile(
    r"\{\{?[\w. ]{0,40}\}?\}|\$\{\w{1,40}\}|%(?:\(\w{1,40}\))?[sdf@]|</?[a-zA-Z]\w{0,20}\s?/?>"
)


def wants_translation(ask: str) -> bool:
    """Return whether a request for JSON is to translate its texts."""
    return _TRANSLATES.search(ask) is not None


def fault_of_translation(value: Any, source: Any) -> str | None:
    """Describe a text that lost a placeholder or a key of the source, or return None."""
    if not isinstance(source, dict):
        return None
    made = dict(zip(range(MAX_LEAVES), leaves(value), strict=False)).values()
    texts = {path: leaf for path, leaf in made if isinstance(leaf, str)}
    given = [(path, leaf) for path, leaf in leaves(source) if isinstance(leaf, str)][:MAX_LEAVES]
    if not any(path in texts for path, _ in given):
        return None  # the translation has another form
    for path, leaf in given:
        if path not in texts:
            return f'the key "{".".join(path)[:60]}" is missing'
        wanted, found = Counter(_FIXED.findall(leaf)), Counter(_FIXED.findall(texts[path]))
        if lost := [*(wanted - found)]:
            return f'"{path[-1]}" lacks {lost[0]}'
        if more := [*(found - wanted)]:
            return f'"{path[-1]}" has {more[0]}, which the source lacks'
    return None
