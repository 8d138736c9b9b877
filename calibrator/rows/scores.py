"""Scores of many rows: computed by a scorer, or read from a file that `pinocchio score` wrote.

A file of scores is JSON lines with `id` and `confidence` (or `score`); `calibrator` and `tags`
say where the numbers come from. With it, rows are judged without scoring them again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from calibrator.errors import JudgingError, RowError
from calibrator.metrics.metrics import Floats
from calibrator.rows.files import json_line
from calibrator.rows.kept_scores import KeptScores
from calibrator.rows.rows import ImageUse, Row, Tags, open_lines
from calibrator.scorer import Item, Score, Scorer, reads_images

BATCH = 32
BATCH_CHARACTERS = 48_000


@dataclass(frozen=True, slots=True)
class Scores:
    """P(correct) of some rows, in their order; `calibrator` is who gave it, where that is known."""

    name: str
    tags: Tags
    confidence: Floats
    calibrator: str = ""


def image_use(scorer: Scorer, *, are_ignored: bool = False) -> ImageUse:
    """How rows with images are read for a scorer: with them, or not at all; without them where
    it looks at none and a person wants a score of the text alone."""
    if reads_images(scorer):
        return "read"
    return "ignore" if are_ignored else "refuse"


def score_items(
    scorer: Scorer, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None
) -> list[Score]:
    """Score many items, those of similar length together; `progress` hears how many are done.

    Batches come in chance order, always the same one: with the short ones first, the time that is
    left would seem shorter than it is. What is kept of an earlier run counts as done at once.
    """
    scores = scorer.known(items) if isinstance(scorer, KeptScores) else {}
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
    """What a scorer says of rows when it is told the names that `tags` allows."""
    found = score_items(scorer, [row.item(tags) for row in rows], progress)
    confidence = np.array([score.confidence for score in found])
    return Scores(scorer.name, tags, confidence, scorer.name)


def _size(item: Item) -> int:
    return len(item.question) + len(item.answer)


def _batches(order: Sequence[int], items: Sequence[Item]) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == BATCH or _size(items[i]) * (len(batch) + 1) > BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def scored_line(row: Row, found: Score, calibrator: str, tags: Tags, *, is_brief: bool) -> str:
    """The row as `pinocchio score` writes it; brief is the id alone, without the rest of it."""
    kept = {"id": row.id} if is_brief else row.raw
    if row.lacks_images:
        kept = kept | {"status": "truncated", "reason": "image"}
    facts: dict[str, Any] = {
        "score": round(found.score, 6),
        "confidence": round(found.confidence, 6),
    }
    if found.because:
        facts["because"] = list(found.because)
    if found.alone is not None:
        facts |= {"alone": round(found.alone, 6), "opinions": list(found.compared)}
    return json_line({**kept, **facts, "calibrator": calibrator, "tags": tags})


def read_scores(path: Path, rows: Sequence[Row], name: str | None = None) -> Scores:
    """The scores that a file has for these rows, found by their `id`.

    Lines of other rows are passed over. Raises RowError for a line that cannot be used, and
    JudgingError when the file has no score for a row.
    """
    found: dict[str, float] = {}
    facts: dict[str, Any] = {}
    with open_lines(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                identity, confidence, facts = _scored(line)
            except ValueError as error:
                raise RowError(str(path), number, str(error)) from error
            if found.setdefault(identity, confidence) != confidence:
                raise RowError(str(path), number, f"a second score for id {identity!r}")
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


def _scored(line: bytes) -> tuple[str, float, dict[str, Any]]:
    try:
        values = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(values, dict) or values.get("id") is None:
        raise ValueError("a score needs the 'id' of its row; `pinocchio score --brief` writes it")
    key = "confidence" if values.get("confidence") is not None else "score"
    number = values.get(key)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise ValueError(f"{key!r} must be a number from 0 to 1, not {number!r}")
    return str(values["id"]), float(number), values


def write_scores(path: Path, rows: Sequence[Row], scores: Scores) -> None:
    """A file that `read_scores` reads."""
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
