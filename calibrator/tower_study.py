"""Measures the side tower alone, to choose its settings: `python -m calibrator.tower_study`.

One tower is fitted on training questions and judged on validation questions (as served: named),
on model families that were left out (without a name) and on benchmarks that were left out. The
test files are never read. The table in `ablations.md` was made with it.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from calibrator.disagreement import disagreement
from calibrator.layout import Layout, load_tokenizer
from calibrator.metrics import auroc
from calibrator.rows import Row
from calibrator.tower_stage import tower_rows
from calibrator.tower_training import (
    MIN_NAME_ROWS,
    TowerConfig,
    TowerData,
    fit_tower,
    tower_logits,
)
from calibrator.train import base_folder
from calibrator.training_data import is_trainable, load_labelled, share_of, tokenize

FAMILIES = ("claude", "gemma", "phi", "yi", "deepseek", "grok")
BENCHMARKS = (
    "BFCL-multiple", "EPOCH-Bench", "FinanceMath", "TokenBias",
    "CodeGen-small", "MATH-Vision", "TriviaQA", "GSM8K",
)  # fmt: skip
HELD_SHARE = 0.1  # of the questions
LEFT_OUT_SHARE = 0.5  # of the questions of benchmarks that are left out, to save time

Mask = NDArray[np.bool_]


def changed(config: TowerConfig, setting: str) -> TowerConfig:
    """The configuration with `name=value`; raises typer.BadParameter for an unknown name."""
    name, _, value = setting.partition("=")
    kinds = {field.name: type(getattr(config, field.name)) for field in fields(config)}
    if name not in kinds:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(kinds)}")
    kind = kinds[name]
    return replace(config, **{name: value == "true" if kind is bool else kind(value)})


def figures(rows: list[Row], scores: NDArray[np.float32]) -> tuple[float, float, float]:
    """AUROC pooled, as the mean over benchmarks, and as the mean within questions (L02)."""
    labels = np.array([row.correct or 0 for row in rows])

    def mean(groups: list[str]) -> float:
        within = disagreement(labels, scores, groups, permutations=0)
        return within.auroc if within else math.nan

    benchmarks = [row.benchmark or "" for row in rows]
    return auroc(labels, scores), mean(benchmarks), mean([row.question_id for row in rows])


def main(
    files: list[Path],
    vary: Annotated[
        list[str] | None, typer.Option(help="name=value of TowerConfig; each is tried on its own.")
    ] = None,
    leave_out: Annotated[
        bool, typer.Option(help="Leave out six model families and eight benchmarks.")
    ] = False,
    seed: int = 1,
) -> None:
    """Fit a tower for each setting; print AUROC pooled, over benchmarks and within questions."""
    variants = {"as it ships": TowerConfig()}
    variants |= {setting: changed(TowerConfig(), setting) for setting in vary or ()}
    rows, _ = load_labelled([path for path in sorted(files) if is_trainable(path)])
    share = np.array([share_of(row.question_id) for row in rows])
    of_family = np.array([(row.model or "").startswith(FAMILIES) for row in rows]) & leave_out
    of_benchmark = np.array([row.benchmark in BENCHMARKS for row in rows]) & leave_out
    known = ~of_family & ~of_benchmark
    data = tower_data(rows, chosen := (share >= HELD_SHARE) & known)
    groups: dict[str, tuple[Mask, bool]] = {
        "known": ((share < HELD_SHARE) & known, True),
        "known, no names": ((share < HELD_SHARE) & known, False),
        "families left out": ((share < HELD_SHARE) & of_family & ~of_benchmark, False),
        "benchmarks left out": ((share < LEFT_OUT_SHARE) & of_benchmark & ~of_family, True),
    }
    for setting, config in variants.items():
        typer.echo(setting)
        names = int(data.names.max()) + 1
        model = fit_tower(data, np.flatnonzero(chosen), names, config, seed)
        for group, (mask, is_named) in groups.items():
            if mask.any():
                at = np.flatnonzero(mask)
                found = figures([rows[i] for i in at], tower_logits(model, data, at, is_named))
                typer.echo(
                    f"  {group:20} {len(at):6} rows  " + "  ".join(f"{f:.4f}" for f in found)
                )


def tower_data(rows: list[Row], chosen: Mask) -> TowerData:
    """All rows as the tower reads them; names are those of the chosen rows."""
    tokenizer = load_tokenizer(base_folder())
    examples = tokenize(rows, tokenizer, Layout(max_tokens=192), for_tower=True)
    return TowerData(
        tower_rows(examples),
        name_numbers(rows, chosen),
        np.array([row.correct or 0 for row in rows], dtype=np.float32),
        np.zeros(len(rows), dtype=np.int64),
    )


def name_numbers(rows: list[Row], chosen: Mask) -> NDArray[np.int64]:
    """A number for each row's model, 0 where the chosen rows hold too few of it."""
    models = np.array([(row.model or "").lower() for row in rows])
    names, counts = np.unique(models[chosen], return_counts=True)
    kept = [name for name, count in zip(names, counts, strict=True) if count >= MIN_NAME_ROWS]
    numbers = {name: number + 1 for number, name in enumerate(kept) if name}
    return np.array([numbers.get(name, 0) for name in models])


if __name__ == "__main__":
    typer.run(main)
