"""Selection of labelled rows for training and for validation, split by question.

`copies_in` finds what misleads an evaluation. Rows that repeat each other make intervals over
replies too narrow, because they are not independent evidence. If the same reply is labelled both
right and wrong, one of the labels is an error that no calibrator can rank.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from calibrator.errors import RowError, TrainingError
from calibrator.rows.files import ROW_FORM, SAMPLE, missing_field
from calibrator.rows.rows import ImageUse, Row, read_rows

NON_COMMERCIAL = "__nc"  # the mark of files that are never trained on
COPY_CHARACTERS = 300  # letters and digits; questions that begin with the same ones are copies
TELLING = 30  # letters and digits; a shorter question, such as a formula, is compared in full
NAMED_ROWS = 3  # rows named for each fault
MOST_REASONS = 3  # reasons shown for files without a usable row

_Key: TypeAlias = "tuple[str, str]"  # a question and a reply to it


def is_trainable(path: Path) -> bool:
    """Return whether a file may be trained on: its name lacks `__nc`, for non-commercial."""
    return NON_COMMERCIAL not in path.name


def load_labelled(
    paths: Sequence[Path], images: ImageUse = "refuse"
) -> tuple[list[Row], list[RowError]]:
    """Return all labelled rows of the files, and the errors of the other lines.

    `images` is as in `parse_row`; a row without a label is an error. Raises TrainingError where
    there is no labelled row, and OSError.
    """
    rows: list[Row] = []
    errors: list[RowError] = []
    for path in paths:
        for line, row in read_rows(path, images):
            if isinstance(row, RowError):
                errors.append(row)
            elif row.correct is None:
                errors.append(RowError(str(path), line, missing_field("correct", row.raw)))
            else:
                rows.append(row)
    if not rows:
        named = ", ".join(map(str, paths)) or "no file"
        raise TrainingError(
            f"no labelled row in {named}{_reasons(errors)}; a row is {ROW_FORM}, a sample {SAMPLE}"
        )
    return rows, errors


def bad_row_sentences(errors: Sequence[RowError], total: int) -> Iterator[str]:
    """Yield sentences on the rows that could not be used, of `total` rows; nothing without any.

    Files come in the order in which they were read, and lines in theirs. Of many rows with the same
    fault the first `NAMED_ROWS` are named, and the others counted.
    """
    counts = Counter(error.message for error in errors)
    named: Counter[str] = Counter()
    files = {error.source: place for place, error in reversed([*enumerate(errors)])}
    for error in sorted(errors, key=lambda each: (files[each.source], each.line)):
        named[error.message] += 1
        if named[error.message] <= NAMED_ROWS:
            yield str(error)
        elif named[error.message] == counts[error.message]:
            others = counts[error.message] - NAMED_ROWS
            rows = "row has" if others == 1 else "rows have"
            yield f"... and {others:,} more {rows} the same fault: {error.message}"
    if errors:
        yield f"pinocchio: {len(errors):,} of {total:,} rows could not be used"


def _reasons(errors: Sequence[RowError]) -> str:
    """Return the first error of each kind as `: A; B`, at most `MOST_REASONS`, or "".

    The number of the others follows.
    """
    firsts = {error.message: error for error in reversed(errors)}
    sentences = [str(error) for error in reversed(firsts.values())][:MOST_REASONS]
    if not sentences:
        return ""
    others = len(errors) - len(sentences)
    return f": {'; '.join(sentences)}" + (f"; and {others} more" if others else "")


def share_of(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text, so that splits never change.

    It is spread evenly, from a SHA-256.
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def without_copies(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, in order, with one question id for all copies of a question.

    It is the least of their ids; changed rows are copies. Benchmarks borrow questions from each
    other, and a model that learned one copy knows the answer to the next. Case, spaces and
    punctuation make no difference.
    """
    least: dict[str, str] = {}  # for an id, a lesser or equal one of the same question

    def least_of(id: str) -> str:
        """Return the least id known to name the same question."""
        while (less := least.setdefault(id, id)) != id:
            id = less
        return id

    first_ids: dict[str, str] = {}
    for row in rows:
        first = first_ids.setdefault(_copy_key(row.question), row.question_id)
        one, other = sorted((least_of(first), least_of(row.question_id)))
        least[other] = one
    ids = [least_of(row.question_id) for row in rows]
    return [
        row if row.question_id == id else replace(row, question_id=id)
        for row, id in zip(rows, ids, strict=True)
    ]


