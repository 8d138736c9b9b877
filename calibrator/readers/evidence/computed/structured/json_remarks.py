"""Limits and formats that a prompt states for one key of the JSON: `summary (max 12 words)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

from calibrator.readers.evidence.computed.structured.json_values import leaves

MAX_LEAVES: Final = 100
MAX_REMARK: Final = 100  # characters after a key that are its remark
_MOST: Final = re.compile(
    r"\b(?:max(?:imum|imal|\.)?|at most|no more than|not more than|up to|höchstens|au plus"
    r"|como máximo|máximo|<=|≤)(?: of)?\s*(?P<n>\d{1,4})[ -]"
    r"(?P<u>words?|wörtern?|mots|palabras|char(?:acter)?s?|zeichen|caractères|caracteres|letters"
    r"|items?|entries|elements|tags|keywords|einträge)\b"
    r"|(?P<n2>\d{1,4})[ -](?P<u2>words?|wörter|mots|palabras|char(?:acter)?s?|zeichen|items?|tags"
    r"|keywords) (?:max(?:imum)?|at most|or (?:less|fewer)|höchstens)\b"
    r"|\bexactly (?P<n3>\d{1,3}) (?P<u3>words|items|tags|keywords|entries|elements|bullet points)",
    re.IGNORECASE,
)
_EMPTY: Final = re.compile(
    r"\[\] (?:if|when|for|wenn|falls|si)\b|\bempty (?:list|array) (?:if|when)"
)
_ORDERED: Final = re.compile(
    r"\b(?:ascending|alphabetical\w*|aufsteigend|alphabetisch\w*|croissant|ascendente)\b"
    r"|\b(?P<down>descending|absteigend|décroissant|descendente)\b",
    re.IGNORECASE,
)
_FORMATS: Final = (
    (re.compile(r"\bE\.164\b"), re.compile(r"\+[1-9][\d ().-]{6,20}"), "E.164"),
    (
        re.compile(r"\bISO[ -]?3166(?:-1)?(?: alpha-?2)?\b|\b(?:two|2)-letter country", re.I),
        re.compile(r"[A-Z]{2}|[A-Z]{3}"),
        "a country code",
    ),
    (
        re.compile(r"\bISO[ -]?4217\b|\b(?:three|3)-letter currency", re.I),
        re.compile(r"[A-Z]{3}"),
        "a currency code",
    ),
    (
        re.compile(r"\bISO[ -]?639(?:-1)?\b|\b(?:two|2)-letter language", re.I),
        re.compile(r"[a-z]{2,3}(?:-[A-Z]{2})?"),
        "a language code",
    ),
    (re.compile(r"\bsnake_case\b", re.I), re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*"), "snake_case"),
    (re.compile(r"\bkebab-case\b", re.I), re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*"), "kebab-case"),
    (re.compile(r"\blower-?\s?case\b", re.I), re.compile(r"[^A-Z]*"), "lower case"),
    (re.compile(r"\bupper-?\s?case\b", re.I), re.compile(r"[^a-z]*"), "upper case"),
)


def fault_of_remarks(value: Any, prompt: str) -> str | None:
    """Describe a value that breaks the limit or format stated for its key, or return None.

    An example of a prompt is `title (max 5 words), tags: alphabetical`.
    """
    has_remark = _MOST.search(prompt) or _EMPTY.search(prompt) or _ORDERED.search(prompt)
    if not (has_remark or any(asks.search(prompt) for asks, _, _ in _FORMATS)):
        return None
    remark_on = lru_cache(partial(_remark_on, prompt))  # a list has the same keys many times
    for key, items in _pairs(value):
        remark = remark_on(key)
        if items is None and _EMPTY.search(remark):
            return f'"{key}" is null instead of []'
        if not isinstance(items, list):
            continue
        if fault := _unsorted(key, items, remark):
            return fault
        most = _limit(remark)
        if most and most[1].startswith(("item", "entr", "elem", "tag", "keyw", "bull", "eint")):
            is_exact = most[2]
            if len(items) > most[0] or (is_exact and len(items) != most[0]):
                return f'"{key}" has {len(items)} entries instead of {most[0]}'
    for _, (path, leaf) in zip(range(MAX_LEAVES), leaves(value), strict=False):
        if not path or not isinstance(leaf, str) or not leaf:
            continue
        if fault := _text_fault(path[-1], leaf, remark_on(path[-1])):
            return fault
    return None


def _unsorted(key: str, items: list[Any], remark: str) -> str | None:
    """Describe two neighbours of a list that are not in the order of the remark, or return None.

    `remark` is what the prompt says of the key, such as `ascending`. Mixed lists are not judged.
    """
    found = _ORDERED.search(remark)
    is_alike = all(isinstance(each, str) for each in items) or all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in items
    )
    if found is None or not is_alike:
        return None
    folded = [each.casefold() if isinstance(each, str) else each for each in items[:MAX_LEAVES]]
    for one, other in pairwise(folded):
        if one < other if found["down"] else one > other:
            return f'"{key}" has {one} before {other}'
    return None


def _pairs(value: Any, depth: int = 0) -> list[tuple[str, Any]]:
    """Return (key, value) of objects in a JSON value, up to three levels deep."""
    if depth > 3:
        return []
    if isinstance(value, Mapping):
        inner = [each for part in value.values() for each in _pairs(part, depth + 1)]
        return [*((str(key), part) for key, part in value.items()), *inner]
    parts = value[:MAX_LEAVES] if isinstance(value, list) else []
    return [each for part in parts for each in _pairs(part, depth + 1)]


def _remark_on(prompt: str, key: str) -> str:
    """Return what a prompt says of a key: the rest of its line up to the next key; else empty."""
    found = re.search(
        rf"(?<!\w)[\"'`“]?{re.escape(key)}[\"'`”]?\??\s*(?:[:=(–—-]|is\b|must\b)(?P<r>[^\n{{}}]*)",
        prompt,
    )
    if found is None:
        return ""
    rest = found["r"][:MAX_REMARK]
    return re.split(r",\s*[\"'`“]?[A-Za-z_]\w*[\"'`”]?\s*[:(]|\.\s|;|\)\s*[,;]", rest)[0]


def _limit(remark: str) -> tuple[int, str, bool] | None:
    """Return (number, unit in lower case, is exact) of `max 5 words`; None without a limit."""
    found = _MOST.search(remark)
    if found is None:
        return None
    number = found["n"] or found["n2"] or found["n3"]
    unit = (found["u"] or found["u2"] or found["u3"]).casefold()
    return int(number), unit, found["n3"] is not None


def _text_fault(key: str, leaf: str, remark: str) -> str | None:
    """Describe how a string breaks the limit or the format in its key's remark, or return None."""
    most = _limit(remark)
    if most is not None:
        limit, unit, is_exact = most
        if unit.startswith(("word", "wört", "mots", "pala")):
            count = len(leaf.split())
            if count > limit or (is_exact and count != limit):
                return f'"{key}" has {count} words instead of {limit}'
        elif unit.startswith(("char", "zei", "cara", "lett")) and len(leaf) > limit:
            return f'"{key}" has {len(leaf)} characters instead of {limit}'
    for asks, form, name in _FORMATS:
        if asks.search(remark) and not form.fullmatch(leaf.strip()):
            return f'"{key}" is not written in {name}'
    return None
