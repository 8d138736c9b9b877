"""`pinocchio train --from-store`: the calibrator in use learns from the verdicts in the store.

Without `--from-store` the command is the calibrator's own `train`, which learns from files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from proxy.commands import ConfigOption, errors_told, stop
from proxy.errors import ExitStatus
from proxy.record_commands import opened_record, seconds

if TYPE_CHECKING:
    from calibrator import Recalibration, Trial, TunableCheckpoint, TuningTrial
    from proxy.learning.tuning import Gathered

cli = typer.Typer()

NOT_BETTER = 3
FROM_STORE = "--from-store"
EPILOG = f"With {FROM_STORE} it learns from verdicts: pinocchio train {FROM_STORE} --help"


class FilesOrStore(TyperCommand):
    """The calibrator's command, unless the store is asked for: each with its own options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        if FROM_STORE in args:
            return super().make_context(info_name, args, parent, **extra)
        from calibrator import cli as calibrator_cli

        commands: Any = typer.main.get_command(calibrator_cli)
        of_files = commands.commands["train"]
        of_files.epilog = EPILOG
        return of_files.make_context(info_name, args, parent, **extra)


@cli.command(cls=FilesOrStore)
def train(
    from_store: Annotated[bool, typer.Option(FROM_STORE, help="Learn from verdicts.")] = False,
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
    """Fine-tune the configured calibrator on the verdicts in the store.

    Written only where it is better, on verdicts that it did not see, than what counts now and than
    a recalibration alone; exit status 3 where it is not.
    """
    if (output is None) != dry_run:
        message = "say where to write with -o, or compare alone with --dry-run"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with _sentences():
        from calibrator import check_output

        if output is not None:
            check_output(output)
        start, current = _in_use(config)
        gathered = _gathered(config, store, since, start, held_only)
        learnt = _tried(gathered, start, current, held_only)
        is_written = output is not None and (learnt.is_better or even_if_worse)
        if output is not None and is_written:
            facts = {"store": gathered.facts(), "ridge": learnt.tuned.ridge}
            start.write(output, learnt.tuned, facts, {"verdicts": quality_of(learnt.now)})
    _tell(learnt, gathered, output if is_written else None, as_json)
    if not learnt.is_better:
        raise typer.Exit(NOT_BETTER)


@contextmanager
def _sentences() -> Iterator[None]:
    """What the calibrator's side raises ends the process with its sentence."""
    from calibrator import CalibratorError

    try:
        yield
    except (CalibratorError, OSError) as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error


def _in_use(config: Path | None) -> tuple[TunableCheckpoint, Recalibration | None]:
    """The configured checkpoint and recalibration."""
    from calibrator import TunableCheckpoint, resolve_recalibration
    from proxy.server import load_store_config

    with errors_told():
        named = load_store_config(config).calibrator
    current = resolve_recalibration(named.recalibration) if named.recalibration else None
    return TunableCheckpoint(named.checkpoint), current


def _gathered(
    config: Path | None, store: str | None, since: str, start: TunableCheckpoint, held_only: bool
) -> Gathered:
    from calibrator import progress_bar
    from proxy.learning.tuning import gather
    from proxy.store.labels import all_verdicts

    begin = time.time() - seconds(since)
    with opened_record(config, store) as findings:
        total = len(all_verdicts(findings.engine, begin))
        with progress_bar("reading verdicts", total) as bar:
            return gather(
                findings.engine,
                begin,
                start,
                is_held_only=held_only,
                progress=lambda count: bar.advance(0, count),
            )


def _tried(
    gathered: Gathered, start: TunableCheckpoint, current: Recalibration | None, held_only: bool
) -> TuningTrial:
    from calibrator import TUNING_STEPS, progress_bar
    from proxy.learning.tuning import learn_tuning

    with progress_bar("learning", TUNING_STEPS) as bar:
        return learn_tuning(
            gathered,
            start,
            current,
            is_held_only=held_only,
            progress=lambda: bar.advance(0, 1),
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


def _tell(learnt: TuningTrial, gathered: Gathered, folder: Path | None, as_json: bool) -> None:
    if as_json:
        written = {"written": str(folder) if folder else None}
        values = {**gathered.facts(), "left_out": gathered.left_out.as_dict(), **learnt.as_dict()}
        typer.echo(json.dumps({**written, **values}))
        return
    for line in _lines(learnt, gathered, folder):
        typer.echo(line)


def _lines(learnt: TuningTrial, gathered: Gathered, folder: Path | None) -> Iterator[str]:
    now, less, beside = learnt.now, learnt.recalibration, learnt.beside
    yield f"{now.labels} verdicts, worth {now.effective_labels:.0f} of equal weight"
    for sentence in gathered.left_out.sentences():
        yield f"  left out: {sentence}"
    yield f"{'on verdicts that were not fitted on':38}{'AUROC':>8}{'ECE':>8}{'log loss':>10}"
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
            "not better: a recalibration of these verdicts does as well; "
            "run `pinocchio recalibrate --from-store`"
        )
    if learnt.now.is_better:
        return (
            "not enough: better than now, but not beyond noise than a recalibration; more "
            "verdicts will tell"
        )
    return "not better beyond noise; what counts now still counts"
