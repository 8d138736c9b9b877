"""A study of the calibrator for calls with something left out of its training.

Sources of graded calls, families of faults, and domains of our own making are left out in turn. The
judged rows are those of the part left out: the source's graded rows, right test rows against the
same with such a fault, fresh scenes. Each fold trains on the rest, which takes minutes in all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.data.calls.corruptions import OTHER_REQUEST, corrupted_calls
from calibrator.lab.data.calls.disguises import ATTACKS
from calibrator.lab.data.calls.domains import DOMAINS, Domain
from calibrator.lab.data.calls.drafts import apply_change
from calibrator.lab.data.calls.lessons import CORRUPTED, GRADED, SCENE, lessons_of
from calibrator.lab.data.calls.stages import Scene
from calibrator.lab.data.calls.worlds import scenes
from calibrator.lab.studies.probes import sample
from calibrator.lab.studies.studies import SEED, Study, StudyEntry, entry_of
from calibrator.lab.training.fits.calls import (
    Array,
    CallConfig,
    Material,
    fit_material,
    fit_parts,
    material_of,
)
from calibrator.metrics.intervals import RESAMPLES
from calibrator.metrics.metrics import Floats
from calibrator.readers.calls.model import CallTrees
from calibrator.rows.rows import Row, parse_row

MIN_ROWS = 30  # least rows of an entry, with at least 5 of each label
MIN_BENCHMARK = 60  # least rows of a benchmark that is judged separately
DOMAIN_FOLDS = 3

# Faults that are left out together, because knowing one of a family helps with the others.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "values": (
        "other entity", "invented", "placeholder", "request repeated", "swapped", "transposed",
        "opposed value", "parent folder",
        "correction", "second", "extreme",
    ),
    "numbers": (
        "number moved", "told number", "unit changed", "date moved", "time moved", "part",
        "measure changed", "weekday", "unsaid",
    ),
    "steps": (
        "wrong tool", "opposed tool", OTHER_REQUEST, "repeated", "error ignored",
        "look up left out", "required dropped", "question", "again", "first look", "look again",
        "extra",
    ),
    "rules": (
        "limit passed", "forbidden", "declined", "state", "late", "limit", "above", "confirm",
        "clash", "purse",
    ),
}  # fmt: skip


class Fits:
    """A trainer on parts of the lessons; the weights of the parts come from the fit on all."""

    def __init__(self, rows: Sequence[Row], config: CallConfig, seed: int) -> None:
        """Make the lessons of the rows, and fit the trees and their weights on all of them."""
        self.config, self.seed = config, seed
        lessons = lessons_of(rows, seed, scene_count=config.scenes, faults=config.faults)
        self.material: Material = material_of(lessons, seed)
        whole = fit_material(self.material, config, seed)
        self.weights: dict[str, Array] = {name: whole[name] for name in ("strange", "familiar")}
        self.whole = CallTrees(whole)

    def fit_without(self, left_out: Floats | Array) -> tuple[CallTrees, int]:
        """Return (the trees fitted without some lessons, the number of the others).

        `left_out` is a mask over all lessons, (N,).
        """
        chosen = ~left_out.astype(bool)
        state = fit_parts(self.material.part(chosen), self.config, self.seed)
        return CallTrees(state | self.weights), int(chosen.sum())


def calls_study(
    train: Sequence[Row],
    test: Sequence[Row],
    config: CallConfig | None = None,
    most: int = 300,
    resamples: int = RESAMPLES,
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Train the trees for calls with parts left out, judge each on its part, and return the study.

    Left out are each source, each family of faults and a third of our domains at a time; further
    entries judge the fit on all lessons on the test rows, and on rows made to look right. The
    reference is the fit on all lessons, which has seen the judged training rows of a source. At
    most `most` right rows are made wrong. Raises JudgingError where nothing can be judged.
    """
    used = [row for row in test if _has_calls(row) and row.correct is not None]
    say("training on all lessons")
    fits = Fits(train, config or CallConfig(), SEED)
    entries: list[StudyEntry] = []
    for label, rows in _benchmarks(used):
        entries += _judge_rows(label, fits.whole, fits, len(fits.material.targets), rows, resamples)
    entries += _attack_rows(used, fits, resamples)
    for part in (_sources(train, used, fits, say), _faults(used, fits, most, say),
                 _domains(fits, say)):  # fmt: skip
        for label, model, count, rows in part:
            entries += _judge_rows(label, model, fits, count, rows, resamples)
    if not entries:
        raise JudgingError("there are too few labelled rows that call tools")
    return Study("calls", "trees for calls", entries)


def _has_calls(row: Row) -> bool:
    """Return whether the row's reply calls tools."""
    return row.tool_use is not None and row.tool_use.has_calls


