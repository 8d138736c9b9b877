"""A study of the whole calibrator on kinds of faults that its inspector never learnt.

Kinds of faults are left out of the inspector's lessons, each alone and then with its neighbours:
the kinds that teach the same contradiction elsewhere in a reply. All other parts are those of the
checkpoint. The judged rows are right test replies against the same with that fault, as
`pinocchio evaluate --sensitivity` makes them; figures are means over benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrator.checkpoints.checkpoint import WEIGHTS, resolve_checkpoint
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.errors import JudgingError
from calibrator.features.weights import arrays_under, read_weights
from calibrator.lab.judging.sensitivity import (
    KindFigures,
    ReplyPair,
    figures_of_kind,
    mean_of_kind,
    pairs_of,
)
from calibrator.lab.studies.studies import SEED, Study, StudyEntry
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.lessons import Lesson, lessons_of, seen_in
from calibrator.lab.training.fits.inspection.training import Array, Floats, fit_checks
from calibrator.readers.inspection import CHECKS, PREFIX, Check, Inspector
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items

MAX_PAIRS = 60  # most pairs of a benchmark and kind


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A kind that is judged, the neighbours left out with it, and the benchmarks to judge it on.

    Without `benchmarks` it is judged wherever it applies.
    """

    kind: str
    neighbours: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """The kinds left out together: the judged one, then its neighbours."""
        return (self.kind, *self.neighbours)

    @property
    def label(self) -> str:
        """The name of the entry, such as `echo, without echo + arrival`."""
        return f"{self.kind}, without {' + '.join(self.left_out)}"


SHOWN_WORKING = ("GSM8K", "MATH-L5", "FinanceMath")  # benchmarks whose replies show their working
OPTIONS = ("MMLU-Pro",)
HELD_OUT = (
    HeldOut("last number", (), SHOWN_WORKING),
    HeldOut("last number", ("arrival",), SHOWN_WORKING),
    HeldOut("last number", ("working",), SHOWN_WORKING),
    HeldOut("last number", ("arrival", "working"), SHOWN_WORKING),
    HeldOut("final option", (), OPTIONS),
    HeldOut("final option", ("argued option",), OPTIONS),
    HeldOut("another question"),
    HeldOut("another question", ("nearest question",)),
    HeldOut("nearest question"),
    HeldOut("nearest question", ("another question",)),
    HeldOut("off topic"),
    HeldOut("off topic", ("echo",)),
    HeldOut("off topic", ("another question", "nearest question")),
)


class FaultLessons:
    """All lessons with their features, made once; inspectors are fitted on parts of them."""

    def __init__(
        self,
        rows: Sequence[Row],
        scorer: EmbeddedCalibrator,
        own: dict[str, Array],
        config: InspectorConfig,
    ) -> None:
        """Make all lessons of the rows with their features, and fit every check on them.

        `own` are the arrays of the checkpoint's inspector by name; of these only the tables of word
        pieces are kept.
        """
        assert scorer.parts.inspector is not None
        self.config = config
        checks = tuple(f"{check.name}." for check in CHECKS)
        # These are tables of word pieces, which do not depend on labels.
        self.tables = {name: array for name, array in own.items() if not name.startswith(checks)}
        self.lessons: list[Lesson] = list(lessons_of(rows, config, SEED))
        pieces = scorer.parts.inspector.pieces
        self.seen: Floats = seen_in(self.lessons, scorer.tokenizer, scorer.config.layout, pieces)
        self.whole = fit_checks(self.lessons, self.seen, config, SEED)

    def fit_without(self, kinds: Sequence[str]) -> tuple[Inspector, int]:
        """Return (an inspector fitted without these kinds of faults, its number of faulty lessons).

        Only the checks that look for one of the kinds are fitted again. The number counts the
        remaining lessons with faults that these checks look for. A check without any lesson is
        absent, so it lowers no confidence.
        """
        kept = [lesson.fault not in kinds for lesson in self.lessons]
        lessons = [each for each, is_kept in zip(self.lessons, kept, strict=True) if is_kept]
        touched = [check for check in CHECKS if set(check.faults) & set(kinds)]
        state = dict(self.tables) | {
            name: array for name, array in self.whole.items() if not _is_of(name, touched)
        }
        seen = self.seen[np.array(kept)]
        state |= fit_checks(lessons, seen, self.config, SEED, checks=touched)
        faults = {fault for check in touched for fault in check.faults}
        return Inspector(state), sum(lesson.fault in faults for lesson in lessons)


