"""`pinocchio train --from-store`, or `--tune FILE`: the calibrator in use learns from verdicts.

Without either the command is the calibrator's own `train`, which begins from nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from calibrator import ROWS_HELP
from policies import counted
from proxy.commands.record import opened_record, seconds
from proxy.commands.serve_and_reviews import ConfigOption, calibrator_errors_told, errors_told, stop
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from calibrator import Recalibration, Trial, TunableCheckpoint, TuningTrial
    from proxy.learning.tuning import Gathered

cli = typer.Typer()

NOT_BETTER = 3
FROM_STORE, TUNE = "--from-store", "--tune"
EPILOG = (
    f"To fine-tune the calibrator in use on verdicts: {FROM_STORE}, or {TUNE} FILE; "
    f"pinocchio train {FROM_STORE} --help"
)


class FilesOrStore(TyperCommand):
    """The calibrator's command, unless the store is asked for: each with its own options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        if any(each.partition("=")[0] in (FROM_STORE, TUNE) for each in args):
            return super().make_context(info_name, args, parent, **extra)
        from calibrator import cli as calibrator_cli

        commands: Any = typer.main.get_command(calibrator_cli)
        of_files = commands.commands["train"]
        of_files.epilog = EPILOG
        return of_files.make_context(info_name, args, parent, **extra)


