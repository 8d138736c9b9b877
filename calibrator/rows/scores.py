"""Scores of many rows: computed by a scorer, or read from a file that `pinocchio score` wrote.

A file of scores is JSON lines with `id` and `confidence` (or `score`); `calibrator` and `tags`
are the origin of the numbers. With it, rows are judged without scoring them again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, get_args

import numpy as np

from calibrator.errors import JudgingError, RowError
from calibrator.metrics.metrics import Floats
from calibrator.rows.files import json_line
from calibrator.rows.kept_scores import KeptScores
from calibrator.rows.rows import ImageUse, Row, Tags, open_lines
from calibrator.scorer import (
    Item,
    Score,
    Scorer,
    knows_signals,
    opinion_of,
    reads_images,
    without_others,
)
from calibrator.scorer import knows_others as knows_others_of

FINDINGS = ("support", "basis", "unsupported", "act", "needs_facts", "familiar")
"""The fields of a scored line besides its numbers and reasons."""
BATCH = 32
BATCH_CHARACTERS = 48_000


ScoredLine: TypeAlias = tuple[str, float, dict[str, Any]]
"""The id of a row, its number, and all values of its line."""


@dataclass(frozen=True, slots=True)
class Scores:
    """P(correct) of some rows, in their order; `calibrator` is its origin, where known."""

    name: str
    tags: Tags
    confidence: Floats
    calibrator: str = ""


def image_use(scorer: Scorer, *, are_ignored: bool = False) -> ImageUse:
    """Return `read` if a scorer reads images, else `ignore` with `are_ignored`, else `refuse`.

    This says how rows with images are read (`parse_row`). `are_ignored` means that a person wants a
    score of the text alone.
    """
    if reads_images(scorer):
        return "read"
    return "ignore" if are_ignored else "refuse"


def score_items(
    scorer: Scorer, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None
) -> list[Score]:
    """Return the scores of many items, in their order, computed in batches of similar length.

    `progress` is called with the number of each batch's items, and first with that of cached scores
    (`KeptScores`). Batches come in a fixed random order, since with short ones first the remaining
    time would seem too short. Raises CalibratorError.
    """
    scores = scorer.known_scores(items) if isinstance(scorer, KeptScores) else {}
    progress(len(scores))
    wanted = [i for i in range(len(items)) if i not in scores]
    batches = list(_batches(sorted(wanted, key=lambda i: _size(items[i])), items))
    random.Random(0).shuffle(batches)
    for batch in batches:
        found = scorer.score_batch([items[i] for i in batch])
        scores.update(zip(batch, found, strict=True))
        progress(len(batch))
    return [scores[i] for i in range(len(items))]


def score_rows(
    scorer: Scorer,
    rows: Sequence[Row],
    tags: Tags = "served",
    progress: Callable[[int], None] = lambda _: None,
) -> Scores:
    """Return a scorer's confidences for the rows' replies alone, without other replies.

    `tags` are the names that it sees (`Row.item`); `progress` is as in `score_items`.
    """
    return score_kinds(scorer, rows, tags, progress)[0]


def score_kinds(
    scorer: Scorer,
    rows: Sequence[Row],
    tags: Tags = "served",
    progress: Callable[[int], None] = lambda _: None,
) -> list[Scores]:
    """Return a scorer's confidences for replies alone, and then those of other kinds, if any.

    If rows have `others` that the scorer reads, the second kind is based on them. If the scorer has
    weights for signals, the last kind is based on these. Each kind is for the same rows: a row
    without others or signals keeps its number.
    """
    found = score_items(scorer, [row.item(tags) for row in rows], progress)
    numbers = [(e.confidence if e.unaided is None else e.unaided, e.alone) for e in found]
    kinds = _kinds(numbers, tags, scorer.name, opinion_of(scorer))
    if count := sum(each.unaided is not None for each in found):
        name = f"{kinds[-1].calibrator}, knowing signals, on {count:,} of {len(found):,} rows"
        moved = np.array([each.confidence for each in found])
        kinds.append(Scores(name, tags, moved, name))
    return kinds


def _kinds(
    numbers: Sequence[tuple[float, float | None]], tags: Tags, name: str, opinion_name: str
) -> list[Scores]:
    """Return the scores without other replies and, if there are any, those with them.

    `numbers` are confidences, each with the one without others, or None where it uses none. `name`
    is the calibrator's, and `opinion_name` its name with other replies.
    """
    alone = np.array([confidences if before is None else before for confidences, before in numbers])
    found = [Scores(name, tags, alone, name)]
    if count := sum(before is not None for _, before in numbers):
        some = "" if count == len(numbers) else f", on {count:,} of {len(numbers):,} rows"
        confidences = np.array([confidences for confidences, _ in numbers])
        found.append(Scores(opinion_name + some, tags, confidences, opinion_name))
    return found


def _size(item: Item) -> int:
    """Return the characters of an item's question and answer."""
    return len(item.question) + len(item.answer)


