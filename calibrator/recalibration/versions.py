"""Keep a folder of recalibrations, one of which is current: promoted from verdicts, and taken back.

    recalibrations/platt-9c1d02ab.json    each is written once and stays
    recalibrations/current                the name of the current one, or an empty line
    recalibrations/current-with-others    the same for numbers that know other replies
    recalibrations/current-with-signals   the same for weights of a judge and log-probabilities
    recalibrations/history.jsonl          promotions and rollbacks, with their reasons

A configuration names `recalibrations/current`, which may be named before anything was promoted, and
means all three: each recalibration says in `calibrator` which numbers it is for, and corrects no
others. Alternatively it names files, one for each kind of numbers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from calibrator.errors import CheckpointError

if TYPE_CHECKING:
    from calibrator.recalibration.curves import Of, Recalibration
    from calibrator.recalibration.signals import SignalWeights

CURRENT = "current"
POINTERS: Final[Mapping[Of, str]] = {
    "alone": CURRENT,
    "others": "current-with-others",
    "signals": "current-with-signals",
}
NUMBERS: Final[Mapping[Of, str]] = {
    "alone": "of replies alone",
    "others": "that know others",
    "signals": "that know signals",
}
HISTORY = "history.jsonl"
_FILE = re.compile(r"[a-z]+-[0-9a-f]{8}\.json")

Named: TypeAlias = Path | Sequence[Path] | None
"""The configured paths: `current` in a folder of versions, or a file for each kind of numbers."""


@dataclass(frozen=True, slots=True)
class Recalibrations:
    """The corrections of one calibrator's numbers.

    `alone` is for replies alone, `with_others` for numbers that know other replies, and `signals`
    joins signals to either. None leaves such numbers unchanged.
    """

    alone: Recalibration | None = None
    with_others: Recalibration | None = None
    signals: SignalWeights | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.alone, self.with_others, self.signals))

    def __iter__(self) -> Iterator[Recalibration]:
        """Yield the curves that are present, alone before with others, without signals' weights."""
        return (each for each in (self.alone, self.with_others) if each is not None)

    def check_fit(self, calibrator: str) -> None:
        """Raise CheckpointError if a recalibration was fitted for another calibrator.

        `calibrator` is the name of the present one.
        """
        for each in self:
            each.check_fits(calibrator)
        if self.signals is not None:
            self.signals.check_fits(calibrator)


def resolve_recalibrations(named: Named) -> Recalibrations:
    """Load the recalibrations that configured paths name.

    A path is a file, or `FOLDER/current` for those promoted in a folder. The result is empty if
    none was promoted yet, or the last one was taken back. Raises CheckpointError, also for two
    files for the same kind of numbers.
    """
    if (versions := versions_named(named)) is not None:
        return _combine([versions.current(of) for of in POINTERS])
    found: dict[Of, Recalibration | SignalWeights] = {}
    for path in _paths(named):
        if path.name == CURRENT:
            raise CheckpointError(
                f"{path} means all that was promoted there: name it alone, or name files"
            )
        one = _load(path)
        if one.of in found:
            raise CheckpointError(
                f"{path} is a second recalibration of numbers {NUMBERS[one.of]}, beside "
                f"{found[one.of].name}: name one of them"
            )
        found[one.of] = one
    return _combine(found.values())


def _combine(found: Iterable[Recalibration | SignalWeights | None]) -> Recalibrations:
    """Combine loaded recalibrations of different kinds; None entries are skipped.

    Of several of one kind the last counts. Without any, all members of the result are None.
    """
    curves: dict[Of, Recalibration] = {}
    signals = None
    for each in found:
        if each is not None and each.of == "signals":
            signals = cast("SignalWeights", each)
        elif each is not None:
            curves[each.of] = cast("Recalibration", each)
    return Recalibrations(curves.get("alone"), curves.get("others"), signals)


def _load(path: Path) -> Recalibration | SignalWeights:
    """Read a recalibration file; raises CheckpointError.

    The modules that read it are imported here, because most deployments have no recalibration.
    """
    from calibrator.recalibration.curves import load_named

    return load_named(path, _read)


def _read(values: dict[str, Any]) -> Recalibration | SignalWeights:
    """Build a recalibration, or weights of signals, from the values of a JSON file.

    Raises errors of many kinds for values that are neither.
    """
    from calibrator.recalibration.curves import FORMAT, recalibration_of
    from calibrator.recalibration.signals import KIND, signal_weights

    if values["kind"] == KIND and values["format"] == FORMAT:
        return signal_weights(values)
    return recalibration_of(values)


def versions_named(named: Named) -> RecalibrationVersions | None:
    """Return the folder of versions if the only path is its `current`.

    None for another name, for several paths and for none.
    """
    match _paths(named):
        case (path,) if path.name == CURRENT:
            return RecalibrationVersions(path.parent)
    return None


