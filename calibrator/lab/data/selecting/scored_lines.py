"""Rows with a confidence, read line by line, since files may be larger than memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrator.errors import RowError
from calibrator.rows.rows import read_lines

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A row, unchanged, with its file and line; `correct` is None where it has no label."""

    file: int
    line: int
    raw: Json

    @property
    def confidence(self) -> float:
        return float(self.raw["confidence"])

    @property
    def correct(self) -> bool | None:
        value = self.raw.get("correct")
        return None if value is None else bool(value)


def scored_lines(paths: Sequence[Path]) -> Iterator[ScoredLine]:
    """Yield each row of the files, in order; empty lines are skipped.

    Raises RowError for a line that cannot be read, is no JSON, or has no valid confidence or
    label.
    """
    for number, path in enumerate(paths):
        for line, text in read_lines(path):
            if isinstance(text, RowError):
                raise text
            if text.strip():
                yield ScoredLine(number, line, _row(str(path), line, text))


def _row(source: str, line: int, text: bytes) -> Json:
    """Parse a line that `pinocchio score` wrote, and return its object.

    Raises RowError if it is no JSON object, if `confidence` is no number from 0 to 1, or if
    `correct` is not 0, 1 or null.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(source, line, f"not JSON: {error}") from error
    confidence = raw.get("confidence") if isinstance(raw, dict) else None
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise RowError(source, line, "the row has no confidence; `pinocchio score` adds it")
    if not 0 <= confidence <= 1:
        raise RowError(source, line, f"'confidence' must be from 0 to 1, not {confidence!r}")
    if raw.get("correct") not in (None, 0, 1):
        raise RowError(source, line, f"'correct' must be 0 or 1, not {raw['correct']!r}")
    return raw  # type: ignore[no-any-return]  # an object, as its confidence says
