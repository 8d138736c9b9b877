"""Files of rows: a check that they can be read, and the form of a line; without numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calibrator.errors import InputError


def json_line(values: Any) -> str:
    """Return values as a line of JSON in UTF-8.

    Half a surrogate pair, which has no UTF-8, becomes an escape.
    """
    text = json.dumps(values, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def check_readable(paths: Iterable[Path | None]) -> None:
    """Raise InputError for the first file that cannot be opened; None is skipped."""
    for path in paths:
        if path is None:
            continue
        try:
            if not path.is_fifo():  # a FIFO can be opened only once
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