def recalibration_files(named: Named) -> tuple[Path, ...]:
    """Return the files that decide which recalibrations apply, for these configured paths.

    They are the paths themselves and, for `FOLDER/current`, all pointer files beside it.
    """
    paths = _paths(named)
    folders = [path for path in paths if path.name == CURRENT]
    pointers = (path.with_name(name) for path in folders for name in POINTERS.values())
    return tuple(dict.fromkeys((*paths, *pointers)))


def _paths(named: Named) -> tuple[Path, ...]:
    return () if named is None else (named,) if isinstance(named, Path) else tuple(named)


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the history: the names of the recalibrations before and after; None is none."""

    kind: Literal["promoted", "rolled_back"]
    before: str | None
    after: str | None
    at: str = ""  # ISO 8601, UTC
    figures: Mapping[str, Any] = field(default_factory=dict)  # the measurements behind a promotion
    knows_others: bool = False  # for numbers that know other replies
    knows_signals: bool = False  # joins a judge and log-probabilities to numbers

    @property
    def of(self) -> Of:
        """Which numbers it is for: `signals`, `others` (second opinions) or `alone`."""
        return "signals" if self.knows_signals else "others" if self.knows_others else "alone"


class RecalibrationVersions:
    """The versions in one folder; every method raises CheckpointError for damaged files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def current(self, of: Of = "alone") -> Recalibration | SignalWeights | None:
        """Load the recalibration in use for this kind of numbers (`alone`, `others`, `signals`).

        None if there is none. Raises CheckpointError for a damaged pointer or file.
        """
        pointer = self.folder / POINTERS[of]
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
        found = _load(self.folder / name)
        if found.of != of:
            raise CheckpointError(
                f"{pointer} names {name}, which is for numbers of {found.calibrator or 'replies'}"
            )
        return found

    def all(self) -> list[Recalibration]:
        """Load every curve in this folder, also those no longer in use, sorted by file name.

        Weights of signals are left out. Raises CheckpointError for a damaged file.
        """
        files = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        found = [_load(each) for each in files if _FILE.fullmatch(each.name)]
        return [cast("Recalibration", each) for each in found if each.of != "signals"]

    def promote(self, found: Recalibration | SignalWeights, figures: Mapping[str, Any]) -> Change:
        """Make `found` current for its kind of numbers, write its file, and return the change.

        The files of earlier versions stay. The change goes into the history with its figures.
        """
        before = self.current(found.of)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _file_of(found.name)
        if not path.exists():
            _write(path, lambda written: found.save(written))
        name = before.name if before else None
        change = _change("promoted", name, found.name, found.of, figures)
        self._point(change)
        return change

    def roll_back(self, of: Of = "alone") -> Change:
        """Put the recalibration that was in use before the current one in use again.

        `of` is the kind of numbers. Writes and returns the change. Raises CheckpointError if there
        is none to take back, or the one before is missing.
        """
        current = self.current(of)
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
            _load(self.folder / _file_of(before))  # fails if the file is missing or damaged
        change = _change("rolled_back", current.name, before, of)
        self._point(change)
        return change

    def history(self) -> list[Change]:
        """Return all changes, the oldest first; [] for none. Raises CheckpointError if damaged."""
        path = self.folder / HISTORY
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Change(**json.loads(line)) for line in lines if line.strip()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error

    def _point(self, change: Change) -> None:
        """Append a change to the history, then make its recalibration the current one.

        The order matters: a change that the history lacks could not be taken back.
        """
        line: dict[str, Any] = {
            "at": change.at,
            "kind": change.kind,
            "before": change.before,
            "after": change.after,
            "figures": dict(change.figures),
        }
        line |= {"knows_others": True} if change.knows_others else {}
        line |= {"knows_signals": True} if change.knows_signals else {}
        with (self.folder / HISTORY).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        text = f"{_file_of(change.after)}\n" if change.after else "\n"
        pointer = self.folder / POINTERS[change.of]
        _write(pointer, lambda written: written.write_text(text, encoding="utf-8"))


def _change(
    kind: Literal["promoted", "rolled_back"],
    before: str | None,
    after: str | None,
    of: Of,
    figures: Mapping[str, Any] | None = None,
) -> Change:
    """Return a change of the recalibration in use, as a line of the history, made now.

    `before` and `after` are names of recalibrations or None; `of` is the kind of numbers.
    """
    return Change(kind, before, after, _timestamp(), figures or {}, of == "others", of == "signals")


def _file_of(name: str) -> str:
    """Return the file of a name: `platt-9c1d02ab.json` for `platt@9c1d02ab`."""
    return f"{name.replace('@', '-')}.json"


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, write: Any) -> None:
    """Write a file by replacing it as a whole, so that a running proxy never reads half of it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    write(new)
    new.replace(path)
