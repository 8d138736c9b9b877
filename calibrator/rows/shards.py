"""Files scored in parts, so that the work can be spread, stopped and resumed.

A part is a run of lines of one file. Its bounds depend only on the file, and its result is in its
own file, which is written atomically. Whoever scores a part a second time, because a machine was
lost, writes the same content again.

    OUT.parts/run.json             what decides the output: the files, the calibrator, the tags
    OUT.parts/00000-000012.jsonl   the 13th part of the first file: a line about it, then its rows
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from calibrator.errors import ClusterError, RowError
from calibrator.rows.rows import Row, Tags, read_lines, read_row
from calibrator.rows.scores import image_use, score_items, scored_line
from calibrator.scorer import Scorer, provenance

PART_LINES = 1_000
PART_BYTES = 4 * 2**20
FACTS = "run.json"


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of the file at index `source` of a run; `error` is what ended the file early."""

    source: int
    number: int  # from 0, in each file
    first_line: int  # from 1
    text: bytes
    is_last: bool  # whether it is the last part of its file
    error: str = ""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line's number in its file, from 1, with the line."""
        return enumerate(self.text.split(b"\n"), start=self.first_line)


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts of a part without its rows; they are the first line of its file."""

    rows: int  # number of rows, with bad ones
    bad: tuple[tuple[int, str], ...]  # line and message of each bad row
    is_last: bool


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `pinocchio score` for reading and writing rows."""

    tags: Tags = "served"
    is_brief: bool = False
    ignores_images: bool = False


@dataclass(frozen=True, slots=True)
class ShardRun:
    """One run over some files, as a value that travels to whoever scores the parts."""

    folder: str
    files: tuple[str, ...]  # absolute paths, as is the folder's
    names: tuple[str, ...]  # the files' names as a person gave them
    calibrator: str  # the version that each score must come from
    options: Options = Options()

    def check_folder(self) -> None:
        """Raise OSError where this machine does not see the folder."""
        os.stat(Path(self.folder, FACTS))

    def facts(self) -> dict[str, Any]:
        """Return all values that determine the output, by name.

        Raises OSError for a missing file.
        """
        states = [(path, os.stat(path)) for path in self.files]
        return {
            "parts": [PART_LINES, PART_BYTES],
            "files": [[path, state.st_size, state.st_mtime_ns] for path, state in states],
            "calibrator": self.calibrator,
            **asdict(self.options),
        }

    def changed_facts(self) -> list[str]:
        """Return the names of the facts that changed since the run began; empty if none did.

        Raises OSError for a missing file.
        """
        found = json.loads(Path(self.folder, FACTS).read_text(encoding="utf-8"))
        return [name for name, value in self.facts().items() if found.get(name) != value]

    def path_of(self, source: int, number: int) -> Path:
        """Return the path of a part's file, by file index and part number, both from 0."""
        return Path(self.folder, f"{source:05d}-{number:06d}.jsonl")

    def finished_parts(self) -> list[list[int]]:
        """Return for each file, in order, the numbers of its finished parts, ascending."""
        found: list[list[int]] = [[] for _ in self.files]
        for name in os.listdir(self.folder):
            stem, _, ending = name.partition(".")
            source, _, number = stem.partition("-")
            if ending == "jsonl" and source.isdigit() and number.isdigit():
                found[int(source)].append(int(number))
        return [sorted(numbers) for numbers in found]

    def score(self, part: Part, scorer: Scorer) -> Summary:
        """Score a part, write its file and return its summary; bad rows are listed in it.

        Raises CalibratorError or OSError.
        """
        options, name = self.options, self.names[part.source]
        use = image_use(scorer, are_ignored=options.ignores_images)
        read = [read_row(name, number, line, use) for number, line in part.lines() if line.strip()]
        good = [row for row in read if isinstance(row, Row)]
        bad = [(row.line, row.message) for row in read if isinstance(row, RowError)]
        if part.error:
            bad.append((part.first_line + part.text.count(b"\n"), part.error))
        found = score_items(scorer, [row.item(options.tags) for row in good])
        summary = Summary(len(good) + len(bad), tuple(bad), part.is_last)
        scored = (
            scored_line(
                row, score, provenance(scorer, score), options.tags, is_brief=options.is_brief
            )
            for row, score in zip(good, found, strict=True)
        )
        path = self.path_of(part.source, part.number)
        _write(path, [json.dumps(asdict(summary)) + "\n", *scored])
        return summary

    def summaries(self) -> Iterator[tuple[int, Path, Summary]]:
        """Yield each part in the order of its rows, as file index, path and summary.

        Raises ClusterError where a part is missing or damaged.
        """
        for source, numbers in enumerate(self.finished_parts()):
            is_last = False
            for expected, number in enumerate(numbers):
                path = self.path_of(source, number)
                summary = _read_summary(path)
                if number != expected:
                    break
                is_last = summary.is_last
                yield source, path, summary
            if not is_last:
                raise ClusterError(
                    f"parts of {self.names[source]} are missing in {self.folder}; "
                    "the same command scores them"
                )

    def check(self) -> tuple[list[RowError], int]:
        """Return the bad rows as errors, and the number of all rows.

        Raises ClusterError as `summaries`, and where a file changed since the run began.
        """
        if differing := self.changed_facts():
            raise ClusterError(
                f"{' and '.join(differing)} changed while rows were read; "
                f"remove {self.folder} to begin anew"
            )
        bad: list[RowError] = []
        total = 0
        for source, _, summary in self.summaries():
            total += summary.rows
            bad += [RowError(self.names[source], line, message) for line, message in summary.bad]
        return bad, total

    def write_all(self, stream: TextIO) -> None:
        """Write all scored rows to a text stream in the order of the files' rows.

        Raises ClusterError as `summaries`.
        """
        stream.flush()
        for _, path, _ in self.summaries():
            with path.open("rb") as part:
                part.readline()
                shutil.copyfileobj(part, stream.buffer)

    def remove(self) -> None:
        """Delete the run's folder with its parts; errors are ignored."""
        shutil.rmtree(self.folder, ignore_errors=True)


