"""The output about other replies to the same question.

It is used by `pinocchio study opinion`, `study cascade` and `advise --second-opinion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    exit_with_bad,
    print_table,
    resumable,
    say,
    say_rows,
    sentences,
    write_if_named,
)
from calibrator.errors import JudgingError
from calibrator.metrics.numbers import figure
from calibrator.rows.files import check_readable, json_line

if TYPE_CHECKING:
    from calibrator.embedded.calibrator import EmbeddedCalibrator
    from calibrator.lab.judging.evaluation.opinion_advice import BandEffect, OpinionAdvice
    from calibrator.lab.studies.cascade_study import Cascade
    from calibrator.readers.opinion import OpinionReader
    from calibrator.rows.rows import Row
    from calibrator.scorer import Score

OfOthers = Literal["opinion", "cascade"]


@dataclass(frozen=True, slots=True)
class OthersOptions:
    """The command line's options of the calibrator and of one study each."""

    calibrator: str
    is_renewed: bool
    leave_out: Path | None = None
    cheap: str | None = None
    strong: str | None = None

    def check(self, name: str) -> None:
        """Raise JudgingError for an option that does not belong to the study `name`.

        An example is `--cheap` with `opinion`.
        """
        if self.leave_out and name != "opinion":
            raise JudgingError("--leave-out goes with the study `opinion`")
        if (self.cheap or self.strong) and name != "cascade":
            raise JudgingError("--cheap and --strong go with the study `cascade`")


def study_others(
    name: OfOthers, rows: Sequence[Row], options: OthersOptions, output: Path | None
) -> None:
    """Run the study `opinion` or `cascade`, print its table, and write JSON to `output` if given.

    Raises JudgingError for a calibrator that reads no other replies.
    """
    scorer, alone = scores_alone(rows, options.calibrator, options.is_renewed)
    if name == "cascade":
        from calibrator.lab.studies.cascade_study import study_cascade

        cascade = study_cascade(scorer, rows, alone, options.cheap, options.strong)
        write_if_named(output, cascade.as_json())
        _print_cascade(cascade)
        return
    from calibrator.lab.studies.trained.opinion_study import study_opinions

    run = options.leave_out
    left_out = _readers_without(rows, run, options.calibrator) if run is not None else None
    found = study_opinions(scorer, rows, alone, progress=say, left_out=left_out)
    write_if_named(output, found.as_json())
    print(f"{found.method}: alone > with others")
    names = ("pooled", "mean", "within", "brier", "ece", "kept_90", "kept_95")
    lines = [
        [
            each.others,
            each.of,
            f"{each.replies:,}",
            *(
                f"{figure(getattr(each.alone, name))} > {figure(getattr(each.together, name))}"
                for name in names
            ),
        ]
        for each in found.entries
    ]
    head = ["AUROC", "mean", "within", "Brier", "ECE", "kept at 90 %", "kept at 95 %"]
    print_table(["others", "of", "replies", *head], lines)


def scores_alone(
    rows: Sequence[Row], calibrator: str, is_renewed: bool = False
) -> tuple[EmbeddedCalibrator, list[Score]]:
    """Return (a calibrator that reads other replies, its scores of the rows without them).

    Scores are kept on disk and reused; `is_renewed` scores all rows again. Raises JudgingError for
    a calibrator that reads none.
    """
    from calibrator.embedded.calibrator import EmbeddedCalibrator
    from calibrator.lab.judging.evaluation.drawn_others import check_reads_others
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import cache_scores
    from calibrator.rows.scores import score_items

    scorer = load_scorer(calibrator)
    if not isinstance(scorer, EmbeddedCalibrator):
        raise JudgingError(f"{scorer.name} does not read other replies")
    check_reads_others(scorer)
    kept = cache_scores(scorer, "auto", is_renewed=is_renewed)
    items = [row.item("served") for row in rows]
    for item in items:
        item.others = ()
    with Progress("scoring", len(rows)) as progress:
        return scorer, score_items(kept, items, progress.advance)


def _print_cascade(found: Cascade) -> None:
    """Print a cascade: calls of the strong model, accuracy and kept replies at each threshold.

    The first and last lines are the cheap and the strong model alone.
    """
    print(
        f"{found.cheap}, then {found.strong}: {found.questions:,} questions that both answered; "
        f"by {found.method}"
    )
    lines = [
        _row_alone("never", "0.00", found.cheap_accuracy, found.cheap_kept_95),
        *(
            [
                "always" if each.threshold == 1.0 else f"below {each.threshold:g}",
                f"{each.calls:.2f}",
                figure(each.accuracy),
                figure(each.accuracy_knowing),
                figure(each.kept_95),
                figure(each.kept_95_knowing),
            ]
            for each in found.steps
        ),
        [
            "strong alone",
            "1.00",
            figure(found.strong_accuracy),
            "",
            figure(found.strong_kept_95),
            "",
        ],
    ]
    head = ["right: surer by text", "knowing both", "kept at 95 %: by text", "knowing both"]
    print_table(["strong asked", "its calls", *head], lines)


