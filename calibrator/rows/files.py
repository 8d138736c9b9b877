"""Files of rows: a check that they can be read, and the form of a line; without numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calibrator.errors import InputError


def json_line(values: Any) -> str:
    """Return values as JSON in one line with a line end.

    Half a surrogate pair, which has no UTF-8, becomes an escape.
    """
    text = json.dumps(values, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def check_readable(paths: Iterable[Path | None], *, times: int = 1) -> None:
    """Raise InputError for the first file that cannot be opened; None is skipped.

    A pipe is refused where it is named twice, or with `times` above 1: a second reading of it would
    find nothing, or wait for another writer.
    """
    pipes: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        try:
            if path.is_fifo():  # opening it would take its only reading
                if times > 1 or path.resolve() in pipes:
                    raise InputError(
                        f"{path} is a pipe, and the rows are read {max(times, 2)} times; "
                        "save them in a file and name that"
                    )
                pipes.add(path.resolve())
            else:
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
