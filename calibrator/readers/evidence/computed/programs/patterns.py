"""Regular expressions of a reply, tried on short texts where that certainly takes little time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from calibrator.readers.evidence.computed.programs.errors import (
    NotComputableError,
    RaisedError,
)

MAX_PATTERN: Final = 200  # characters
MAX_WORK: Final = 100_000  # places that backtracking may try
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_REFERENCE: Final = re.compile(r"\\[1-9kKgGpPXR]")
_UNKNOWN: Final = re.compile(r"\(\?(?!:|P?<[A-Za-z]\w*>)|[+*?}]\+")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,\d*\}")


def is_quick(pattern: str, text: str) -> bool:
    """Return whether a pattern can be tried on a text in few steps.

    A repeated group with a repetition or a choice inside is never quick, nor is a pattern with
    references or a look around. Otherwise the number of repetitions and the length of the text
    bound the steps.
    """
    if len(pattern) > MAX_PATTERN or _REFERENCE.search(pattern):
        return False
    plain = _CLASS.sub("c", re.sub(r"\\.", "e", _CLASS.sub("c", pattern)))
    if _UNKNOWN.search(plain):
        return False
    opened: list[int] = []
    for at, sign in enumerate(plain):
        if sign == "(":
            opened.append(at)
        elif sign == ")":
            if not opened:
                return False
            inner = plain[opened.pop() : at]
            is_repeated = plain[at + 1 : at + 2] in ("*", "+", "{")
            if is_repeated and re.search(r"[*+|{]|[^(]\?", inner[1:]):
                return False
    repeats = len(_REPEAT.findall(plain))
    return bool((len(text) + 2) ** repeats <= MAX_WORK)


def match_text(search: Callable[..., Any], pattern: Any, text: Any, flags: Any = 0) -> str | None:
    """Return the text that a pattern matches, or None.

    Raises NotComputableError for a slow pattern, and RaisedError for a wrong one.
    """
    if not isinstance(pattern, str) or not isinstance(flags, int):
        raise NotComputableError
    if not isinstance(text, str):
        raise RaisedError("TypeError")
    if not is_quick(pattern, text) or flags not in (0, re.IGNORECASE, re.ASCII):
        raise NotComputableError
    try:
        found = search(pattern, text, flags)
    except (re.error, OverflowError):
        raise RaisedError("error") from None
    return None if found is None else "match" + str(found[0])
