"""The measurement of `TaskFamiliarity` on kinds of tasks that were left out of its fit.

    python -m calibrator.lab.training.fits.task.leaving_out $DATA
    python -m calibrator.lab.training.fits.task.leaving_out $DATA --benchmarks

Each kind of `examples.KINDS` is left out in turn, in data sets and own requests alike. The known
questions are those of the test split, as benchmarks ask them and in a user's words. Own known
requests are left out by fifths. `--benchmarks` leaves out known benchmarks instead, a quarter of
them at a time, and so flags a data set, not a kind of task.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from calibrator.lab.training.fits.task.examples import (
    KINDS,
    TaskExample,
    known_examples,
    own_examples,
    unfamiliar_examples,
)
from calibrator.lab.training.fits.task.fitting import (
    ReadExamples,
    TaskConfig,
    fit_familiarity,
    read,
    strangeness,
    teaching_examples,
)
from calibrator.lab.training.fits.task.variants import vary_examples
from calibrator.readers.evidence.familiarity import PREFIX

Array = NDArray[np.generic]

PARTS: Final = 5
QUARTERS: Final = 4
TEST_ROWS, KNOWN_TEST_ROWS = 40, 400  # rows of a file
OWN, USER, WITH_CONTEXT = "own requests", "all in the request", "rules, turns or tools"


class ExampleVerdict(NamedTuple):
    """The place of an example in a table, and whether the example was flagged."""

    group: str
    kind: str
    source: str
    is_flagged: bool


def judge_examples(data: Path, config: TaskConfig) -> Iterator[ExampleVerdict]:
    """Yield a verdict on every test example, by models that were fitted without its kind.

    First come the unfamiliar kinds of `KINDS`, own known requests among them by fifths; then known
    test questions, and these in a user's words, by a model fitted on all training data.
    """
    teaching = read(teaching_examples(data))
    kinds = np.array([example.kind for example in teaching.examples])
    parts = np.array([_part(example) for example in teaching.examples])
    others = read(list(_unfamiliar_tasks(data)))
    other_kinds = np.array([example.kind for example in others.examples])
    for at, kind in enumerate(KINDS):
        part = at % PARTS
        is_used = (kinds != kind) & (parts != part)
        state = _fit(teaching.examples_at(np.flatnonzero(is_used)), config)
        yield from _judge(state, others.examples_at(np.flatnonzero(other_kinds == kind)))
        if at < PARTS:
            yield from _judge(state, read([e for e in own_examples() if _part(e) == part]))
    state = _fit(teaching, config)
    known = list(known_examples(data / "test", KNOWN_TEST_ROWS, 0))
    yield from _judge(state, read(known), "test questions")
    yield from _judge(state, read(list(vary_examples(known, 1))), "in a user's words")


def benchmarks_judged(data: Path, config: TaskConfig) -> Iterator[ExampleVerdict]:
    """Yield verdicts on known test questions, by models not fitted on their benchmark.

    A quarter of the benchmarks is left out at a time. The group of all is `left out`.
    """
    teaching = read(teaching_examples(data))
    sources = np.array([example.source for example in teaching.examples])
    known = list(known_examples(data / "test", KNOWN_TEST_ROWS, 0))
    names = sorted({example.source for example in known})
    for part in range(QUARTERS):
        left_out = names[part::QUARTERS]
        state = _fit(teaching.examples_at(np.flatnonzero(~np.isin(sources, left_out))), config)
        yield from _judge(state, read([e for e in known if e.source in left_out]), "left out")


def _fit(teaching: ReadExamples, config: TaskConfig) -> dict[str, Array]:
    """Fit on the examples, and return the arrays by names without the prefix `task.`."""
    state = fit_familiarity(teaching, config)
    return {name.removeprefix(PREFIX): array for name, array in state.items()}


def _judge(
    state: Mapping[str, Array], examples: ReadExamples, group: str = ""
) -> Iterator[ExampleVerdict]:
    """Yield a verdict on each example; its group is `group`, or that of `_group` if this is ""."""
    found = strangeness(state, examples) > 0
    for example, is_flagged in zip(examples.examples, found, strict=True):
        yield ExampleVerdict(
            group or _group(example), example.kind, example.source, bool(is_flagged)
        )


def _group(example: TaskExample) -> str:
    """Return the group of an example: `OWN`, `WITH_CONTEXT` (rules, turns or tools), or `USER`."""
    if example.is_own:
        return OWN
    conversation = example.conversation
    has_context = conversation.rules or conversation.earlier or example.has_tools
    return WITH_CONTEXT if has_context else USER


def _part(example: TaskExample) -> int:
    """Return the fifth, 0 to 4, of an own known request, by a hash; -1 for other examples."""
    if not (example.is_own and example.is_known):
        return -1
    return zlib.crc32(example.group.encode()) % PARTS


def _unfamiliar_tasks(data: Path) -> Iterator[TaskExample]:
    """Yield examples for testing: the test split, files not licensed for training, own requests.

    The first two are repeated with their text in another place; these have `, moved` in their
    source. Own requests include known ones.
    """
    found = list(unfamiliar_examples(data / "grounding" / "test", TEST_ROWS, 0))
    found += [
        example
        for example in unfamiliar_examples(data / "grounding" / "train", TEST_ROWS, 0)
        if not example.may_teach
    ]
    yield from found
    for example in vary_examples(found, 1):
        yield replace(example, source=f"{example.source}, moved")
    yield from own_examples()


def main(data: Path, benchmarks: bool = False) -> None:
    """Print the share that is flagged of each kind when it is left out, and of known questions."""
    if benchmarks:
        rows = list(benchmarks_judged(data, TaskConfig()))
        _print("known, benchmarks left out", [(row.source, row.is_flagged) for row in rows])
        return
    rows = list(judge_examples(data, TaskConfig()))
    for group in (USER, WITH_CONTEXT, OWN):
        chosen = [row for row in rows if row.group == group and row.kind in KINDS]
        _print(f"unfamiliar, {group}", [(row.kind, row.is_flagged) for row in chosen])
    known = [row for row in rows if row.group == OWN and row.kind not in KINDS]
    _print("known, own requests", [(row.source, row.is_flagged) for row in known])
    for group in ("test questions", "in a user's words"):
        chosen = [row for row in rows if row.group == group]
        _print(f"known, {group}", [(row.source, row.is_flagged) for row in chosen])
    unfamiliar = [row for row in rows if row.kind in KINDS]
    _print("unfamiliar, by source", [(row.source, row.is_flagged) for row in unfamiliar])


def _print(title: str, flags: list[tuple[str, bool]]) -> None:
    """Print a title with the share of flagged examples, and the share of each name, highest first.

    `flags` are (name, whether flagged) of the examples; the mean is that of the names' shares.
    """
    found = defaultdict(list)
    for name, is_flagged in flags:
        found[name].append(is_flagged)
    share = float(np.mean([is_flagged for _, is_flagged in flags]))
    typer.echo(f"\n{title}: {share:.3f} of {len(flags)}, mean {_mean(found):.3f}")
    for name, each in sorted(found.items(), key=lambda item: -float(np.mean(item[1]))):
        typer.echo(f"  {name:24} {float(np.mean(each)):.2f} of {len(each)}")


def _mean(found: Mapping[str, list[bool]]) -> float:
    """Return the mean over names of the share of True."""
    return float(np.mean([np.mean(each) for each in found.values()]))


if __name__ == "__main__":
    typer.run(main)
