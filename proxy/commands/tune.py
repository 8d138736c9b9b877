"""`pinocchio tune`: fine-tunes the calibrator in use on verdicts in the store, or on rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator import ROWS_HELP, refuse
from policies import plural
from proxy.commands.opening.exits import (
    ConfigOption,
    exit_on_calibrator_errors,
    exit_on_errors,
    stop,
)
from proxy.commands.opening.opened_record import opened_record, seconds
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from calibrator import Recalibration, Trial, TunableCheckpoint, TuningTrial
    from proxy.learning.tuning import TuningData

NOT_BETTER = 3
OF_STORE = ("since", "held_only")  # options without a meaning for rows of files
Files = Annotated[
    list[Path] | None,
    typer.Argument(help=f"Learn from these rows instead of the verdicts. {ROWS_HELP}"),
]
Calibrator = Annotated[
    str | None, typer.Option(help="Tune this calibrator, not the configured one.")
]
Since = Annotated[
    str, typer.Option(help="Learn from verdicts on replies of this last span, such as 30d.")
]
HeldOnly = Annotated[
    bool, typer.Option("--held-only", help="Learn from verdicts on held replies alone.")
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The new checkpoint's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Compare, and write nothing.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def tune(
    context: typer.Context,
    files: Files = None,
    calibrator: Calibrator = None,
    config: ConfigOption = None,
    since: Since = "30d",
    held_only: HeldOnly = False,
    output: Output = None,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune the configured calibrator on the verdicts in the store, or on labelled rows.

    The result is written only if, on labels that it did not see, it is better than what counts now
    and than a recalibration alone; the exit status is 3 if it is not.
    """
    if files:
        refuse(context, OF_STORE, "is for verdicts of the store, not for FILES; leave one out")
    if (output is None) != dry_run:
        message = "say where to write with -o, or compare alone with --dry-run"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with exit_on_calibrator_errors():
        start, current = _in_use(config, calibrator, output)
        if files:
            trial, facts, notes = _from_files(files, start, current)
        else:
            replies = _gather_replies(config, since, start, held_only)
            trial = _run_trial(replies, current, held_only)
            facts, notes = (
                {"store": replies.facts()},
                list(replies.left_out.sentences()),
            )
        is_written = output is not None and trial.is_better
        if output is not None and is_written:
            start.write(output, trial.tuned, facts, {"verdicts": quality_of(trial.now)})
    written = output if is_written else None
    if as_json:
        fields = {"written": str(written) if written else None, "left_out": notes, **facts}
        typer.echo(json.dumps({**fields, **trial.as_dict()}))
    else:
        typer.echo("\n".join(_lines(trial, notes, written)))
    if not trial.is_better:
        raise typer.Exit(NOT_BETTER)


def _in_use(
    config: Path | None, calibrator: str | None, output: Path | None
) -> tuple[TunableCheckpoint, Recalibration | None]:
    """Return the checkpoint to start from, and the recalibration in force (or None).

    A checkpoint named by `calibrator` has none. Raises TrainingError for an output folder that is
    not empty; ends the process where the configuration names no checkpoint.
    """
    from calibrator import TunableCheckpoint, check_output, resolve_recalibrations
    from proxy.config.settings.engines import InProcess
    from proxy.config.setup import load_store_config

    if output is not None:
        check_output(output)
    if calibrator is not None:
        return TunableCheckpoint(calibrator), None
    with exit_on_errors():
        section = load_store_config(config).calibrator
    if not isinstance(section.engine, InProcess) and not section.names_checkpoint:
        message = f"scores come from {section.summary}; say which checkpoint that is: --calibrator"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    current = resolve_recalibrations(section.recalibration).alone
    return TunableCheckpoint(section.checkpoint), current


