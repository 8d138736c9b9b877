"""The data of all tables: labelled rows and the calibrator's confidences.

Everything is computed once, when the first table needs it. Scores are kept on disk, keyed by their
inputs (`rows/kept_scores.py`), so an interrupted report computes only the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import length_baseline, with_stated_confidence
from calibrator.lab.judging.baselines.stated import without_stated
from calibrator.metrics.intervals import RESAMPLES, Interval, auroc_interval
from calibrator.metrics.metrics import Floats, Ints
from calibrator.metrics.workflows import Outcome
from calibrator.rows.results import Method
from calibrator.rows.rows import Row, Tags, labels_of, question_numbers
from calibrator.rows.scores import score_items, score_rows
from calibrator.scorer import Item, Scorer

SEED = 20_261_125  # of the halves
FEWEST = 100  # rows that a group needs for its own line


class ReportBar(Protocol):
    """A progress bar."""

    def advance(self, count: int = 1) -> None: ...
    def say(self, sentence: str) -> None: ...
    def update(self, done: int, total: int | None) -> None: ...


Watch = Callable[[str, int], AbstractContextManager[ReportBar]]


class LacksError(JudgingError):
    """These rows cannot give a table; the message names what is missing."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The amount of work that tables may take; the defaults are the paper's."""

    resamples: int = RESAMPLES
    permutations: int = 10_000
    probed: int = 2_000
    swapped: int = 15_000


@dataclass
class ScoredRows:
    """Labelled rows with their confidences; `watch` shows the progress of long work.

    `train` returns the training rows, if any, which only tables that retrain read;
    `fit` is the kind of calibrator that these train: "tfidf" or "embedded".
    """

    rows: Sequence[Row]
    scorer: Scorer
    watch: Watch
    train: Callable[[], Sequence[Row]] = list
    extent: Extent = field(default_factory=Extent)
    trained_models: frozenset[str] = frozenset()  # models that the calibrator knows by name
    fit: str = "tfidf"
    device: str = "auto"
    folder: Path = Path()
    _served: dict[Tags, Floats] = field(default_factory=dict)

    @cached_property
    def labels(self) -> Ints:
        """The labels of the rows, 0 or 1, (n,)."""
        return labels_of(self.rows)

    @cached_property
    def questions(self) -> Ints:
        """The number of each row's question, (n,)."""
        return question_numbers(self.rows)

    def confidence(self, tags: Tags = "served") -> Floats:
        """Return P(correct) of every row, (n,); scored once for each value of `tags`, then kept.

        `tags` says which names the calibrator sees: "served" (the model alone), "all" (also the
        benchmark), or "none". Progress is shown while it scores.
        """
        if tags not in self._served:
            with self.watch(f"scoring, names {tags}", len(self.rows)) as bar:
                found = score_rows(self.scorer, self.rows, tags, bar.advance)
            self._served[tags] = found.confidence
        return self._served[tags]

    def score(self, title: str, items: Sequence[Item]) -> Floats:
        """Return P(correct) of other items, such as changed rows, (n,).

        `title` heads the progress bar.
        """
        with self.watch(title, len(items)) as bar:
            found = score_items(self.scorer, items, bar.advance)
        return np.array([each.confidence for each in found])

    @cached_property
    def halves(self) -> tuple[Ints, Ints]:
        """(fitted, judged): positions of the rows to fit baselines on, and of those to judge (D09).

        No question is in both.
        """
        return halves(self.labels, self.questions)

    @cached_property
    def length(self) -> Method:
        """The length baseline (I04), fitted on one half of the rows.

        Its confidences are those of the other half, which is judged.
        """
        fitted, judged = self.halves
        found = length_baseline(self.rows_at(fitted), self.rows_at(judged))
        return Method("length", found, None, True)

    def rows_at(self, places: Ints) -> list[Row]:
        """Return the rows at these positions."""
        return [self.rows[i] for i in places]

    @cached_property
    def stated_rows(self) -> ScoredRows:
        """The rows that state a confidence, without that text in the reply, as new `ScoredRows`.

        So the calibrator does not see it (I01). Raises LacksError for fewer than `FEWEST` such
        rows, or if all have one label.
        """
        rows = with_stated_confidence(self.rows)
        if len(rows) < FEWEST or len({row.correct for row in rows}) < 2:
            raise LacksError(
                f"{len(rows)} rows state a confidence, {FEWEST} with both labels are needed; "
                "`pinocchio elicit --stated` asks models for theirs"
            )
        freed = [replace(row, answer=without_stated(row.answer)) for row in rows]
        return replace(self, rows=freed, _served={})

    def interval(self, y: Ints, p: Floats) -> Interval:
        """Return the AUROC of labels `y` and confidences `p`, both (n,), with a BCa interval (H02).

        The interval is the paper's, over replies.
        """
        return auroc_interval(y, p, resamples=self.extent.resamples)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Each row's confidence, label, model (or "") and question, as the workflows read them."""
        return [
            Outcome(float(p), bool(row.correct), row.model or "", row.question_id)
            for row, p in zip(self.rows, self.confidence(), strict=True)
        ]

    def groups(self, key: Callable[[Row], str | None]) -> list[tuple[str, Ints]]:
        """Return (name, positions of its rows) of each group, the largest group first.

        `key` returns a row's group, or None to leave the row out. A group needs both labels and
        `FEWEST` rows.
        """
        members: dict[str, list[int]] = {}
        for i, row in enumerate(self.rows):
            if (name := key(row)) is not None:
                members.setdefault(name, []).append(i)
        large = [
            (name, np.array(at))
            for name, at in members.items()
            if len(at) >= FEWEST and len({self.rows[i].correct for i in at}) == 2
        ]
        return sorted(large, key=lambda each: (-len(each[1]), each[0]))


def halves(correct: ArrayLike, questions: ArrayLike, seed: int = SEED) -> tuple[Ints, Ints]:
    """Return the positions of the rows to fit post-hoc baselines on and of those to judge (I17).

    Both lists ascend. `correct` (n,) are labels 0 or 1, `questions` (n,) comparable values; rows of
    one question are in one half (D04, D09). The result depends only on the arguments. Questions are
    dealt out in the order of their size and their share of right replies, with ties broken at
    random, so that both halves have nearly the same number of rows and of right rows.
    """
    y = np.asarray(correct, dtype=np.float64)
    _, group = np.unique(np.asarray(questions), return_inverse=True)
    size = np.bincount(group)
    share = np.bincount(group, weights=y) / size
    chance = np.random.default_rng(seed).random(len(size))
    order = np.lexsort((chance, share, size))
    is_fitted = np.empty(len(size), dtype=bool)
    # The pattern a, b, b, a keeps one half from getting the larger question of each pair.
    is_fitted[order] = np.isin(np.arange(len(size)) % 4, (0, 3))
    return np.flatnonzero(is_fitted[group]), np.flatnonzero(~is_fitted[group])
