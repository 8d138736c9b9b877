"""YAML without surprises: the program gets exactly what a reader sees in the file.

Loading refuses, with the line, everything that makes a file mean something else than it seems to:
duplicate keys, anchors, aliases and merge keys, tags, several documents, keys that are not text.
It is safe on hostile input: size and nesting are bounded, and nothing in a file is executed.

    document = load_document("proxy.yaml", env=os.environ)
    document.value                                  # plain dicts, lists and scalars
    document.line(("upstreams", "openai"))          # 2
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policies.errors import InvalidDocumentError, Problem
from policies.reading.yaml_builder import Builder, Location, Value

MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document, with the line of each of its values."""

    value: Value
    source: str
    _lines: Mapping[Location, int] = field(repr=False)
    substituted: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The substituted environment variables with their values, which may be secrets."""

    def line(self, location: Location) -> int:
        """Return the line, from 1, of a key or list item, such as `("rules", 2)`.

        For one that does not exist, return the line of its nearest ancestor that does.
        """
        while location and location not in self._lines:
            location = location[:-1]
        return self._lines.get(location, 1)

    def has(self, location: Location) -> bool:
        """Return whether the document has the key or list item at `location`."""
        return location in self._lines


def load_document(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Document:
    """Load and parse a UTF-8 file; `env` is for `${NAME}`, see `parse_document`.

    Raises InvalidDocumentError, also for a file that is missing, larger than 1 MB or cannot be
    read.
    """
    source = os.fspath(path)
    data = _read(source)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidDocumentError([Problem(source, line, "this is not UTF-8 text")]) from error
    return parse_document(text, source, env)


def parse_document(text: str, source: str, env: Mapping[str, str] | None = None) -> Document:
    """Parse a document; `source` is the name under which its problems are reported.

    With `env`, `${NAME}` and `${NAME:-default}` inside values are substituted. An unquoted value
    that is only a substitution is then read as if the file held its result, so the value
    `${PORT:-8000}` is a number; a quoted one stays text.

    Raises InvalidDocumentError with all problems found, and for more than a million characters.
    """
    if len(text) > MAX_BYTES:
        raise _too_large(source)
    builder = Builder(text, source, env)
    value = builder.build()
    if builder.problems:
        raise InvalidDocumentError(builder.problems)
    return Document(value, source, builder.lines, builder.substituted)


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the name in `valid` that is most similar to `name`, or None where none is similar."""
    # difflib is quadratic, and no valid name is that long.
    matches = difflib.get_close_matches(name[:100], list(valid), n=1)
    return matches[0] if matches else None


def _read(source: str) -> bytes:
    """Return the bytes of a file.

    Raises InvalidDocumentError if it cannot be read or exceeds 1 MB.
    """
    try:
        with Path(source).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    # A path with a NUL raises a bare ValueError.
    except (OSError, ValueError) as error:
        raise InvalidDocumentError([Problem(source, 0, _reason(error))]) from error
    if len(data) > MAX_BYTES:
        raise _too_large(source)
    return data


def _reason(error: OSError | ValueError) -> str:
    """Return in words why a file could not be opened or read."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "this is a folder, not a file"
    return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def _too_large(source: str) -> InvalidDocumentError:
    """Return the error for a document that is too large."""
    return InvalidDocumentError([Problem(source, 0, "the document is larger than 1 MB")])