def _copy_key(question: str) -> str:
    """Return a key that all copies of a question share.

    It is made of the first `COPY_CHARACTERS` letters and digits, or of the whole text if it has
    fewer than `TELLING`.
    """
    letters = "".join(filter(str.isalnum, question.lower()))
    return letters[:COPY_CHARACTERS] if len(letters) >= TELLING else "".join(question.split())


def split_by_question(rows: Sequence[Row], validation_share: float) -> tuple[list[Row], list[Row]]:
    """Return the rows for training and for validation, by a hash of the question's id (D04).

    All replies to a question are on one side; about `validation_share` of the questions are
    validation.
    """
    sides: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        sides[share_of(row.question_id) < validation_share].append(row)
    return sides


def balance(rows: Sequence[Row], total: int, power: float, rng: random.Random) -> list[Row]:
    """Return about `total` random rows, each benchmark in proportion to (its rows) ** power.

    A benchmark with too few rows gives all it has, so there may be fewer.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.benchmark or ""].append(row)
    wanted = {name: len(group) ** power for name, group in groups.items()}
    scale = total / sum(wanted.values())
    chosen: list[Row] = []
    for name, group in sorted(groups.items()):
        chosen += rng.sample(group, min(len(group), round(wanted[name] * scale)))
    return chosen


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of the files to train on; the same values choose the same rows."""

    rows: int = 0  # number of rows, balanced by benchmark; 0 for all
    balance_power: float = 0.85
    validation_share: float = 0.05  # share of the questions
    seed: int = 20_261_121


def select_rows(
    paths: Sequence[Path], selection: Selection, images: ImageUse = "refuse"
) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on, and those of the validation questions.

    Copies of a question get one id and so are on one side. Unusable rows are left out, and with
    `refuse` also those whose question has images. Raises TrainingError where no row is left to
    train on or all files are non-commercial.
    """
    files = sorted((path for path in paths if is_trainable(path)), key=lambda path: path.name)
    if paths and not files:
        raise TrainingError(f"every file is marked {NON_COMMERCIAL} and never trained on")
    rows, _ = load_labelled(files, images)
    train, validation = split_by_question(without_copies(rows), selection.validation_share)
    if not train:
        raise TrainingError("too few questions: all of them fell to validation")
    if selection.rows:
        rng = random.Random(selection.seed)
        train = balance(train, selection.rows, selection.balance_power, rng)
    return train, validation


@dataclass(frozen=True, slots=True)
class Copies:
    """The number of rows, of those that repeat another one, and of those that contradict another.

    `repeated` counts rows beyond the first with the same question, reply and model.
    `contradicting` counts rows whose question and reply have both labels; `example` is one of them.
    """

    rows: int
    repeated: int
    contradicting: int
    example: Row | None = None

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for a person on repeated and on contradicting rows, if there are any."""
        if self.repeated:
            yield (
                f"{self.repeated:,} of {self.rows:,} rows repeat another one (same question, reply "
                "and model): intervals over replies are too narrow, those over questions are right"
            )
        if self.example is not None:
            at = f", such as {self.example.source}:{self.example.line}" if self.example.line else ""
            yield (
                f"{self.contradicting:,} rows contradict each other: the same reply to the same "
                f"question is labelled both correct and wrong{at}"
            )


def copies_in(rows: Sequence[Row]) -> Copies:
    """Count rows that repeat or contradict another labelled row.

    Rows are alike if question and reply are the same but for white space around them.
    """
    seen: set[tuple[_Key, str | None]] = set()
    labels: dict[_Key, set[int | None]] = {}
    keys: list[_Key] = [(row.question.strip(), row.answer.strip()) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        seen.add((key, row.model))
        labels.setdefault(key, set()).add(row.correct)
    pairs = zip(keys, rows, strict=True)
    both = [row for key, row in pairs if len(labels[key] - {None}) > 1]
    return Copies(len(rows), len(rows) - len(seen), len(both), both[0] if both else None)
