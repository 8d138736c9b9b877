"""Train and test files of labelled rows: benchmarks in the band, split by question, with a proof.

A benchmark that models nearly always or hardly ever solve cannot tell good answers from bad ones,
and is left out of both files (C07). All answers to a question, and to its copies under other ids,
are in one file (D04, D05). The proof compares the text of the questions, not their ids.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from calibrator.errors import JudgingError
from calibrator.lab.data.benchmarks.survey import HIGHEST, LOWEST, shared_questions
from calibrator.rows.rows import Row, parse_row
from calibrator.rows.selection import split_by_question, without_copies

Json = dict[str, Any]
TEST_SHARE: Final = 0.15  # share of the questions (D05)
BAND: Final = (LOWEST, HIGHEST)


@dataclass(frozen=True, slots=True)
class BenchmarkCounts:
    """The counts of one benchmark's rows; `accuracy` is the share of correct ones."""

    benchmark: str
    domain: str
    answer_format: str
    graded_by: str
    rows: int
    questions: int
    models: int
    accuracy: float
    refusals: int
    empty: int
    no_answer: int
    is_in_band: bool


@dataclass(frozen=True, slots=True)
class CollectedSplit:
    """The rows of both sides, the counts of each benchmark, and the proof of disjoint questions."""

    train: list[Json]
    test: list[Json]
    counted: list[BenchmarkCounts]
    proof: Json

    @property
    def report(self) -> Json:
        """The part that goes into a report: benchmarks and proof."""
        return {"benchmarks": [asdict(each) for each in self.counted], "split": self.proof}


def split_collected(
    raw: Sequence[Json], band: tuple[float, float] = BAND, test_share: float = TEST_SHARE
) -> CollectedSplit:
    """Split labelled rows by question into train and test rows, with counts and a proof.

    All benchmarks are counted; rows of those whose accuracy is outside `band` (lowest, highest)
    are left out. `test_share` is a share of the questions. Raises JudgingError if both sides
    share a question.
    """
    groups: dict[str, list[Json]] = defaultdict(list)
    for each in raw:
        groups[str(each["benchmark"])].append(each)
    counted = [_count_benchmark(name, groups[name], band) for name in sorted(groups)]
    is_in = {each.benchmark for each in counted if each.is_in_band}
    rows = [parse_row(each, "ignore") for each in raw if each["benchmark"] in is_in]
    train, test = split_by_question(without_copies(rows), 1 - test_share)[::-1]
    proof = _proof(train, test)
    if proof["shared_questions"]:
        raise JudgingError(f"{proof['shared_questions']} questions are on both sides")
    return CollectedSplit([row.raw for row in train], [row.raw for row in test], counted, proof)


def _proof(train: Sequence[Row], test: Sequence[Row]) -> Json:
    """Return each side's number of questions and SHA-256 digest, and the number of shared ones."""
    return {
        "train_questions": len({row.question_id for row in train}),
        "test_questions": len({row.question_id for row in test}),
        "train_sha256": _digest(row.question for row in train),
        "test_sha256": _digest(row.question for row in test),
        "shared_questions": shared_questions(train, test) if train and test else 0,
    }


def _digest(questions: Iterable[str]) -> str:
    """Return the SHA-256 of the different questions in sorted order, as hex."""
    text = "\0".join(sorted(set(questions)))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _count_benchmark(name: str, rows: Sequence[Json], band: tuple[float, float]) -> BenchmarkCounts:
    """Return the counts of one benchmark's rows, and whether its accuracy is within `band`."""
    accuracy = sum(row["correct"] for row in rows) / len(rows)
    reasons = Counter(row["why"] for row in rows)
    return BenchmarkCounts(
        benchmark=name,
        domain=_most_frequent(rows, "domain"),
        answer_format=_most_frequent(rows, "answer_format"),
        graded_by=_most_frequent(rows, "graded_by"),
        rows=len(rows),
        questions=len({row["question_id"] for row in rows}),
        models=len({row["model"] for row in rows}),
        accuracy=accuracy,
        refusals=reasons["refusal"],
        empty=reasons["empty"],
        no_answer=reasons["no_answer"],
        is_in_band=band[0] <= accuracy <= band[1],
    )


def _most_frequent(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return the most frequent value of a field, as `maths ..` if there are others too."""
    values = Counter(str(row.get(key) or "") for row in rows)
    first = values.most_common(1)[0][0]
    return first if len(values) == 1 else f"{first} .."