def _from_files(
    files: list[Path], start: TunableCheckpoint, current: Recalibration | None
) -> tuple[TuningTrial, dict[str, Any], list[str]]:
    """Learn from rows; return the trial, facts about the rows, and notes on rows left out."""
    from calibrator import (
        TUNING_STEPS,
        Progress,
        bad_row_sentences,
        copies_in,
        load_labelled,
    )
    from proxy.learning.tuning import learn_tuning_of_rows

    labelled, bad = load_labelled(files)
    rows = [row for row in labelled if start.learns_from(row.item("served"))]
    with Progress("reading", len(rows)) as bar:
        readings = start.read_rows(rows, bar.advance)
    with Progress("learning", TUNING_STEPS) as bar:
        trial = learn_tuning_of_rows(rows, readings, current, progress=bar.advance)
    questions = len({row.question_id for row in rows})
    sentences = bad_row_sentences(bad, len(labelled) + len(bad))
    problems = [*sentences, *copies_in(labelled).sentences()]
    if calls := len(labelled) - len(rows):
        problems.append(
            f"{plural(calls, 'row calls', 'rows call')} tools, which is judged by parts that "
            "are not fine-tuned"
        )
    return trial, {"rows": {"labels": len(rows), "questions": questions}}, problems


def _gather_replies(
    config: Path | None, since: str, start: TunableCheckpoint, held_only: bool
) -> TuningData:
    """Read the labelled replies of the last `since` from the store, as the tower reads them."""
    from calibrator import Progress
    from proxy.learning.tuning import gather
    from proxy.store.verdicts.labels import all_verdicts

    begin = time.time() - seconds(since)
    with opened_record(config) as findings:
        total = len(all_verdicts(findings.engine, begin))
        with Progress("reading verdicts", total) as bar:
            return gather(
                findings.engine,
                begin,
                start,
                is_held_only=held_only,
                progress=bar.advance,
            )


def _run_trial(replies: TuningData, current: Recalibration | None, held_only: bool) -> TuningTrial:
    """Tune on these replies, compare with now and with a recalibration, and return the trial."""
    from calibrator import TUNING_STEPS, Progress
    from proxy.learning.tuning import learn_tuning

    with Progress("learning", TUNING_STEPS) as bar:
        return learn_tuning(replies, current, is_held_only=held_only, progress=bar.advance)


def quality_of(trial: Trial) -> dict[str, float]:
    """Return the figures of a checkpoint's card: AUROC, Brier score, ECE and number of labels.

    They are those after tuning, on verdicts that it was not fitted on.
    """
    figures = trial.after
    return {
        "auroc": round(figures.auroc, 4),
        "brier": round(figures.brier, 4),
        "ece": round(figures.ece, 4),
        "rows": trial.labels,
    }


def _lines(trial: TuningTrial, notes: list[str], folder: Path | None) -> Iterator[str]:
    """Yield the lines of a trial for people; `folder` is where the result is, None if nowhere."""
    now, less, beside = trial.now, trial.recalibration, trial.beside
    yield f"{plural(now.labels, 'label')}, worth {now.effective_labels:.0f} of equal weight"
    yield from (f"  left out: {note}" for note in notes)
    yield f"{'on labels that were not fitted on':38}{'AUROC':>8}{'ECE':>8}{'log loss':>10}"
    rows = (("now", now.before), ("recalibrated", less.after), ("fine-tuned", now.after))
    for name, figures in rows:
        yield f"  {name:36}{figures.auroc:8.3f}{figures.ece:8.3f}{figures.log_loss:10.4f}"
    yield f"evidence against now {now.evidence:.3g}, against recalibrated {beside.evidence:.3g}"
    if not trial.is_better:
        yield _why_not(trial)
    if folder is None and trial.is_better:
        yield "better beyond noise; nothing was written, as asked"
    if folder is not None:
        yield f"written to {folder}; use it with `calibrator: {{checkpoint: {folder}}}` and restart"
        yield (
            "  it is another version: remove `recalibration:`, which was for the one before, and "
            "certify again once it has scored; the old line brings the old one back"
        )


def _why_not(trial: TuningTrial) -> str:
    """Return a sentence on why the tuned calibrator was not better."""
    if trial.recalibration.is_better:
        return (
            "not better: a recalibration of these labels does as well; "
            "run `pinocchio recalibrate --from-store`"
        )
    if trial.now.is_better:
        return (
            "not enough: better than now, but not beyond noise than a recalibration; more "
            "labels will tell"
        )
    return "not better beyond noise; what counts now still counts"
