"""The composition of labelled rows, before a calibrator is trained or judged on them (C07-C11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from calibrator.rows.groups import NONE
from calibrator.rows.rows import Row
from calibrator.rows.selection import without_copies
from calibrator.scorer import known_name

LOWEST, HIGHEST = 0.20, 0.80  # accuracy of a benchmark that separates answers (C07, V24)


@dataclass(frozen=True, slots=True)
class BenchmarkSurvey:
    """The rows of one benchmark, or all of them."""

    benchmark: str
    domains: tuple[str, ...]  # C08, the most frequent first
    rows: int
    questions: int
    models: int
    image_rows: int  # C09
    accuracy: float
    answer_formats: tuple[str, ...] = ()  # C09, from the rows that name it, the most frequent first

    @property
    def is_in_band(self) -> bool:
        """Whether models are neither nearly always nor almost never right (C07)."""
        return LOWEST <= self.accuracy <= HIGHEST


def survey(rows: Sequence[Row]) -> list[BenchmarkSurvey]:
    """Return the counts of each benchmark, sorted by name, and last of all rows, named `all`.

    Rows must be labelled, and there must be at least one. Rows without a benchmark are one of
    their own.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.benchmark or NONE].append(row)
    return [
        *(_survey_benchmark(name, groups[name]) for name in sorted(groups)),
        _survey_benchmark("all", rows),
    ]


def _survey_benchmark(name: str, rows: Sequence[Row]) -> BenchmarkSurvey:
    """Count the rows, questions, models and rows with images, and measure the accuracy (0 to 1).

    `rows` must not be empty. Domains and formats come with the most frequent first.
    """
    domains = Counter(row.domain for row in rows if row.domain)
    formats = Counter(str(row.raw["answer_format"]) for row in rows if row.raw.get("answer_format"))
    return BenchmarkSurvey(
        name,
        tuple(domain for domain, _ in domains.most_common()),
        len(rows),
        len({row.question_id for row in rows}),
        len({row.model for row in rows if row.model}),
        sum(bool(row.images) or row.lacks_images for row in rows),
        sum(row.correct or 0 for row in rows) / len(rows),
        tuple(format for format, _ in formats.most_common()),
    )


def trained_models(rows: Sequence[Row], known: Collection[str]) -> dict[str, int]:
    """Return the models of these rows that are in `known`, with their numbers of rows (C11).

    `known` are the models of the calibrator's training, in any case. A transfer result must
    have none, because its figures would include models seen in training.
    """
    lower = {name.lower() for name in known}
    found = Counter(row.model for row in rows if row.model and known_name(row.model, lower))
    return dict(sorted(found.items()))


def shared_questions(rows: Sequence[Row], train: Sequence[Row]) -> int:
    """Return how many questions are in both lists (D04), also as copies under another id."""
    ids = [row.question_id for row in without_copies([*rows, *train])]
    return len(set(ids[: len(rows)]) & set(ids[len(rows) :]))
