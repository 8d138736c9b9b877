"""The traffic to measure on: labelled rows, hand-made pairs, our own app replies.

A file of labelled rows (`.jsonl`, `.jsonl.gz`) is one set. `NAME__nc` and `NAME__no_licence` mark a
set that training may not see. Files of entailment pairs (`premise`, `hypothesis`) hold no replies
and are skipped. A `.json` file is a list of hand-made pairs:

    {"kind", "question" | "messages", "right": REPLY, "wrong": [[FAULT, REPLY], ...]} and "tools"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrator.errors import JudgingError, NotScorableError, RowError
from calibrator.lab.judging.evaluation.traffic.figures import APPS, HAND_MADE, SETS, Group
from calibrator.lab.judging.sensitivity import app_replies
from calibrator.rows.rows import ImageUse, Row, open_lines, parse_row, read_rows
from calibrator.rows.selection import share_of

ROWS_OF_SET = 1_000  # most rows of a set, in whole questions
LICENCES = {"__nc": "nc", "__no_licence": "no licence"}
_ENDINGS = (".jsonl", ".jsonl.gz")
_GROUNDING, _HAND_MADE = Path("grounding") / "test", Path("traffic") / "handmade.json"


@dataclass(frozen=True, slots=True)
class TrafficSet:
    """Labelled replies of one source; in `apps` and `hand-made`, `Row.benchmark` is the kind."""

    group: Group
    name: str
    rows: list[Row]
    licence: str = ""  # the licence that forbids training, or empty


def find_traffic(places: Sequence[Path]) -> list[Path]:
    """Return the files of these places, each of which is a file or a folder.

    A folder gives `grounding/test/*.jsonl.gz` in it, with `traffic/handmade.json` in it or beside
    it; without `grounding/test`, the `.jsonl`, `.jsonl.gz` and `.json` files in it. Raises
    JudgingError for a folder without any.
    """
    found: list[Path] = []
    for place in places:
        files = list(_files_of(place)) if place.is_dir() else [place]
        if not files:
            raise JudgingError(
                f"{place} has no traffic: it needs {_GROUNDING}/*.jsonl.gz, or such files itself"
            )
        found += files
    return list(dict.fromkeys(found))


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of rows in a folder, sorted, and then the hand-made pairs if there are any.

    With a folder `grounding/test` they are the `.jsonl` and `.jsonl.gz` files in it, and
    `traffic/handmade.json` in the folder or beside it; without, all such files and `.json` files.
    """
    rows = folder / _GROUNDING
    if not rows.is_dir():
        yield from sorted(
            path for path in folder.iterdir() if path.name.endswith((*_ENDINGS, ".json"))
        )
        return
    yield from sorted(path for path in rows.iterdir() if path.name.endswith(_ENDINGS))
    pairs = [folder / _HAND_MADE, folder.resolve().parent / _HAND_MADE]
    yield from [path for path in pairs if path.is_file()][:1]


def read_traffic(
    paths: Sequence[Path], images: ImageUse = "refuse", most: int = ROWS_OF_SET
) -> tuple[list[TrafficSet], list[RowError]]:
    """Return the sets of traffic: our own app replies, then one for each file; and the bad rows.

    The bad rows of the files are a list of errors. A file of rows with more than `most` labelled
    rows is thinned by whole questions, always the same ones. Files of entailment pairs or without a
    labelled row give no set. `images` says what becomes of rows with images. Raises JudgingError
    for a `.json` file of another form than hand-made pairs.
    """
    sets = [TrafficSet(APPS, "app replies", list(_app_rows()))]
    errors: list[RowError] = []
    for path in paths:
        if path.suffix == ".json":
            sets.append(TrafficSet(HAND_MADE, path.stem, read_pairs(path)))
        elif not _holds_entailment(path):
            rows = []
            for _, row in read_rows(path, images):
                if isinstance(row, RowError):
                    errors.append(row)
                elif row.correct is not None:
                    rows.append(row)
            if rows:
                sets.append(TrafficSet(SETS, *_name_set(path, _thin_rows(rows, most))))
    return sets, errors


def _name_set(path: Path, rows: list[Row]) -> tuple[str, list[Row], str]:
    """Return (name, rows, licence) of a file's set; the rows are returned unchanged.

    `squad__nc.jsonl.gz` gives the name `squad` and the licence `nc`; without such a mark the
    licence is "".
    """
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    for mark, licence in LICENCES.items():
        if name.endswith(mark):
            return name.removesuffix(mark), rows, licence
    return name, rows, ""


def _thin_rows(rows: list[Row], most: int) -> list[Row]:
    """Return at most `most` rows in whole questions, in the file's order; all if there are no more.

    Questions are tried in the order of a hash of their id, so that the same file gives the same
    rows; one that does not fit any more is skipped.
    """
    if len(rows) <= most:
        return rows
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.question_id] = sizes.get(row.question_id, 0) + 1
    chosen: set[str] = set()
    remaining = most
    for question in sorted(sizes, key=share_of):
        if sizes[question] <= remaining:
            chosen.add(question)
            remaining -= sizes[question]
    return [row for row in rows if row.question_id in chosen]


def _holds_entailment(path: Path) -> bool:
    """Return whether the file's first line has `premise` and `hypothesis`, so is not a reply."""
    with open_lines(path) as stream:
        first = stream.readline(100_000)
    return b'"premise"' in first and b'"hypothesis"' in first


def _app_rows() -> Iterator[Row]:
    """Yield two rows for each of our app requests: the right reply, then the wrong one.

    Their ids are `ID-1` and `ID-0`, and their question's id is `ID`. The benchmark is the kind of
    app, such as `rag` or `rag, second set`.
    """
    for one in app_replies():
        for reply, label in ((one.right, 1), (one.wrong, 0)):
            yield parse_row(
                {
                    "id": f"{one.id}-{label}",
                    "question_id": one.id,
                    "benchmark": f"{one.app}, {one.edition} set" if one.edition else one.app,
                    "messages": one.messages,
                    "response": reply,
                    "correct": label,
                }
            )


def read_pairs(path: Path) -> list[Row]:
    """Return the rows of a JSON file of hand-made pairs, for each the right reply first.

    The wrong ones follow it. A row's benchmark is the pair's `kind`. Raises JudgingError for a file
    of another form.
    """
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise JudgingError(f"{path} is no JSON: {error}") from error
    if not isinstance(items, list) or not items:
        raise JudgingError(f"{path} must be a list of at least one hand-made pair")
    rows: list[Row] = []
    for number, item in enumerate(items):
        try:
            rows += _pair_rows(item, f"{path.stem}-{number}")
        except (KeyError, TypeError, ValueError, NotScorableError) as error:
            raise JudgingError(f"{path}: item {number} is no hand-made pair: {error!r}") from error
    return rows


def _pair_rows(item: Any, name: str) -> Iterator[Row]:
    """Yield the rows of one hand-made pair: the right reply, then the wrong ones.

    `name` is their question's id, and `NAME-0`, `NAME-1` .. are their own. Raises KeyError,
    TypeError, ValueError or NotScorableError for an `item` of another form.
    """
    request = {key: item[key] for key in ("question", "messages", "tools") if item.get(key)}
    replies = [(item["right"], 1), *((reply, 0) for _, reply in item["wrong"])]
    for number, (reply, label) in enumerate(replies):
        fixed = {"id": f"{name}-{number}", "question_id": name, "benchmark": item["kind"]}
        yield parse_row({**request, **fixed, "response": reply, "correct": label})