def _batches(order: Sequence[int], items: Sequence[Item]) -> Iterator[list[int]]:
    """Yield batches of positions, at most `BATCH` each, in the order `order`, ascending by size.

    Their longest item's characters times their number are at most `BATCH_CHARACTERS`, unless a
    single item has more.
    """
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == BATCH or _size(items[i]) * (len(batch) + 1) > BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def scored_line(row: Row, found: Score, calibrator: str, tags: Tags, *, is_brief: bool) -> str:
    """Return the JSON line that `pinocchio score` writes for a row.

    It is the row with its numbers, findings, the calibrator's name and the tags. With `is_brief`
    the line has the id instead of the row, and no findings.
    """
    kept = {"id": row.id}
    if not is_brief:  # findings of another calibrator are dropped
        kept = {name: value for name, value in row.raw.items() if name not in FINDINGS}
    if row.lacks_images:
        kept = kept | {"status": "truncated", "reason": "image"}
    facts: dict[str, Any] = {
        "score": round(found.score, 6),
        "confidence": round(found.confidence, 6),
    }
    if not is_brief:
        facts |= _findings(found)
    if found.because:
        facts["because"] = list(found.because)
    if found.fields:
        facts["fields"] = [asdict(each) for each in found.fields]
    if found.alone is not None:
        facts |= {"alone": round(found.alone, 6), "opinions": list(found.compared)}
    if found.unaided is not None:
        facts["unaided"] = round(found.unaided, 6)
    return json_line({**kept, **facts, "calibrator": calibrator, "tags": tags})


def _findings(found: Score) -> dict[str, Any]:
    """Return the findings of a score by name, such as `{"basis": ["context"], "act": "answer"}`.

    `pinocchio replay` reads them from a row.
    """
    values: dict[str, Any] = {"basis": list(found.basis), "act": found.act}
    values |= {"needs_facts": found.needs_facts, "familiar": not found.is_unfamiliar}
    if found.support is not None:
        values["support"] = round(found.support, 6)
    if found.unsupported:
        values["unsupported"] = [asdict(each) for each in found.unsupported]
    return values


def read_scores(path: Path, rows: Sequence[Row], name: str | None = None) -> Scores:
    """Return the scores that a file has for these rows, found by their `id`, in their order.

    `name` replaces the calibrator's. Lines of other rows are ignored. Raises RowError for an
    unusable line, JudgingError where the file has no score for a row, and OSError.
    """
    return _scores_of(path, list(_scored_lines(path)), rows, name)


def _scores_of(
    path: Path, lines: Sequence[ScoredLine], rows: Sequence[Row], name: str | None = None
) -> Scores:
    """Match a file's parsed lines with rows by their ids, and return the rows' scores.

    The last line of an id counts. `name` is the scores' name; by default that of the calibrator in
    the last line, else the file's. `path` is not read again. Raises JudgingError for a row without
    a score.
    """
    found: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for id, confidence, line_facts in lines:
        found[id], facts = confidence, line_facts
    missing = [row for row in rows if str(row.id) not in found]
    if missing:
        raise JudgingError(
            f"{path}: {len(missing)} of {len(rows)} rows have no score, the first is id "
            f"{missing[0].id!r}; score the same rows with: pinocchio score ROWS --brief -o SCORES"
        )
    known: dict[object, Tags] = {tags: tags for tags in get_args(Tags)}
    calibrator = str(facts.get("calibrator") or "")
    return Scores(
        name or calibrator or path.stem,
        known.get(str(facts.get("tags")), "served"),
        np.array([found[str(row.id)] for row in rows]),
        calibrator,
    )


def read_kinds(path: Path, rows: Sequence[Row], name: str | None = None) -> list[Scores]:
    """Return what `score_kinds` returns from a file of scores: replies alone, then with others.

    The second is missing if no number is based on other replies. `name` replaces the calibrator's.
    Raises as `read_scores`, and JudgingError where the number without others is missing.
    """
    lines = list(_scored_lines(path))
    whole = _scores_of(path, lines, rows, name)
    wanted, numbers = {str(row.id) for row in rows}, dict[str, tuple[float, float | None]]()
    alone, opinion_name = whole.name, ""
    for identity, confidence, facts in lines:
        calibrator, before = str(facts.get("calibrator") or ""), None
        if identity not in wanted:
            continue
        if knows_others_of(calibrator):
            before = _number_alone(path, identity, facts)
            opinion_name = f"{name}, knowing others" if name else calibrator
        elif not name and calibrator:
            alone = calibrator
        numbers[identity] = confidence, before
    if not opinion_name:
        return [whole]
    if not name:
        alone = without_others(alone)
    return _kinds([numbers[str(row.id)] for row in rows], whole.tags, alone, opinion_name)


