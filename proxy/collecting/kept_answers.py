"""A file of answers that grows by a line for each, and is read again after a crash.

A line is written whole and handed to the disk before its answer counts. What a killed process left
of a line is cut off by the next one. Two processes cannot write the same file.
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
    """The keys of the answers that stand in a file, as far as it can be read; it is not changed."""
    found = set()
    try:
        with path.open("rb") as stream:
            for line in stream:
                found.add(json.loads(line)["key"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return frozenset(found)


class KeptAnswers:
    """Answers by the key of their call; a context manager that holds the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Json] = {}
        self._stream = path.open("ab+")

    def __enter__(self) -> Self:
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
        return self._kept.get(key)

    def add(self, key: str, answer: Mapping[str, Any]) -> None:
        """Keeps an answer for good."""
        told = {"key": key, **answer}
        self._stream.write(json.dumps(told).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._kept[key] = told