@cli.command(cls=FilesOrStore)
def train(
    from_store: Annotated[bool, typer.Option(FROM_STORE, help="On the store's verdicts.")] = False,
    tune: Annotated[
        list[Path] | None, typer.Option(TUNE, help=f"On these rows instead. {ROWS_HELP}")
    ] = None,
    calibrator: Annotated[
        str | None, typer.Option(help="Begin with this one, not with the configured one.")
    ] = None,
    config: ConfigOption = None,
    store: Annotated[
        str | None, typer.Option(help="The URL of another store than the configured one.")
    ] = None,
    since: Annotated[str, typer.Option(help="Replies asked for since, such as 30d.")] = "30d",
    held_only: Annotated[bool, typer.Option("--held-only", help="For held replies alone.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The new checkpoint's folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare, and write nothing.")] = False,
    even_if_worse: Annotated[
        bool, typer.Option("--even-if-worse", help="Write it in any case, for a study.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Fine-tune the configured calibrator on the verdicts in the store, or on labelled rows.

    Written only where it is better, on labels that it did not see, than what counts now and than a
    recalibration alone; exit status 3 where it is not.
    """
    if from_store == bool(tune):
        message = f"say what to learn from: {FROM_STORE}, or {TUNE} FILE"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    if (output is None) != dry_run:
        message = "say where to write with -o, or compare alone with --dry-run"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with calibrator_errors_told():
        start, current = _in_use(config, calibrator, output)
        if tune:
            learnt, facts, notes = _from_files(tune, start, current)
        else:
            gathered = _gathered(config, store, since, start, held_only)
            learnt = _tried(gathered, start, current, held_only)
            facts, notes = {"store": gathered.facts()}, list(gathered.left_out.sentences())
        is_written = output is not None and (learnt.is_better or even_if_worse)
        if output is not None and is_written:
            told = {**facts, "ridge": learnt.tuned.ridge}
            start.write(output, learnt.tuned, told, {"verdicts": quality_of(learnt.now)})
    written = output if is_written else None
    if as_json:
        told = {"written": str(written) if written else None, "left_out": notes, **facts}
        typer.echo(json.dumps({**told, **learnt.as_dict()}))
    else:
        typer.echo("\n".join(_lines(learnt, notes, written)))
    if not learnt.is_better:
        raise typer.Exit(NOT_BETTER)


def _in_use(
    config: Path | None, calibrator: str | None, output: Path | None
) -> tuple[TunableCheckpoint, Recalibration | None]:
    """The checkpoint to begin with, and the recalibration where it is the configured one."""
    from calibrator import TunableCheckpoint, check_output, resolve_recalibration
    from proxy.config.engines import InProcess
    from proxy.config.setup import load_store_config

    if output is not None:
        check_output(output)
    if calibrator is not None:
        return TunableCheckpoint(calibrator), None
    with errors_told():
        named = load_store_config(config).calibrator
    if not isinstance(named.engine, InProcess) and not named.names_checkpoint:
        message = f"scores come from {named.summary}; say which checkpoint that is: --calibrator"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    current = resolve_recalibration(named.recalibration) if named.recalibration else None
    return TunableCheckpoint(named.checkpoint), current


def _from_files(
    files: list[Path], start: TunableCheckpoint, current: Recalibration | None
) -> tuple[TuningTrial, dict[str, Any], list[str]]:
    """What rows teach, facts of them, and what was wrong with others."""
    from calibrator import TUNING_STEPS, Progress, load_labelled
    from proxy.learning.tuning import learn_tuning_of_rows

    labelled, bad = load_labelled(files)
    rows = [row for row in labelled if start.learns_from(row.item("served"))]
    with Progress("reading", len(rows)) as bar:
        found, own = start.read_rows(rows, bar.advance)
    with Progress("learning", TUNING_STEPS) as bar:
        learnt = learn_tuning_of_rows(rows, found, own, start, current, progress=bar.advance)
    questions = len({row.question_id for row in rows})
    problems = [str(each) for each in bad]
    if calls := len(labelled) - len(rows):
        problems.append(
            f"{counted(calls, 'row calls', 'rows call')} tools, which is judged by parts that "
            "are not fine-tuned"
        )
    return learnt, {"rows": {"labels": len(rows), "questions": questions}}, problems


def _gathered(
    config: Path | None, store: str | None, since: str, start: TunableCheckpoint, held_only: bool
) -> Gathered:
    from calibrator import Progress
    from proxy.learning.tuning import gather
    from proxy.store.verdicts.labels import all_verdicts

    begin = time.time() - seconds(since)
    with opened_record(config, store) as findings:
        total = len(all_verdicts(findings.engine, begin))
        with Progress("reading verdicts", total) as bar:
            return gather(
                findings.engine,
                begin,
                start,
                is_held_only=held_only,
                progress=bar.advance,
            )


def _tried(
    gathered: Gathered, start: TunableCheckpoint, current: Recalibration | None, held_only: bool
) -> TuningTrial:
    from calibrator import TUNING_STEPS, Progress
    from proxy.learning.tuning import learn_tuning

    with Progress("learning", TUNING_STEPS) as bar:
        return learn_tuning(
            gathered,
            start,
            current,
            is_held_only=held_only,
            progress=bar.advance,
        )


def quality_of(found: Trial) -> dict[str, float]:
    """What a checkpoint's card says of it, on verdicts that it was not fitted on."""
    figures = found.after
    return {
        "auroc": round(figures.auroc, 4),
        "brier": round(figures.brier, 4),
        "ece": round(figures.ece, 4),
        "rows": found.labels,
    }


def _lines(learnt: TuningTrial, notes: list[str], folder: Path | None) -> Iterator[str]:
    now, less, beside = learnt.now, learnt.recalibration, learnt.beside
    yield f"{counted(now.labels, 'label')}, worth {now.effective_labels:.0f} of equal weight"
    yield from (f"  left out: {note}" for note in notes)
    yield f"{'on labels that were not fitted on':38}{'AUROC':>8}{'ECE':>8}{'log loss':>10}"
    rows = (("now", now.before), ("recalibrated", less.after), ("fine-tuned", now.after))
    for name, figures in rows:
        yield f"  {name:36}{figures.auroc:8.3f}{figures.ece:8.3f}{figures.log_loss:10.4f}"
    yield f"evidence against now {now.evidence:.3g}, against recalibrated {beside.evidence:.3g}"
    if not learnt.is_better:
        yield _why_not(learnt)
    if folder is None and learnt.is_better:
        yield "better beyond noise; nothing was written, as asked"
    if folder is not None:
        yield f"written to {folder}; use it with `calibrator: {{checkpoint: {folder}}}` and restart"
        yield (
            "  it is another version: remove `recalibration:`, which was for the one before, and "
            "certify again once it has scored; the old line brings the old one back"
        )


def _why_not(learnt: TuningTrial) -> str:
    if learnt.recalibration.is_better:
        return (
            "not better: a recalibration of these labels does as well; "
            "run `pinocchio recalibrate --from-store`"
        )
    if learnt.now.is_better:
        return (
            "not enough: better than now, but not beyond noise than a recalibration; more "
            "labels will tell"
        )
    return "not better beyond noise; what counts now still counts"
