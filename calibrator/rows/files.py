"""Files of rows: whether they can be read, and how a line is written; without numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calibrator.errors import InputError


def json_line(values: Any) -> str:
    """UTF-8 stays; half a surrogate pair, which has no UTF-8, becomes the escape that it was."""
    text = json.dumps(values, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def check_readable(paths: Iterable[Path | None]) -> None:
    """Before the work: raises InputError for the first file that cannot be opened."""
    for path in paths:
        if path is None:
            continue
        try:
            if not path.is_fifo():  # which can be opened once
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