def begin(output: Path, files: Sequence[Path], calibrator: str, options: Options) -> ShardRun:
    """Start a run whose parts are kept in `OUTPUT.parts`, or resume the one there.

    The folder is made. Raises ClusterError where it has parts of another run, OSError where a file
    cannot be read, the output is a folder, or the folder cannot be made.
    """
    if output.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(output))
    folder = output.absolute().with_name(output.name + ".parts")
    paths = tuple(str(file.absolute()) for file in files)
    run = ShardRun(str(folder), paths, tuple(map(str, files)), calibrator, options)
    facts = run.facts()
    folder.mkdir(exist_ok=True)
    if not (folder / FACTS).exists():
        _write(folder / FACTS, [json.dumps(facts, indent=1)])
    if differing := run.changed_facts():
        raise ClusterError(
            f"{folder} has parts of a run with other {', '.join(differing)}; "
            "remove that folder to begin anew"
        )
    return run


def cut(path: str, source: int, done: Sequence[int] = ()) -> Iterator[Part]:
    """Yield the parts of a file whose numbers are not in `done`, in order.

    `source` is the file's index in the run. A file without a line is one part too, and the last
    part of a file that breaks off has the `error`. Raises OSError.
    """
    number, first_line, size, error = 0, 1, 0, ""
    lines: list[bytes] = []
    skipped = frozenset(done)
    for at, line in read_lines(Path(path)):
        if isinstance(line, RowError):
            error = line.message
            break
        if len(lines) == PART_LINES or size >= PART_BYTES:
            if number not in skipped:
                yield Part(source, number, first_line, b"".join(lines), is_last=False)
            number, first_line, size, lines = number + 1, at, 0, []
        lines.append(line)
        size += len(line)
    if number not in skipped:
        yield Part(source, number, first_line, b"".join(lines), is_last=True, error=error)


def _read_summary(path: Path) -> Summary:
    """Return the first line of a finished part's file as a summary.

    Raises ClusterError for a damaged file.
    """
    try:
        with path.open("rb") as stream:
            values = json.loads(stream.readline())
        return Summary(values["rows"], tuple(map(tuple, values["bad"])), values["is_last"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{path} is damaged; remove it, and the same command makes it"
        ) from error


def _write(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file atomically, also where two processes write the same one.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())  # a loss of power could otherwise leave an empty file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
