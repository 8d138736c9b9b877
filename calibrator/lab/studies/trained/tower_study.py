"""A study of tower and forest, to choose settings.

    python -m calibrator.lab.studies.trained.tower_study

The parts that would ship are fitted on training questions and judged on validation questions (as
served, with names), on model families that were left out (without names) and on benchmarks that
were left out, all at once or each alone. The figures of unseen models and benchmarks, and a table
in `ablations.md`, were made with it. Test files must not choose settings: `--judge` is only for
figures to report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from calibrator.features.forest import Forest
from calibrator.features.tower import TowerRow
from calibrator.lab.judging.baselines.tfidf import WordPairCounts
from calibrator.lab.studies.studies import FAMILIES as MAKERS
from calibrator.lab.studies.studies import MIN_JUDGED, family
from calibrator.lab.training.rows.examples import tokenize
from calibrator.lab.training.run import base_folder
from calibrator.lab.training.stages.forest import ForestConfig, ForestData, fit_forest
from calibrator.lab.training.stages.piece_vectors import piece_vectors
from calibrator.lab.training.stages.tower import (
    MIN_NAME_ROWS,
    TowerConfig,
    TowerData,
    fit_tower,
    tower_logits,
)
from calibrator.lab.training.tower_stage import tower_rows
from calibrator.metrics.rankings import measure_ranking
from calibrator.rows.rows import Row, Tags
from calibrator.rows.selection import is_trainable, load_labelled, share_of, without_copies
from calibrator.text.word_pieces import Layout, load_tokenizer

FAMILIES = ("claude", "gemma", "phi", "yi", "deepseek", "grok")
BENCHMARKS = (
    "BFCL-multiple", "EPOCH-Bench", "FinanceMath", "TokenBias",
    "CodeGen-small", "MATH-Vision", "TriviaQA", "GSM8K",
)  # fmt: skip
HELD_SHARE = 0.1  # share of questions held out
LEFT_OUT_SHARE = 0.5  # share of a left out benchmark's questions that are judged, to save time

Mask = NDArray[np.bool_]
Scores = NDArray[np.floating]
Group = tuple[Mask, bool]  # the rows to judge, and whether models' names are given
Method = Callable[[Mask, list[Group]], list[Scores]]  # chosen rows, groups -> scores


class Kind(StrEnum):
    """The kinds of groups that can be left out of training."""

    FAMILIES = "families"
    BENCHMARKS = "benchmarks"


def change_setting(config: TowerConfig, setting: str) -> TowerConfig:
    """Return the configuration with one value changed by `setting`, such as `members=2`.

    The value is converted to the type of the old one. Raises typer.BadParameter for an unknown
    name, ValueError for a value of another type.
    """
    name, _, value = setting.partition("=")
    kinds = {field.name: type(getattr(config, field.name)) for field in fields(config)}
    if name not in kinds:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(kinds)}")
    kind = kinds[name]
    return replace(config, **{name: value == "true" if kind is bool else kind(value)})


def main(
    files: list[Path],
    vary: Annotated[
        list[str] | None, typer.Option(help="name=value of TowerConfig; each is tried on its own.")
    ] = None,
    leave_out: Annotated[
        bool, typer.Option(help="Leave out six model families and eight benchmarks.")
    ] = False,
    each: Annotated[
        Kind | None,
        typer.Option(help="Instead: each of these alone; families are told by their makers."),
    ] = None,
    forest: Annotated[bool, typer.Option(help="With a forest beside the towers.")] = False,
    judge: Annotated[
        Path | None, typer.Option(help="Folder of files to judge on, in place of held questions.")
    ] = None,
    floor: Annotated[
        bool, typer.Option(help="TF-IDF with logistic regression on the same rows too.")
    ] = False,
    seed: int = 1,
) -> None:
    """Fit towers for each setting; print AUROC pooled, over benchmarks and within questions."""
    variants = {"as it ships": TowerConfig()}
    variants |= {setting: change_setting(TowerConfig(), setting) for setting in vary or ()}
    rows, _ = load_labelled([path for path in sorted(files) if is_trainable(path)])
    judged = load_labelled(sorted(judge.glob("*.jsonl*")))[0] if judge else []
    study = TowerStudy(rows, seed, ForestConfig() if forest else None, judged, floor)
    for setting, config in variants.items():
        typer.echo(setting)
        if each:
            study.each_alone(config, each)
        else:
            study.all_at_once(config, leave_out)


class TowerStudy:
    """Rows as the tower reads them, made once for all settings.

    With `judged` rows, all `rows` except those left out are fitted on, and none of them is judged.
    """

    def __init__(
        self,
        rows: list[Row],
        seed: int,
        forest: ForestConfig | None = None,
        judged: Sequence[Row] = (),
        floor: bool = False,
    ) -> None:
        """Read all rows into features, `rows` before `judged`; nothing is fitted yet.

        `forest` adds a forest beside the towers, `floor` counts words for TF-IDF.
        """
        fitted, rows = len(rows), [*rows, *judged]
        self.rows, self.seed, self.forest = rows, seed, forest
        self.read = read_rows_for_tower(rows)
        self.vectors = piece_vectors(base_folder()) if forest else None
        self.words = WordPairCounts(rows) if floor else None
        self.labels = np.array([row.correct or 0 for row in rows], dtype=np.float32)
        question_ids = [row.question_id for row in without_copies(rows)]
        self.share = np.array([share_of(id) for id in question_ids])
        if judged:
            self.share = np.repeat([1.0, 0.0], [fitted, len(judged)])
        self.models = np.array([(row.model or "").lower() for row in rows])
        self.benchmarks = np.array([row.benchmark or "" for row in rows])
        self.benchmark_numbers = np.unique(self.benchmarks, return_inverse=True)[1]
        self.questions = np.unique(question_ids, return_inverse=True)[1]

    def all_at_once(self, config: TowerConfig, leave_out: bool) -> None:
        """Judge towers on known questions, and on what `leave_out` leaves out of their training.

        That is some model families and benchmarks. One fit saw none of the judged rows. A line is
        printed for each kind of rows and method; kinds without rows are skipped.
        """
        of_family = np.array([name.startswith(FAMILIES) for name in self.models]) & leave_out
        of_benchmark = np.isin(self.benchmarks, BENCHMARKS) & leave_out
        known, held = ~of_family & ~of_benchmark, self.share < HELD_SHARE
        groups: dict[str, Group] = {
            "known": (held & known, True),
            "known, no names": (held & known, False),
            "families left out": (held & of_family & ~of_benchmark, False),
            "benchmarks left out": (
                (self.share < LEFT_OUT_SHARE) & of_benchmark & ~of_family,
                True,
            ),
        }
        groups = {name: group for name, group in groups.items() if group[0].any()}
        for method, scores in self.methods(config).items():
            found = scores(~held & known, list(groups.values()))
            for (name, (mask, _)), logits in zip(groups.items(), found, strict=True):
                self.print_line(name + method, np.flatnonzero(mask), logits)

    def each_alone(self, config: TowerConfig, kind: Kind) -> None:
        """Leave out each maker's models, or each benchmark, alone, and print each result.

        Last come all pooled. Makers are judged on held-out questions, and those of fewer than
        `MIN_JUDGED` replies there are left in. Raises typer.BadParameter if nothing can be judged.
        """
        if kind is Kind.FAMILIES:
            makers = np.array([family(name) or "" for name in self.models])
            judged = self.share < HELD_SHARE
            of = {name: makers == name for name in MAKERS}
            of = {
                name: of_maker
                for name, of_maker in of.items()
                if (of_maker & judged).sum() >= MIN_JUDGED
            }
        else:
            of = {name: self.benchmarks == name for name in BENCHMARKS}
            judged = self.share < LEFT_OUT_SHARE
        methods = self.methods(config)
        at: list[NDArray[np.int64]] = []
        logits: dict[str, list[Scores]] = {method: [] for method in methods}
        for name, left_out in of.items():
            mask, chosen = left_out & judged, (self.share >= HELD_SHARE) & ~left_out
            if not mask.any():
                continue
            at.append(np.flatnonzero(mask))
            for method, scores in methods.items():
                logits[method] += scores(chosen, [(mask, True)])
                self.print_line(name + method, at[-1], logits[method][-1])
        if not at:
            raise typer.BadParameter(f"there are no {kind} to leave out and judge")
        for method, found in logits.items():
            self.print_line(f"all {kind}{method}", np.concatenate(at), np.concatenate(found))

    def methods(self, config: TowerConfig) -> dict[str, Method]:
        """Return the scoring functions by the words to print after the rows' name.

        The words are "" for the towers and `, TF-IDF`, which is there only if the study was made
        with `floor`.
        """
        towers = partial(self.scores, config)
        return {"": towers} if self.words is None else {"": towers, ", TF-IDF": self.word_scores}

    def word_scores(self, chosen: Mask, groups: list[Group]) -> list[Scores]:
        """Fit TF-IDF on the chosen rows, and return an array of logits for each group's rows.

        A group is (mask of its rows, whether models' names are given).
        """
        assert self.words is not None
        found: list[Scores] = []
        for mask, is_named in groups:
            tags: Tags = "served" if is_named else "none"
            p = self.words.scores(np.flatnonzero(chosen), np.flatnonzero(mask), tags)
            found.append(np.log(p) - np.log1p(-p))
        return found

    def scores(self, config: TowerConfig, chosen: Mask, groups: list[Group]) -> list[Scores]:
        """Fit towers on the chosen rows, and return an array of logits for each group's rows.

        They are the mean of the towers, joined with the forest where there is one. A group is (mask
        of its rows, whether models' names are given).
        """
        names = name_numbers(self.models, chosen)
        data = TowerData(self.read, names, self.labels, np.zeros(len(self.rows), dtype=np.int64))
        sums = [np.zeros(int(mask.sum()), dtype=np.float32) for mask, _ in groups]
        for number in range(config.members):
            model = fit_tower(
                data, np.flatnonzero(chosen), int(names.max()) + 1, config, self.seed + number
            )
            for total, (mask, is_named) in zip(sums, groups, strict=True):
                total += tower_logits(model, data, np.flatnonzero(mask), is_named) / config.members
        if self.forest is not None:
            found = self._forest(self.forest, np.flatnonzero(chosen), names)
            for at, (mask, is_named) in enumerate(groups):
                rows = [self.read[i] for i in np.flatnonzero(mask)]
                joined = found.join_odds(sums[at].astype(np.float64), rows, names[mask] * is_named)
                sums[at] = joined.astype(np.float32)
        return [*sums]

    def _forest(
        self, config: ForestConfig, at: NDArray[np.int64], names: NDArray[np.int64]
    ) -> Forest:
        """Return a forest fitted on the rows at the positions `at`, with their models' numbers.

        `names` has the number of every row's model, (n,), as `name_numbers` returns it.
        """
        rows = [self.read[i] for i in at]
        benchmarks, questions = self.benchmark_numbers[at], self.questions[at]
        data = ForestData(rows, names[at], benchmarks, questions, self.labels[at])
        assert self.vectors is not None
        fitted = fit_forest(data, int(names.max()) + 1, self.vectors, config, self.seed)
        return Forest(fitted)

    def print_line(self, name: str, at: NDArray[np.int64], scores: Scores) -> None:
        """Print a line for the rows at `at`: AUROC pooled, over benchmarks and within questions.

        `name` begins the line; `scores` are those rows' logits.
        """
        question_ids = [self.rows[i].question_id for i in at]
        found = measure_ranking(self.labels[at], scores, self.benchmarks[at].tolist(), question_ids)
        figures = "  ".join(f"{figure:.4f}" for figure in found.figures)
        typer.echo(f"  {name:28} {len(at):6} rows  {figures}")


def read_rows_for_tower(rows: list[Row]) -> list[TowerRow]:
    """Return the rows' features as the tower reads them, from at most 192 tokens of each."""
    tokenizer = load_tokenizer(base_folder())
    return tower_rows(tokenize(rows, tokenizer, Layout(max_tokens=192)))


def name_numbers(models: NDArray[np.str_], chosen: Mask) -> NDArray[np.int64]:
    """Return a number from 1 for each row's model, (n,); 0 for one with too few chosen rows.

    Fewer than `MIN_NAME_ROWS` of the chosen rows are too few; a row without a name also has 0.
    """
    names, counts = np.unique(models[chosen], return_counts=True)
    kept = [name for name, count in zip(names, counts, strict=True) if count >= MIN_NAME_ROWS]
    numbers = {name: number + 1 for number, name in enumerate(kept) if name}
    return np.array([numbers.get(name, 0) for name in models])


if __name__ == "__main__":
    typer.run(main)
