"""A folder of recalibrations, one of which counts: promoted from verdicts, and taken back.

    recalibrations/platt-9c1d02ab.json    each is written once and stays
    recalibrations/current                the name of the one that counts, or an empty line
    recalibrations/history.jsonl          what was promoted and taken back, and why

A configuration names `recalibrations/current`, which may be there before anything was promoted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from calibrator.errors import CheckpointError
from calibrator.recalibration.curves import Recalibration, load_recalibration

CURRENT = "current"
HISTORY = "history.jsonl"
_FILE = re.compile(r"[a-z]+-[0-9a-f]{8}\.json")


def resolve_recalibration(path: Path) -> Recalibration | None:
    """What a configured path names: a file, or the one that counts in a folder of versions.

    None where none was promoted yet, or the last one was taken back. Raises CheckpointError.
    """
    if path.name == CURRENT:
        return RecalibrationVersions(path.parent).current()
    return load_recalibration(path)


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the history: from which recalibration to which, by name; None is without one."""

    kind: Literal["promoted", "rolled_back"]
    before: str | None
    after: str | None
    at: str = ""  # ISO 8601, UTC
    figures: Mapping[str, Any] = field(default_factory=dict)  # what it was promoted for


class RecalibrationVersions:
    """The versions in one folder; every method raises CheckpointError for what is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def current(self) -> Recalibration | None:
        """The one that counts."""
        pointer = self.folder / CURRENT
        try:
            name = pointer.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{pointer} cannot be read: {error}") from error
        if not name:
            return None
        if not _FILE.fullmatch(name):
            raise CheckpointError(
                f"{pointer} must hold the name of a recalibration beside it, such as "
                f"platt-9c1d02ab.json, not {name[:64]!r}"
            )
        return load_recalibration(self.folder / name)

    def promote(self, found: Recalibration, figures: Mapping[str, Any]) -> Change:
        """From now on `found` counts; those before it stay."""
        before = self.current()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _file_of(found.name)
        if not path.exists():
            _write(path, lambda written: found.save(written))
        change = Change("promoted", before.name if before else None, found.name, _now(), figures)
        self._point(change)
        return change

    def roll_back(self) -> Change:
        """What counted before the current one counts again.

        Raises CheckpointError where there is none to take back.
        """
        current = self.current()
        if current is None:
            raise CheckpointError(
                f"no recalibration of {self.folder} is in use: nothing to take back"
            )
        promotions = [
            change
            for change in self.history()
            if change.kind == "promoted" and change.after == current.name
        ]
        if not promotions:
            raise CheckpointError(
                f"{self.folder / HISTORY} does not say what counted before {current.name}"
            )
        before = promotions[-1].before
        if before is not None:
            load_recalibration(self.folder / _file_of(before))  # it must be there, and whole
        change = Change("rolled_back", current.name, before, _now())
        self._point(change)
        return change

    def history(self) -> list[Change]:
        """All changes, the oldest first."""
        path = self.folder / HISTORY
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Change(**json.loads(line)) for line in lines if line.strip()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error

    def _point(self, change: Change) -> None:
        """The history first: a pointer that nobody can explain could not be taken back."""
        line = {
            "at": change.at,
            "kind": change.kind,
            "before": change.before,
            "after": change.after,
            "figures": dict(change.figures),
        }
        with (self.folder / HISTORY).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        text = f"{_file_of(change.after)}\n" if change.after else "\n"
        _write(self.folder / CURRENT, lambda written: written.write_text(text, encoding="utf-8"))


def _file_of(name: str) -> str:
    """`platt@9c1d02ab` -> `platt-9c1d02ab.json`."""
    return f"{name.replace('@', '-')}.json"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, write: Any) -> None:
    """Writes a file as a whole: a running proxy never reads half of it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    write(new)
    new.replace(path)
