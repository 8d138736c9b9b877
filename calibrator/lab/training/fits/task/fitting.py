"""The training of `TaskFamiliarity`.

    python -m calibrator.lab.training.fits.task.fitting $DATA -o task_state.npz

The trees must read scores of kinds of tasks that the table of wording has never seen, so each kind
gets the score of a table that was fitted on other kinds. `leaving_out` measures the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from calibrator.errors import TrainingError
from calibrator.lab.training.fits.task.examples import (
    TaskExample,
    known_examples,
    own_examples,
    unfamiliar_examples,
)
from calibrator.lab.training.fits.task.variants import vary_examples
from calibrator.lab.training.stages.tree_fitting import fit_trees
from calibrator.readers.evidence import familiarity, task_form
from calibrator.readers.evidence.familiarity import PREFIX, WIDTH, TaskFamiliarity
from calibrator.readers.evidence.task_form import read_request

Array = NDArray[np.generic]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

FLAGGED: Final = 0.025  # share of known questions, left out of the fit, that are flagged
FOLDS: Final = 4
KNOWN_ROWS, UNFAMILIAR_ROWS = 220, 70  # rows of a benchmark, of a file; each with a variant
WORD_SEEN: Final = 2  # least occurrences of a known word in known questions
LARGEST: Final = 127


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """The settings of the fits of the trees and the table of wording."""

    trees: int = 120
    leaves: int = 12
    learning_rate: float = 0.1
    leaf_rows: int = 25
    ridge: float = 5.0
    feature_share: float = 0.3
    prior: float = 3.0  # added to the count of every n-gram
    evenness: float = 0.8  # 1: sources weigh the same, 0: requests do
    own_weight: float = 4.0  # weight of a request that was written for this project


@dataclass(frozen=True, slots=True)
class ReadExamples:
    """Examples (N) with the numbers and n-grams read from them."""

    examples: Sequence[TaskExample]
    forms: Floats  # (N, task_form.WIDTH)
    places: Sequence[familiarity.Places]

    @property
    def is_unfamiliar(self) -> Flags:
        """A flag for each unfamiliar example, (N,)."""
        return np.array([not example.is_known for example in self.examples], np.bool_)

    def examples_at(self, places: Array) -> ReadExamples:
        """Return the examples at these places, in this order."""
        chosen = [int(place) for place in places]
        return ReadExamples(
            [self.examples[place] for place in chosen],
            self.forms[chosen],
            [self.places[place] for place in chosen],
        )


def teaching_examples(data: Path, seed: int = 0) -> list[TaskExample]:
    """Return the training data: drawn rows of a folder, a variant of each, and own requests.

    Rows of `data/train` are known, those of `data/grounding/train` unfamiliar tasks. Files whose
    licence forbids training are left out. The same seed gives the same examples.
    """
    drawn = [
        *known_examples(data / "train", KNOWN_ROWS, seed),
        *unfamiliar_examples(data / "grounding" / "train", UNFAMILIAR_ROWS, seed),
    ]
    taught = [example for example in drawn if example.may_teach]
    return [*taught, *vary_examples(taught, seed), *own_examples()]


def read(examples: Sequence[TaskExample]) -> ReadExamples:
    """Return the examples with the numbers and the n-grams of their requests."""
    requests = [read_request(each.conversation, has_tools=each.has_tools) for each in examples]
    forms = np.array([task_form.form_of(each) for each in requests], np.float32)
    return ReadExamples(examples, forms, [familiarity.places_of(each) for each in requests])


def fit_familiarity(
    teaching: ReadExamples,
    config: TaskConfig,
    seed: int = 0,
) -> dict[str, Array]:
    """Fit the arrays of `TaskFamiliarity`, by names such as `task.threshold`.

    The threshold is set so that a model that was not fitted on them flags the share `FLAGGED` of a
    fourth of the known questions; own requests among these count only if there are no others. Then
    all is fitted on all examples. The same examples give the same arrays. Raises TrainingError
    without known or without unfamiliar examples, and MissingExtraError without scikit-learn.
    """
    is_held_out = (_folds(teaching.examples) == 0) & ~teaching.is_unfamiliar
    is_own = np.array([example.is_own for example in teaching.examples], np.bool_)
    is_judged = is_held_out & ~is_own
    if not is_judged.any():
        is_judged = is_held_out
    if not (is_judged.any() and teaching.is_unfamiliar.any()):
        raise TrainingError("task familiarity needs known and unfamiliar requests")
    judged = teaching.examples_at(np.flatnonzero(is_judged))
    state = _fit(teaching.examples_at(np.flatnonzero(~is_held_out)), config, seed)
    threshold = np.quantile(strangeness(state, judged), 1 - FLAGGED)
    state = _fit(teaching, config, seed)
    state["threshold"] = np.array([threshold], np.float32)
    return {PREFIX + name: array for name, array in state.items()}


def strangeness(state: Mapping[str, Array], read_examples: ReadExamples) -> NDArray[np.float64]:
    """Return the log-odds that each example's task is unfamiliar, less the threshold, (N,).

    Above 0 an example is flagged. `state` has the arrays without the prefix `task.`.
    """
    model = TaskFamiliarity(state)
    return model.of_rows(_rows(model.wording, read_examples))


def _rows(table: familiarity.TaskWording, examples: ReadExamples) -> Floats:
    """Return the trees' input of examples, (N, WIDTH): numbers of form, then those of wording."""
    worded = [table.read(each) for each in examples.places]
    return np.hstack([examples.forms, np.array(worded, np.float32)])


