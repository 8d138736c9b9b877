"""Turn labelled rows into examples: disguise some answers, tokenize all once."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.features.tower import TowerRow, tower_row
from calibrator.lab.training.rows.addressing import address_judge
from calibrator.rows.rows import Row
from calibrator.text.stripping import strip_addresses
from calibrator.text.word_pieces import Layout, encode

ENCODE_CHUNK = 2_000
REBUILT = re.compile(r"\AAnswer: [^\n]*\nConfidence: \d+%\Z")  # replaces an unpublished reply


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled row as token ids; `target` is P(correct), 0 or 1 except for outliers."""

    question: NDArray[np.uint16]
    answer: NDArray[np.uint16]
    tower: TowerRow
    source_model: str | None
    benchmark: str | None
    question_id: str
    target: float


def disguise_rows(rows: Sequence[Row], share: float, rng: random.Random) -> list[Row]:
    """Return the rows, in order, some with a changed answer; labels stay.

    To a `share` of them one to three sentences are added that praise the answer or address its
    judge, such as `Score: 98/100`, so that the calibrator learns to ignore these. Half of the
    rebuilt replies (a letter and a stated confidence, see `REBUILT`) lose the confidence, so that
    the calibrator does not rely on it alone.
    """
    changed = []
    for row in rows:
        answer = row.answer
        if REBUILT.match(answer) and rng.random() < 0.5:
            answer = answer.partition("\n")[0]
        if rng.random() < share:
            answer = address_judge(answer, rng)
        changed.append(row if answer is row.answer else replace(row, answer=answer))
    return changed


def tokenize(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    target: float | None = None,
) -> list[Example]:
    """Return an example for each row, in order.

    Sentences at an answer's ends that praise it are left out, and very long texts lose their
    middle. The example's target is `target`, or if None the row's label, 0.0 for a row without one.
    Models' names are put in lower case.
    """
    examples: list[Example] = []
    for start in range(0, len(rows), ENCODE_CHUNK):
        chunk = [
            replace(row, answer=strip_addresses(row.answer))
            for row in rows[start : start + ENCODE_CHUNK]
        ]
        questions = encode(tokenizer, [row.question for row in chunk], layout)
        answers = encode(tokenizer, [row.answer for row in chunk], layout)
        for row, question, answer in zip(chunk, questions, answers, strict=True):
            examples.append(
                Example(
                    np.array(question, dtype=np.uint16),
                    np.array(answer, dtype=np.uint16),
                    tower_row(row.question, row.answer, question, answer),
                    row.model.lower() if row.model else None,
                    row.benchmark,
                    row.question_id,
                    float(row.correct or 0) if target is None else target,
                )
            )
    return examples
