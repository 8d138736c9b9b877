"""A file of answers, one line each, that is read again after a crash.

A line is written whole and flushed to disk before its answer counts. The next process cuts off the
line that a killed one left unfinished. Two processes cannot write to the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proxy.errors import ExitStatus, StartupError

Json = dict[str, Any]


def keys_in(path: Path) -> frozenset[str]:
    """Return the keys of the answers in a file, up to the first line that cannot be read.

    A line is a JSON object with `key`. The file is not changed or locked; a missing one gives no
    keys.
    """
    found = set()
    try:
        with path.open("rb") as stream:
            for line in stream:
                found.add(json.loads(line)["key"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return frozenset(found)


class KeptAnswers:
    """Answers by their request's key, in memory and in a file; a context manager that locks it.

    The file is created if missing. Entering loads it, and raises StartupError where another process
    has the file, or a line of it is no answer. Leaving closes and unlocks it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Json] = {}
        self._stream = path.open("ab+")

    def __enter__(self) -> Self:
        """Lock the file, load its answers, and return this object.

        Raises StartupError where another process has the file, or a whole line of it is no answer.
        """
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stream.close()
            text = f"another process collects to {self._path.parent}; wait for it, or end it"
            raise StartupError(ExitStatus.UNUSABLE_INPUT, text) from error
        self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def _read(self) -> None:
        """Load all answers, a later one replacing an earlier one of the same key.

        An unfinished last line is cut off the file. Raises StartupError for a whole line that is no
        JSON object with `key`.
        """
        self._stream.seek(0)
        end = 0
        for line in self._stream:
            if not line.endswith(b"\n"):
                break
            try:
                found = json.loads(line)
                self._kept[found["key"]] = found
            except (ValueError, TypeError, KeyError):
                text = f"{self._path} has a line that is no answer, at byte {end}; move it away"
                raise StartupError(ExitStatus.UNUSABLE_INPUT, text) from None
            end += len(line)
        self._stream.truncate(end)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the answer with a key, a dict that holds `key` too, or None if there is none."""
        return self._kept.get(key)

    def add(self, key: str, answer: Mapping[str, Any]) -> None:
        """Append an answer as a JSON line to the file, flush it to disk, and keep it in memory."""
        line = {"key": key, **answer}
        self._stream.write(json.dumps(line).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._kept[key] = line