def _fit(teaching: ReadExamples, config: TaskConfig, seed: int) -> dict[str, Array]:
    """Fit the table of wording and the trees; return their arrays, with a threshold of 0.

    The trees read numbers of tables that were fitted on other folds than each example's; the
    returned table is fitted on all.
    """
    weights = _weights(teaching.examples, config)
    rows = np.empty((len(teaching.examples), WIDTH), np.float32)
    folds = _folds(teaching.examples)
    for fold in range(FOLDS):
        at = np.flatnonzero(folds == fold)
        others = np.flatnonzero(folds != fold)
        table = familiarity.TaskWording.from_state(
            _fit_wording(teaching.examples_at(others), weights[others], config)
        )
        rows[at] = _rows(table, teaching.examples_at(at))
    trees = fit_trees(rows, teaching.is_unfamiliar.astype(np.int64), weights, config, seed)
    state: dict[str, Array] = {"threshold": np.zeros(1, np.float32)}
    state |= {f"trees.{name}": array for name, array in trees.items()}
    own = _fit_wording(teaching, weights, config)
    return state | {f"wording.{name}": array for name, array in own.items()}


def _fit_wording(
    teaching: ReadExamples, weights: NDArray[np.float64], config: TaskConfig
) -> dict[str, Array]:
    """Return `weights`, `scales` and `known` of a table of wording, fitted to `teaching`.

    A weight is the log ratio of the n-gram's frequencies in unfamiliar and known tasks (naive
    Bayes), as a whole number up to 127 times the scale. `known` has a bit for each word that known
    questions have at least `WORD_SEEN` times. `weights` (N,) are the examples'.
    """
    is_unfamiliar = teaching.is_unfamiliar
    sizes = [len(places.ngrams) for places in teaching.places]
    buckets = np.concatenate([np.array(places.ngrams) for places in teaching.places])
    is_others, each = np.repeat(is_unfamiliar, sizes), np.repeat(weights, sizes)
    logs = [
        np.log(np.bincount(buckets[side], each[side], familiarity.BUCKETS) + config.prior)
        for side in (is_others, ~is_others)
    ]
    found = logs[0] - logs[1]
    scale = float(np.abs(found).max()) / LARGEST
    bits = np.concatenate(
        [
            np.unique([*places.head, *places.tail])
            for places, is_other in zip(teaching.places, is_unfamiliar, strict=True)
            if not is_other
        ]
    )
    known = np.bincount(bits.astype(np.int64), minlength=familiarity.VOCABULARY) >= WORD_SEEN
    return {
        "weights": np.round(found / scale).astype(np.int8),
        "scales": np.array([scale, 0.0], np.float32),
        "known": np.packbits(known),
    }


def _weights(examples: Sequence[TaskExample], config: TaskConfig) -> NDArray[np.float64]:
    """Return weights of examples (N,), by which known and unfamiliar ones weigh the same together.

    Among them a source of n examples has a weight in proportion to n ** (1 - evenness); an own
    request has `config.own_weight` where others have 10 * n ** -evenness.
    """
    sizes: dict[str, int] = {}
    for example in examples:
        sizes[example.source] = sizes.get(example.source, 0) + 1
    found = np.array(
        [
            config.own_weight if e.is_own else 10 * sizes[e.source] ** -config.evenness
            for e in examples
        ]
    )
    is_known = np.array([example.is_known for example in examples])
    for side in (is_known, ~is_known):
        found[side] *= len(examples) / 2 / found[side].sum()
    return found


def _folds(examples: Sequence[TaskExample]) -> NDArray[np.int64]:
    """Return a fold for each example, (N,), from 0 to `FOLDS` - 1.

    All examples of an unfamiliar kind are in one fold; known questions are spread by a hash.
    """
    kinds = sorted({example.kind for example in examples if not example.is_known})
    place = {kind: at % FOLDS for at, kind in enumerate(kinds)}
    return np.array(
        [
            zlib.crc32(e.group.encode("utf-8", "replace")) % FOLDS if e.is_known else place[e.kind]
            for e in examples
        ]
    )


def main(data: Path, output: Annotated[Path, typer.Option("--output", "-o")]) -> None:
    """Fit on a folder of labelled data and write the arrays."""
    state = fit_familiarity(read(teaching_examples(data)), TaskConfig())
    np.savez(output, **state)  # type: ignore[arg-type]  # numpy's stubs expect a flag here
    size = sum(array.nbytes for array in state.values())
    typer.echo(f"{len(state)} arrays of {size:,} bytes in {output}")


if __name__ == "__main__":
    typer.run(main)