def _row_alone(name: str, calls: str, accuracy: float, kept: float) -> list[str]:
    """Return the cells of a cascade's line in which one model answers all questions.

    `calls` is the text of the strong model's calls a question, `kept` the share kept at 95 % right.
    """
    return [name, calls, figure(accuracy), "", figure(kept), ""]


def _readers_without(rows: Sequence[Row], run: Path, calibrator: str) -> dict[str, OpinionReader]:
    """Return a reader of opinions by benchmark, fitted without that benchmark, with progress shown.

    `run` is the folder of `pinocchio train --with opinion`; benchmarks that it was not trained on
    are left out.
    """
    from calibrator.checkpoints.checkpoint import resolve_checkpoint
    from calibrator.embedded.parts import read_checkpoint
    from calibrator.lab.studies.trained.opinion_study import readers_without

    benchmarks = {row.benchmark or "" for row in rows}
    with Progress("fitting", len(benchmarks)) as progress:
        return readers_without(
            benchmarks, run, read_checkpoint(resolve_checkpoint(calibrator)), progress.update
        )


# --- advise ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpinionWish:
    """The model to ask (None for any other), the errors allowed, and the price of a call."""

    model: str | None
    max_error: float
    price: float | None


def advise_on_opinions(
    files: Sequence[Path], calibrator: str, wish: OpinionWish, as_json: bool
) -> bool:
    """Print what second opinions are worth, as text or JSON; return whether they keep more replies.

    Exits with status 1 if rows could not be used, or with a sentence for bad files or options.
    """
    from calibrator.lab.judging.evaluation.opinion_advice import advise_opinion
    from calibrator.rows.selection import load_labelled

    with sentences(), resumable():
        if not 0 < wish.max_error < 1:
            raise JudgingError(f"--max-error must be between 0 and 1, not {wish.max_error:g}")
        check_readable(files)
        rows, bad = load_labelled(files)
        say_rows(rows, bad)
        scorer, alone = scores_alone(rows, calibrator)
        found = advise_opinion(scorer, rows, alone, model=wish.model, max_error=wish.max_error)
    if as_json:
        typer.echo(json_line(found.as_dict()), nl=False)
    else:
        typer.echo("\n".join(_lines(found, wish)))
    exit_with_bad(bad)
    return found.band is not None


def _lines(found: OpinionAdvice, wish: OpinionWish) -> Iterator[str]:
    """Yield the lines of the advice about second opinions for a terminal.

    They are the advice, its base, and a table of bands of confidences; the last ones are the lines
    to put into a policy, where asking is worth it.
    """
    right = f"{1 - found.max_error:.0%} right"
    if found.band is None:
        yield f"{found.calibrator}: do not ask; opinions keep no more replies at {right}"
    else:
        low, high = found.band.low, min(found.band.high, 1.0)
        yield f"{found.calibrator}: ask where the confidence is from {low:g} below {high:g}"
        yield (
            f"  {found.band.calls:.2f} calls a reply give {found.gain(found.band):.0%} of what "
            "asking about every reply gives"
        )
    of = f" of {wish.model}" if wish.model else " of another model"
    yield (
        f"  {found.replies:,} replies to {found.questions:,} questions that have a reply{of}; "
        "bands chosen on half of the questions, judged on the other half"
    )
    money = "" if wish.price is None else f"{'per 1,000':>12}"
    head = f"{'asked about':16}{'calls':>7}{'AUROC':>8}{f'kept at {right}':>20}{'of the gain':>13}"
    yield f"  {head}{money}"
    for effect in (found.nobody, *found.bands, found.everybody):
        yield _line(found, effect, wish.price)
    if found.band is not None:
        model = wish.model or "MODEL"
        yield "next, in the policy:"
        band = f"{{confidence: {{between: [{low:g}, {high:g}]}}}}"
        yield f"  second_opinion: {{from: {model}, when: {band}}}"


def _line(found: OpinionAdvice, effect: BandEffect, price: float | None) -> str:
    """Return the table line of one band: its limits, calls, AUROC, kept share, share of the gain.

    The cost in the price's currency per 1,000 replies follows if a price is given. Asking about
    none or all is `nobody` or `every reply`.
    """
    where = f"[{effect.low:g}, {min(effect.high, 1.0):g})"
    if effect in (found.nobody, found.everybody):
        where = "nobody" if effect.is_nobody else "every reply"
    money = "" if price is None else f"{1_000 * price * effect.calls:>12,.2f}"
    return (
        f"  {where:16}{effect.calls:>7.2f}{effect.auroc:>8.3f}{effect.kept:>20.3f}"
        f"{found.gain(effect):>13.0%}{money}"
    )
