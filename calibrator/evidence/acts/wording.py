"""Load the regular expressions of `wording.toml`, which are too long for source code."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files


@cache
def _tables() -> dict[str, dict[str, str]]:
    text = files("calibrator.evidence.acts").joinpath("wording.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def pattern(module: str, name: str) -> re.Pattern[str]:
    """Return a compiled pattern of one module; raise KeyError if there is none."""
    tables = _tables()
    text = "".join(tables[module][name].split("\n"))
    for part, value in tables["parts"].items():
        text = text.replace(f"<{part}>", "".join(value.split("\n")))
    return re.compile(text)


@cache
def word_lists(name: str) -> dict[str, tuple[str, ...]]:
    """Return the lists of words in one table."""
    return {key: tuple(words.split()) for key, words in _tables()[name].items()}


def word_list(module: str, name: str) -> tuple[str, ...]:
    """Return the words of one module's list."""
    return tuple(_tables()[module][name].split())