def _number_alone(path: Path, identity: str, facts: Mapping[str, Any]) -> float:
    """Return `alone` of a line's values `facts`, the number without other replies.

    Raises JudgingError where it is missing or no probability.
    """
    if not _is_probability(alone := facts.get("alone")):
        raise JudgingError(f"{path}: id {identity!r} lacks `alone`, its own number")
    return float(alone)


def read_one_kind(
    path: Path, rows: Sequence[Row], *, knows_others: bool
) -> tuple[list[Row], Scores]:
    """Return the rows for which a file has a number of one kind, and these numbers.

    With `knows_others` this is the number based on other replies, for rows that have one. Otherwise
    it is the number of each reply alone. Raises as `read_scores`, and JudgingError where there is
    no such number or where numbers are of several calibrators, since a fit is for one.
    """
    lines = list(_scored_lines(path))
    whole = _scores_of(path, lines, rows)  # raises for missing rows
    numbers: dict[str, tuple[float, str]] = {}
    for identity, confidence, facts in lines:
        name = str(facts.get("calibrator") or "")
        knows = knows_others_of(name)
        if knows and not knows_others:
            confidence, name = _number_alone(path, identity, facts), without_others(name)
        if knows or not knows_others:
            numbers[identity] = confidence, name
    kept = [row for row in rows if str(row.id) in numbers]
    names = sorted({numbers[str(row.id)][1] for row in kept})
    if not kept:
        raise JudgingError(f"{path}: no number knows what others replied")
    if len(names) > 1:
        raise JudgingError(f"{path}: a recalibration is for one calibrator, not {', '.join(names)}")
    confidences = np.array([numbers[str(row.id)][0] for row in kept])
    name = names[0] or whole.name
    return kept, replace(whole, name=name, confidence=confidences, calibrator=names[0])


def read_with_provenance(path: Path, rows: Sequence[Row]) -> list[tuple[float, str]]:
    """Return each row's number and the name of the calibrator that gave it.

    Raises as `read_scores`, and JudgingError for lines without that name and for numbers that
    signals have moved.
    """
    lines = list(_scored_lines(path))
    _scores_of(path, lines, rows)  # raises for missing rows
    found = {identity: (number, facts) for identity, number, facts in lines}
    numbers = []
    for row in rows:
        number, facts = found[str(row.id)]
        name = str(facts.get("calibrator") or "")
        if not name or knows_signals(name):
            raise JudgingError(
                f"{path}: id {row.id!r} lacks the name of what gave its number without signals; "
                "score the rows again: pinocchio score ROWS --brief -o SCORES"
            )
        numbers.append((number, name))
    return numbers


def _scored_lines(path: Path) -> Iterator[ScoredLine]:
    """Yield each line of a file of scores as id, number and all its values.

    Blank lines are skipped. Raises RowError for an unusable line and for two different scores of
    one id, and OSError.
    """
    found: dict[str, float] = {}
    with open_lines(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                identity, confidence, facts = _parse_score(line)
            except ValueError as error:
                raise RowError(str(path), number, str(error)) from error
            if found.setdefault(identity, confidence) != confidence:
                raise RowError(str(path), number, f"a second score for id {identity!r}")
            yield identity, confidence, facts


def _is_probability(number: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number from 0 to 1, and no bool."""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and 0 <= number <= 1


def _parse_score(line: bytes) -> tuple[str, float, dict[str, Any]]:
    """Parse a scored line to its row's id, its confidence (or score), and all its values.

    Raises ValueError for a line without an id or with a wrong number.
    """
    try:
        values = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(values, dict) or values.get("id") is None:
        raise ValueError("a score needs the 'id' of its row; `pinocchio score --brief` writes it")
    key = "confidence" if values.get("confidence") is not None else "score"
    number = values.get(key)
    if not _is_probability(number):
        raise ValueError(f"{key!r} must be a number from 0 to 1, not {number!r}")
    return str(values["id"]), float(number), values


def write_scores(path: Path, rows: Sequence[Row], scores: Scores) -> None:
    """Write scores, one for each row, to a file that `read_scores` reads; it is replaced."""
    lines = [
        json.dumps(
            {
                "id": row.id,
                "confidence": round(float(confidence), 6),
                "calibrator": scores.name,
                "tags": scores.tags,
            }
        )
        for row, confidence in zip(rows, scores.confidence, strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
