"""From files of labelled rows to token rows: choose, split by question, tokenize once."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from calibrator.errors import RowError, TrainingError
from calibrator.layout import Layout, TokenRow, assemble, encode, tag_text
from calibrator.rows import Row, read_rows

NON_COMMERCIAL = "__nc"  # such files are never trained on
ENCODE_CHUNK = 2_000


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled row as token ids; `target` is P(correct), 0 or 1 but for outliers."""

    question: list[int]
    answer: list[int]
    source_model: str | None
    benchmark: str | None
    target: float


def is_trainable(path: Path) -> bool:
    return NON_COMMERCIAL not in path.name


def load_labelled(paths: Sequence[Path]) -> tuple[list[Row], list[RowError]]:
    """All labelled rows of the files, and what was wrong with the others."""
    rows: list[Row] = []
    errors: list[RowError] = []
    for path in paths:
        for line, row in read_rows(path):
            if isinstance(row, RowError):
                errors.append(row)
            elif row.correct is None:
                errors.append(RowError(str(path), line, "'correct' is missing"))
            else:
                rows.append(row)
    if not rows:
        raise TrainingError(f"no labelled row in {', '.join(map(str, paths)) or 'no file'}")
    return rows, errors


def share_of(text: str) -> float:
    """A number in [0, 1) that depends on the text alone; splits stay the same for ever."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def split_by_question(rows: Sequence[Row], validation_share: float) -> tuple[list[Row], list[Row]]:
    """All responses to a question land on the same side (paper D04)."""
    sides: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        sides[share_of(row.question_id) < validation_share].append(row)
    return sides


def balance(rows: Sequence[Row], total: int, power: float, rng: random.Random) -> list[Row]:
    """About `total` rows, each benchmark in proportion to (its rows) ** power.

    Three sources hold half of the rows; a power below 1 keeps them from drowning the others.
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
    """Which rows of the files are trained on; the same values choose the same rows."""

    rows: int = 45_000  # training rows, balanced by benchmark
    balance_power: float = 0.7
    validation_share: float = 0.05  # of the questions
    seed: int = 20_261_121


def select_rows(paths: Sequence[Path], selection: Selection) -> tuple[list[Row], list[Row]]:
    """The rows to train on, and those of the validation questions; raises TrainingError."""
    files = sorted((path for path in paths if is_trainable(path)), key=lambda path: path.name)
    if paths and not files:
        raise TrainingError(f"every file is marked {NON_COMMERCIAL} and never trained on")
    rows, _ = load_labelled(files)
    train, validation = split_by_question(rows, selection.validation_share)
    if not train:
        raise TrainingError("too few questions: all of them fell to validation")
    rng = random.Random(selection.seed)
    return balance(train, selection.rows, selection.balance_power, rng), validation


def tokenize(rows: Sequence[Row], tokenizer: Tokenizer, layout: Layout) -> list[Example]:
    """Token ids of every row; longer texts than any layout keeps are cut to their ends."""
    examples: list[Example] = []
    for start in range(0, len(rows), ENCODE_CHUNK):
        chunk = rows[start : start + ENCODE_CHUNK]
        questions = encode(tokenizer, [row.question for row in chunk], layout)
        answers = encode(tokenizer, [row.answer for row in chunk], layout)
        for row, question, answer in zip(chunk, questions, answers, strict=True):
            model = row.model.lower() if row.model else None
            examples.append(
                Example(question, answer, model, row.benchmark, float(row.correct or 0))
            )
    return examples


class TagEncoder:
    """Tokens of the tag lines, cached: a few thousand combinations at the most."""

    def __init__(self, tokenizer: Tokenizer, layout: Layout) -> None:
        self._tokenizer, self._layout = tokenizer, layout
        self._cache: dict[tuple[str | None, str | None], list[int]] = {}

    def __call__(self, benchmark: str | None, source_model: str | None) -> list[int]:
        key = (benchmark, source_model)
        if key not in self._cache:
            self._cache[key] = encode(self._tokenizer, [tag_text(*key)], self._layout)[0]
        return self._cache[key]


@dataclass(frozen=True, slots=True)
class Batch:
    rows: list[TokenRow]
    targets: list[float]


def batches(
    examples: Sequence[Example],
    tags: TagEncoder,
    layout: Layout,
    *,
    tag_dropout: float,
    token_budget: int,
    rng: random.Random,
) -> Iterator[Batch]:
    """One epoch in random order; rows of similar length share a batch of at most `token_budget`.

    Each tag is dropped on its own with probability `tag_dropout`.
    """
    order = list(range(len(examples)))
    rng.shuffle(order)
    made: list[tuple[TokenRow, float]] = []
    for i in order:
        example = examples[i]
        benchmark = None if rng.random() < tag_dropout else example.benchmark
        model = None if rng.random() < tag_dropout else example.source_model
        made.append(
            (
                assemble(tags(benchmark, model), example.question, example.answer, layout),
                example.target,
            )
        )
    for start in range(0, len(made), 2_048):
        group = sorted(made[start : start + 2_048], key=lambda pair: len(pair[0].ids))
        cut = list(_cut(group, token_budget))
        rng.shuffle(cut)
        yield from cut


def _cut(group: Sequence[tuple[TokenRow, float]], token_budget: int) -> Iterator[Batch]:
    """Cuts rows, sorted by length, where one more would exceed the budget after padding."""
    rows: list[TokenRow] = []
    targets: list[float] = []
    for row, target in group:
        if rows and len(row.ids) * (len(rows) + 1) > token_budget:
            yield Batch(rows, targets)
            rows, targets = [], []
        rows.append(row)
        targets.append(target)
    if rows:
        yield Batch(rows, targets)
