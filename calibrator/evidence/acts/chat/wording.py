"""Load the patterns of `words.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files


@cache
def _tables() -> dict[str, dict[str, str]]:
    text = files("calibrator.evidence.acts.chat").joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def chat_pattern(module: str, name: str) -> re.Pattern[str]:
    """Return a compiled pattern of one module; raise KeyError if there is none."""
    return re.compile("".join(_tables()[module][name].split("\n")))