def _benchmarks(rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield (label, rows): all rows, then those of each benchmark with `MIN_BENCHMARK` of them.

    A label is `as trained`, or `as trained: BENCHMARK`.
    """
    yield "as trained", rows
    for name, count in sorted(Counter(row.benchmark or "" for row in rows).items()):
        if count >= MIN_BENCHMARK:
            yield f"as trained: {name}", [row for row in rows if row.benchmark == name]


def _attack_rows(rows: Sequence[Row], fits: Fits, resamples: int) -> Iterator[StudyEntry]:
    """Yield an entry for each attack: right rows against wrong ones changed to look right.

    The reference is before the attack. The shift is over all rows, and 0 for the right ones.
    Attacks that apply to too few rows have no entry.
    """
    for name, attack in ATTACKS.items():
        before, after = [], []
        for number, row in enumerate(rows):
            used = row.tool_use
            if row.correct == 0 and used is not None:
                used = apply_change(used, attack, random.Random(f"{name} {number}"))
            if used is not None:
                before.append(row)
                after.append(replace(row, tool_use=used))
        if min(Counter(row.correct for row in before).values(), default=0) >= MIN_ROWS // 6:
            confidence, reference = (_confidence(fits.whole, each) for each in (after, before))
            trained = len(fits.material.targets)
            yield entry_of(f"attack: {name}", trained, after, confidence, reference, resamples)


def _judge_rows(
    label: str, model: CallTrees, fits: Fits, trained: int, rows: Sequence[Row], resamples: int
) -> Iterator[StudyEntry]:
    """Yield one entry with the figures of the rows by `model`; nothing for too few rows.

    `trained` is the number of its lessons; the reference is the fit on all lessons. `MIN_ROWS` are
    needed, and a sixth of that of each label.
    """
    right = sum(row.correct or 0 for row in rows)
    if len(rows) >= MIN_ROWS and min(right, len(rows) - right) >= MIN_ROWS // 6:
        confidence, reference = (_confidence(each, rows) for each in (model, fits.whole))
        yield entry_of(label, trained, rows, confidence, reference, resamples)


def _confidence(model: CallTrees, rows: Sequence[Row]) -> Floats:
    """Return P(correct) by the trees for the rows that use tools, (n,)."""
    used = [row.tool_use for row in rows if row.tool_use is not None]
    odds = model.odds(used, [row.model for row in rows])
    return np.asarray(1 / (1 + np.exp(-odds)))


Part = tuple[str, CallTrees, int, list[Row]]


def _sources(
    train: Sequence[Row], test: Sequence[Row], fits: Fits, say: Callable[[str], None]
) -> Iterator[Part]:
    """Yield for each source of graded calls a fit without it: (label, trees, lessons, rows).

    `lessons` is the number of those trained on. The rows to judge are the labelled ones of that
    source in both files that call tools.
    """
    groups = fits.material.groups
    for name in sorted(set(groups[fits.material.origins == GRADED].tolist())):
        say(f"leaving out {name}")
        rows = [row for row in (*train, *test) if row.benchmark == name and _has_calls(row)]
        yield (
            f"source: {name}",
            *fits.fit_without(groups == name),
            [row for row in rows if row.correct is not None],
        )


def _faults(
    test: Sequence[Row], fits: Fits, most: int, say: Callable[[str], None]
) -> Iterator[Part]:
    """Yield for each fault a fit without its family: (label, trees, lessons, rows).

    `lessons` is the number of those trained on. The rows to judge are right test rows and the same
    with that fault, or else fresh scenes of it. At most `most` right rows are used.
    """
    right = sample([row for row in test if row.correct == 1], most)
    pairs = corrupted_calls(right, SEED)
    fresh = list(scenes(fits.config.scenes // 2, SEED + 1))
    made = np.isin(fits.material.origins, (CORRUPTED, SCENE))
    for family, kinds in FAMILIES.items():
        say(f"leaving out faults of {family}")
        model, count = fits.fit_without(made & np.isin(fits.material.kinds, kinds))
        for kind in kinds:
            if kind in pairs:
                both = [row for pair in pairs[kind] for row in pair]
            else:
                both = [_row(scene) for scene in fresh if scene.twist == kind]
            yield f"{family}: {kind}", model, count, both


def _domains(fits: Fits, say: Callable[[str], None]) -> Iterator[Part]:
    """Yield for each third of our domains a fit without it: (label, trees, lessons, rows).

    `lessons` is the number of those trained on. The rows to judge are fresh scenes in these
    domains.
    """
    for fold in range(DOMAIN_FOLDS):
        held: tuple[Domain, ...] = DOMAINS[fold::DOMAIN_FOLDS]
        names = [domain.name for domain in held]
        say(f"leaving out {', '.join(names)}")
        model, count = fits.fit_without(np.isin(fits.material.groups, names))
        fresh = scenes(max(40, fits.config.scenes // 4), SEED + 2, held)
        yield f"domains {fold + 1}: {names[0]}, …", model, count, [_row(s) for s in fresh]


def _row(scene: Scene) -> Row:
    """Return a synthetic scene as a labelled row; its benchmark is the domain."""
    return parse_row(
        {
            "messages": scene.used.messages,
            "tools": scene.used.tools,
            "response": scene.used.message,
            "question_id": scene.group,
            "benchmark": scene.domain,
            "domain": scene.twist,
            "correct": scene.correct,
        }
    )
