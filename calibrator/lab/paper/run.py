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
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from calibrator.errors import JudgingError, OutputError
from calibrator.lab.paper.catalogue import CATALOGUE, NOT_HERE, Entry
from calibrator.lab.paper.pages import as_html, as_json, as_markdown, drawings_of
from calibrator.lab.paper.sections.scored import Extent, ScoredRows
from calibrator.lab.paper.sections.tables import ReportTable, TableLine, columns_of, table_of
from calibrator.rows.kept_scores import code_digest, digest_of_rows
from calibrator.scorer import opinion_of

_BESIDE = ("row", "label", "doubt")

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
        """The catalogue's tables to make now: those named in `only`, or all, in this order.

        Tables that train are left out unless `is_retrained`. Raises JudgingError for an unknown
        name in `only`.
        """
        known = {one.id: one for one in CATALOGUE}
        if unknown := [name for name in self.only if name not in known]:
            raise JudgingError(f"no table is called {unknown[0]!r}; there are {', '.join(known)}")
        chosen = [known[name] for name in self.only] or list(CATALOGUE)
        return [one for one in chosen if self.is_retrained or not one.is_trained]


def make_report(
    scored: ScoredRows,
    folder: Path,
    request: ReportRequest,
    say: Callable[[str], None] = lambda _: None,
) -> list[ReportTable]:
    """Make the missing tables of the report in `folder`, write all files, and return all tables.

    Tables of an earlier run are kept if rows, calibrator and code are the same, except those that
    lacked something. The list has every table of the catalogue; those not made say why in `state`
    and `note`. `say` gets a sentence for each table that is made. Raises JudgingError for an
    unknown table, OutputError for a folder that holds something else.
    """
    wanted = request.entries
    _adopt(folder, _identity(scored), say)
    for number, entry in enumerate(wanted, start=1):
        path = folder / "tables" / f"{entry.id}.json"
        if path.exists() and _read(path).state == "made":
            continue
        say(f"{number} of {len(wanted)}: {entry.title}")
        begun = time.monotonic()
        _replace(path, _make_table(entry, scored, request).as_json())
        _note_time(folder, entry.id, time.monotonic() - begun)
    tables = [_load_table(folder, one, request) for one in CATALOGUE]
    _write(folder, tables, scored)
    return tables


def _identity(scored: ScoredRows) -> dict[str, Any]:
    """Return the values that the tables depend on, as JSON values; a change remakes all tables.

    These are digests of the rows, training rows, code and the paper's numbers, and the calibrator,
    device, extent and kind of fit.
    """
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
    """Create the report's folder with its mark `run.json`, which holds the `identity`.

    Where the mark of an earlier report differs, its tables are deleted and `say` gets a sentence.
    Raises OutputError if `folder` is a file or holds files without a mark.
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


def _make_table(entry: Entry, scored: ScoredRows, request: ReportRequest) -> ReportTable:
    """Make a table; where the rows do not suffice, return one in state "lacking" with the reason.

    A made one also has the paper's lines. Such a reason is any JudgingError, and for fewer than
    `FEWEST` rows also an arithmetic, lookup or value error; on enough rows these errors are raised.
    """
    command = _command(entry, request)
    try:
        content = entry.make(scored)
    except JudgingError as error:
        return _empty(entry, command, "lacking", str(error))
    except (ArithmeticError, LookupError, ValueError) as error:
        if len(scored.rows) >= FEWEST:
            raise
        why = f"{len(scored.rows)} rows are too few for it ({error})"
        return _empty(entry, command, "lacking", why)
    lines = [*content.lines, *paper_lines(entry.id)]
    return ReportTable(
        entry.id,
        entry.title,
        entry.rows,
        command,
        content.columns,
        lines,
        content.drawings,
        content.note,
    )


def _load_table(folder: Path, entry: Entry, request: ReportRequest) -> ReportTable:
    """Return a table from its file in the folder, or one without our lines if there is no file.

    The latter's state is "training" for a table that trains, else "lacking". Raises OutputError for
    an unreadable file.
    """
    path = folder / "tables" / f"{entry.id}.json"
    if path.exists():
        return _read(path)
    if entry.is_trained:
        return _empty(entry, _command(entry, request), "training", "")
    return _empty(entry, _command(entry, request), "lacking", "it was not asked for.")


def _empty(entry: Entry, command: str, state: Any, note: str) -> ReportTable:
    """Return a table with only the paper's lines; `state` and `note` say why ours are missing."""
    lines = paper_lines(entry.id)
    columns = columns_of(lines)
    return ReportTable(entry.id, entry.title, entry.rows, command, columns, lines, (), note, state)


def _command(entry: Entry, request: ReportRequest) -> str:
    """Return the command that makes this table alone: the report's with `--only ID`.

    `--retrain` is added for a table that trains.
    """
    return f"{request.command} --only {entry.id}{' --retrain' if entry.is_trained else ''}"


def _read(path: Path) -> ReportTable:
    """Read a table from its JSON file. Raises OutputError if the file holds anything else."""
    try:
        return table_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(f"{path} is no table of a report: {error}; remove it") from error


def _write(folder: Path, tables: Sequence[ReportTable], scored: ScoredRows) -> None:
    """Write `index.html`, `report.md`, `report.json` and the SVG files in `figures/`.

    Earlier files of these names are replaced.
    """
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
    """Write the text to the file atomically, through a partial file; create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _note_time(folder: Path, name: str, seconds: float) -> None:
    """Record in the folder's `times.json` the seconds that a table took, rounded to tenths.

    Times of other tables are kept; an unreadable file is replaced.
    """
    path, known = folder / "times.json", dict[str, float]()
    with suppress(OSError, ValueError):
        known = json.loads(path.read_text(encoding="utf-8"))
    _replace(path, json.dumps({**known, name: round(seconds, 1)}, indent=1) + "\n")


@cache
def _read_numbers() -> dict[str, Any]:
    """Return the content of `numbers.yaml`, read once: the keys `doubts` and `tables`.

    `doubts` maps a key to its text, and `tables` a table's id to a list of lines.
    """
    text = files("calibrator.lab.paper").joinpath("numbers.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def paper_lines(table: str) -> list[TableLine]:
    """Return the paper's lines of the table with this id, such as `main`; [] if it has none.

    The `doubt` of a suspect line is `KEY: text`, and "" otherwise. All other keys of a line are its
    values.
    """
    doubts = _read_numbers()["doubts"]
    return [
        TableLine(
            str(each["label"]),
            {key: value for key, value in each.items() if key not in _BESIDE},
            each["row"],
            is_paper=True,
            doubt=f"{doubt}: {doubts[doubt]}" if (doubt := each.get("doubt")) else "",
        )
        for each in _read_numbers()["tables"].get(table, ())
    ]
