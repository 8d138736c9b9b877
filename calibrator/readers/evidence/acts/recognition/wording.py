"""The regular expressions of `wording.toml` and `words.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from calibrator.text.guarded import GuardedPattern, compile_guarded


@cache
def _tables() -> dict[str, dict[str, str]]:
    """Return the tables of both TOML files: name of the table to names and texts of its entries."""
    folder = files("calibrator.readers.evidence.acts.recognition")
    texts = (folder.joinpath(path).read_text("utf-8") for path in ("wording.toml", "words.toml"))
    return {name: table for text in texts for name, table in tomllib.loads(text).items()}


@cache
def pattern(module: str, name: str) -> GuardedPattern:
    """Return the compiled pattern `name` of the table `module`. Raises KeyError if there is none.

    Line breaks of the text are removed and `<number>` and `<quoted>` are replaced by the
    patterns of `[parts]`.
    """
    tables = _tables()
    text = "".join(tables[module][name].split("\n"))
    for part, value in tables["parts"].items():
        text = text.replace(f"<{part}>", "".join(value.split("\n")))
    return compile_guarded(text)


@cache
def word_lists(name: str) -> dict[str, tuple[str, ...]]:
    """Return the words of each entry in the table `name`. Raises KeyError if there is none."""
    return {key: tuple(words.split()) for key, words in _tables()[name].items()}
