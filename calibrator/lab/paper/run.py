"""Makes the report, table by table, and resumes after an interruption.

    tables/ID.json    each table as soon as it is made
    index.html        the page; report.md and report.json have the same content
    figures/          the drawings, each as a file
    times.json        seconds that tables took, the last time each was made (T02, T03)

`run.json` records the tables' origin: rows, calibrator, code. Where it differs, they are made
again. Only `times.json` has times, so the same rows give the same files.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from calibrator.errors import JudgingError, OutputError
from calibrator.lab.paper.catalogue import CATALOGUE, NOT_HERE, Entry
from calibrator.lab.paper.pages import as_html, as_json, as_markdown, drawings_of
from calibrator.lab.paper.paper_numbers import paper_lines
from calibrator.lab.paper.sections.scored import Extent, ScoredRows
from calibrator.lab.paper.sections.tables import ReportTable, columns_of, table_of
from calibrator.rows.kept_scores import code_digest, digest_of_rows
from calibrator.scorer import opinion_of

MARK = "run.json"
FEWEST = 200  # with fewer rows a table may lack those of some kind, and a library fails


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The request for a report: the command to name in it, the tables, and if some may train."""

    command: str
    only: Sequence[str] = ()
    is_retrained: bool = False

    @property
    def entries(self) -> list[Entry]:
        """The tables to make now. Raises JudgingError for an unknown name."""
        known = {one.id: one for one in CATALOGUE}
        if unknown := [name for name in self.only if name not in known]:
            raise JudgingError(f"no table is called {unknown[0]!r}; there are {', '.join(known)}")
        chosen = [known[name] for name in self.only] or list(CATALOGUE)
        return [one for one in chosen if self.is_retrained or not one.is_trained]


def make_report(
    scored: ScoredRows,
    folder: Path,
    asked: ReportRequest,
    say: Callable[[str], None] = lambda _: None,
) -> list[ReportTable]:
    """Make the missing tables of the report in `folder`, write all files, and return all tables.

    `say` gets a sentence for each table that is made. Raises OutputError for a folder that holds
    something else.
    """
    wanted = asked.entries
    _adopt(folder, _identity(scored), say)
    for number, entry in enumerate(wanted, start=1):
        path = folder / "tables" / f"{entry.id}.json"
        if path.exists() and _read(path).state == "made":
            continue
        say(f"{number} of {len(wanted)}: {entry.title}")
        begun = time.monotonic()
        _replace(path, _make_table(entry, scored, asked).as_json())
        _note_time(folder, entry.id, time.monotonic() - begun)
    tables = [_load_table(folder, one, asked) for one in CATALOGUE]
    _write(folder, tables, scored)
    return tables


def _identity(scored: ScoredRows) -> dict[str, Any]:
    """Return all values that the tables depend on; a changed one makes the tables again."""
    numbers = files("calibrator.lab.paper").joinpath("numbers.yaml").read_bytes()
    return {
        "rows": digest_of_rows(scored.rows),
        "calibrator": [scored.scorer.name, opinion_of(scored.scorer), scored.device],
        "extent": asdict(scored.extent),
        "fit": scored.fit,
        "train": digest_of_rows(scored.train()),
        "code": code_digest(is_whole=True),
        "numbers": hashlib.sha256(numbers).hexdigest(),
    }


def _adopt(folder: Path, identity: dict[str, Any], say: Callable[[str], None]) -> None:
    """Prepare the folder for this report; remove tables of other rows or other code.

    Raises OutputError for a file, or a folder of something else.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"cannot write to {folder}: it is a file; name a folder")
    mark, text = folder / MARK, json.dumps(identity, indent=1) + "\n"
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise OutputError(f"cannot write to {folder}: it holds something else; name a new folder")
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    if mark.exists() and mark.read_text(encoding="utf-8") != text:
        say("the report that is there was made of other rows or by another calibrator: made anew")
        for path in (folder / "tables").glob("*.json"):
            path.unlink()
    _replace(mark, text)


def _make_table(entry: Entry, scored: ScoredRows, asked: ReportRequest) -> ReportTable:
    """Make a table, or an empty one that says what is lacking. Errors on enough rows are raised."""
    command = _command(entry, asked)
    try:
        made = entry.make(scored)
    except JudgingError as error:
        return _empty(entry, command, "lacking", str(error))
    except (ArithmeticError, LookupError, ValueError) as error:
        if len(scored.rows) >= FEWEST:
            raise
        why = f"{len(scored.rows)} rows are too few for it ({error})"
        return _empty(entry, command, "lacking", why)
    lines = [*made.lines, *paper_lines(entry.id)]
    return ReportTable(
        entry.id, entry.title, entry.rows, command, made.columns, lines, made.drawings, made.note
    )


def _load_table(folder: Path, entry: Entry, asked: ReportRequest) -> ReportTable:
    """Return a table from the folder, or an empty one with the reason."""
    path = folder / "tables" / f"{entry.id}.json"
    if path.exists():
        return _read(path)
    if entry.is_trained:
        return _empty(entry, _command(entry, asked), "training", "")
    return _empty(entry, _command(entry, asked), "lacking", "it was not asked for.")


def _empty(entry: Entry, command: str, state: Any, note: str) -> ReportTable:
    lines = paper_lines(entry.id)
    columns = columns_of(lines)
    return ReportTable(entry.id, entry.title, entry.rows, command, columns, lines, (), note, state)


def _command(entry: Entry, asked: ReportRequest) -> str:
    return f"{asked.command} --only {entry.id}{' --retrain' if entry.is_trained else ''}"


def _read(path: Path) -> ReportTable:
    try:
        return table_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(f"{path} is no table of a report: {error}; remove it") from error


def _write(folder: Path, tables: Sequence[ReportTable], scored: ScoredRows) -> None:
    """Write the report as HTML, Markdown and JSON, and its figures as SVG files."""
    questions = int(scored.questions.max()) + 1
    facts = {
        "calibrator": scored.scorer.name,
        "rows": len(scored.rows),
        "questions": questions,
        "not_here": NOT_HERE,
        "is_quick": scored.extent != Extent(),
    }
    for name, text in drawings_of(tables):
        _replace(folder / "figures" / name, text)
    _replace(folder / "report.json", as_json(tables, facts))
    _replace(folder / "report.md", as_markdown(tables, facts))
    _replace(folder / "index.html", as_html(tables, facts))


def _replace(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _note_time(folder: Path, name: str, seconds: float) -> None:
    path, known = folder / "times.json", dict[str, float]()
    with suppress(OSError, ValueError):
        known = json.loads(path.read_text(encoding="utf-8"))
    _replace(path, json.dumps({**known, name: round(seconds, 1)}, indent=1) + "\n")