def _is_of(name: str, checks: Sequence[Check]) -> bool:
    """Return whether the name of an array, such as `CHECK.weight`, belongs to one of the checks."""
    return name.startswith(tuple(f"{check.name}." for check in checks))


def faults_study(
    train: Sequence[Row],
    test: Sequence[Row],
    calibrator: str = "embedded",
    *,
    config: InspectorConfig | None = None,
    held_out: Sequence[HeldOut] | None = None,
    max_pairs: int = MAX_PAIRS,
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Leave kinds of faults out of the inspector's lessons, judge it on them, and return the study.

    It has an entry for each of `held_out` (default `HELD_OUT`) that enough replies allow; the
    reference is the inspector fitted here on all lessons. `max_pairs` bounds the pairs of a
    benchmark and kind, `say` gets sentences on progress. Raises JudgingError for a calibrator
    without an inspector, or where no kind applies to enough replies.
    """
    folder = resolve_checkpoint(calibrator)
    scorer = load_embedded(folder)
    if scorer.parts.inspector is None:
        raise JudgingError(f"{calibrator} has no inspector")
    weights = read_weights(folder / WEIGHTS, scorer.config.weights_sha256)
    own = arrays_under(weights, PREFIX)
    say("making the inspector's lessons; on 100,000 rows this takes some minutes")
    texts = [row for row in train if row.tool_use is None]
    lessons = FaultLessons(texts, scorer, own, config or InspectorConfig())
    say(f"{len(lessons.lessons)} lessons")
    pairs = pairs_of(test, max_pairs)
    whole = Inspector(lessons.tables | lessons.whole)
    references: dict[str, KindFigures | None] = {}
    entries: list[StudyEntry] = []
    for one in HELD_OUT if held_out is None else held_out:
        judged = [pair for pair in pairs if _is_judged(pair, one)]
        inspector, taught = lessons.fit_without(one.left_out)
        if one.kind not in references:
            references[one.kind] = _figures(scorer, whole, judged, one)
        figures, reference = _figures(scorer, inspector, judged, one), references[one.kind]
        if figures is not None and reference is not None:
            entries.append(_entry(one, taught, figures, reference))
            say(f"{one.label}: AUROC {figures.auroc:.3f} on {figures.pairs} pairs")
    if not entries:
        raise JudgingError("there are too few right replies in which a fault could be made")
    return Study("faults", "inspector", entries)


def _is_judged(pair: ReplyPair, one: HeldOut) -> bool:
    """Return whether the pair has the fault's kind, and one of its benchmarks if it names any."""
    return pair.kind == one.kind and (not one.benchmarks or pair.benchmark in one.benchmarks)


def _figures(
    scorer: EmbeddedCalibrator, inspector: Inspector, pairs: Sequence[ReplyPair], one: HeldOut
) -> KindFigures | None:
    """Score the pairs by the calibrator with another inspector; return the mean over benchmarks.

    The result is None if no benchmark has enough pairs.
    """
    other = EmbeddedCalibrator(
        scorer.config, scorer.tokenizer, replace(scorer.parts, inspector=inspector)
    )
    items = [row.item("served") for pair in pairs for row in (pair.right, pair.changed)]
    both = np.array([score.confidence for score in score_items(other, items)]).reshape(-1, 2)
    named = np.array([pair.benchmark for pair in pairs])
    each = [
        figures_of_kind(one.kind, name, *both[named == name].T, is_call=False)
        for name in sorted(set(named.tolist()))
    ]
    mean = mean_of_kind(each) if each else None
    return mean if mean is not None and mean.benchmarks else None


def _entry(one: HeldOut, taught: int, figures: KindFigures, reference: KindFigures) -> StudyEntry:
    """Return the figures of one kind of fault as an entry of a study.

    `taught` is the number of lessons with such faults. Rows are pairs, of which one of two is
    right; `within` is the share of pairs in order, and `shift` how much higher the faulty replies'
    confidence is than with the reference.
    """
    return StudyEntry(
        label=one.label,
        trained=taught,
        rows=figures.pairs,
        accuracy=0.5,
        auroc=figures.auroc,
        low=math.nan,
        high=math.nan,
        within=figures.in_order,
        ece=math.nan,
        reference=reference.auroc,
        shift=figures.corrupted - reference.corrupted,
    )
