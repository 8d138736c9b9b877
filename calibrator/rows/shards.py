"""Files scored in parts, so that the work can be spread, stopped and taken up again.

A part is a run of lines of one file. Where it begins and ends follows from the file alone, and
what is made of it stands in a file of its own, which appears whole or not at all: whoever scores a
part a second time, because a machine was lost, writes the same thing once more.

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
    """Lines of the file at `source` of a run's files; `error` is what ended the file early."""

    source: int
    number: int  # from 0, in each file
    first_line: int  # from 1
    text: bytes
    is_last: bool  # of its file
    error: str = ""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(self.text.split(b"\n"), start=self.first_line)


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a part without its rows; the first line of its file."""

    rows: int  # the bad ones too
    bad: tuple[tuple[int, str], ...]  # line and message
    is_last: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How rows are read and written, as `pinocchio score` was told."""

    tags: Tags = "served"
    is_brief: bool = False
    ignores_images: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run over some files. A value that travels to whoever scores the parts."""

    folder: str
    files: tuple[str, ...]  # absolute, as the folder is
    names: tuple[str, ...]  # of the files, as a person gave them
    calibrator: str  # the version that each score must come from
    options: Options = Options()

    def check_folder(self) -> None:
        """Raises OSError where this machine does not see the folder."""
        os.stat(Path(self.folder, FACTS))

    def facts(self) -> dict[str, Any]:
        """What decides the output; raises OSError for a file that is not there."""
        states = [(path, os.stat(path)) for path in self.files]
        return {
            "parts": [PART_LINES, PART_BYTES],
            "files": [[path, state.st_size, state.st_mtime_ns] for path, state in states],
            "calibrator": self.calibrator,
            **asdict(self.options),
        }

    def differing(self) -> list[str]:
        """What is not as it was when the run began."""
        found = json.loads(Path(self.folder, FACTS).read_text(encoding="utf-8"))
        return [name for name, value in self.facts().items() if found.get(name) != value]

    def path_of(self, source: int, number: int) -> Path:
        return Path(self.folder, f"{source:05d}-{number:06d}.jsonl")

    def done(self) -> list[list[int]]:
        """For each file the numbers of the parts that are there."""
        found: list[list[int]] = [[] for _ in self.files]
        for name in os.listdir(self.folder):
            stem, _, ending = name.partition(".")
            source, _, number = stem.partition("-")
            if ending == "jsonl" and source.isdigit() and number.isdigit():
                found[int(source)].append(int(number))
        return [sorted(numbers) for numbers in found]

    def score(self, part: Part, scorer: Scorer) -> Summary:
        """Scores a part and writes its file; raises CalibratorError, OSError."""
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
        """Each part in the order of its rows, with its file's index; raises ClusterError where
        one is missing."""
        for source, numbers in enumerate(self.done()):
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
        """The bad rows, and how many there are of all.

        Raises ClusterError as `summaries`, and where a file is not what it was at the beginning.
        """
        if differing := self.differing():
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
        """All scored rows, in the order of the files' own."""
        stream.flush()
        for _, path, _ in self.summaries():
            with path.open("rb") as part:
                part.readline()
                shutil.copyfileobj(part, stream.buffer)

    def remove(self) -> None:
        """Once the output is where it belongs."""
        shutil.rmtree(self.folder, ignore_errors=True)


def begin(output: Path, files: Sequence[Path], calibrator: str, options: Options) -> Run:
    """A run whose parts are kept beside `output`, or the one that was interrupted there.

    Raises ClusterError where those are parts of another run, OSError where a file cannot be read
    or the folder not be made.
    """
    if output.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(output))
    folder = output.absolute().with_name(output.name + ".parts")
    paths = tuple(str(file.absolute()) for file in files)
    run = Run(str(folder), paths, tuple(map(str, files)), calibrator, options)
    facts = run.facts()
    folder.mkdir(exist_ok=True)
    if not (folder / FACTS).exists():
        _write(folder / FACTS, [json.dumps(facts, indent=1)])
    if differing := run.differing():
        raise ClusterError(
            f"{folder} has parts of a run with other {', '.join(differing)}; "
            "remove that folder to begin anew"
        )
    return run


def cut(path: str, source: int, done: Sequence[int] = ()) -> Iterator[Part]:
    """The parts of a file but for those that are done; raises OSError.

    A file without a line is one part, too.
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
    try:
        with path.open("rb") as stream:
            values = json.loads(stream.readline())
        return Summary(values["rows"], tuple(map(tuple, values["bad"])), values["is_last"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{path} is damaged; remove it, and the same command makes it"
        ) from error


def _write(path: Path, lines: Iterable[str]) -> None:
    """All of it or nothing, also where two write the same at once."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())  # or a machine that loses power could leave an empty file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
