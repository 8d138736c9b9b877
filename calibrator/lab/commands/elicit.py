"""`pinocchio elicit`: models' statements about replies, as fields of rows (paper, baselines)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrator import ROWS_HELP, Progress, check_target, file_option, writer
from calibrator.lab.commands.collect import FAILED, INTERRUPTED, input_error, router_to, say
from policies import plural
from proxy.commands.opening.exits import (
    ConfigOption,
    exit_on_calibrator_errors,
    exit_on_errors,
    plain,
)

if TYPE_CHECKING:
    from calibrator import Row
    from calibrator.lab.collecting.eliciting import Elicitation, ElicitedRows
    from proxy.upstreams.router import Router


def elicit(
    files: Annotated[list[Path], typer.Argument(metavar="ROWS", help=ROWS_HELP)],
    output: Annotated[Path, file_option("-o", "--output", help="The rows with their new fields.")],
    stated: Annotated[
        bool, typer.Option("--stated", help="Ask the model that replied how sure it is.")
    ] = False,
    judge: Annotated[
        str, typer.Option(help="Ask this model how likely each reply is right; it sees no answer.")
    ] = "",
    samples: Annotated[
        int, typer.Option(min=0, max=100, help="Ask each question this many times more.")
    ] = 0,
    model: Annotated[
        str, typer.Option(help="Ask this model in place of the one that replied (a proxy).")
    ] = "",
    config: ConfigOption = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=256, help="Calls at a time; the paper's 20.")
    ] = 20,
) -> None:
    """Ask models about labelled replies: stated confidence, a judge's estimate, more samples.

    Answers are kept beside the output: the same command goes on after an interruption.
    """
    from calibrator import load_labelled
    from calibrator.lab.collecting.eliciting import Elicitation, lines_of

    with exit_on_errors(), exit_on_calibrator_errors():
        elicitation = Elicitation(stated, judge, samples, model)
        if not (stated or judge or samples):
            raise input_error("say what to ask: --stated, --judge MODEL, --samples N")
        check_target(output, files)
        rows, bad = load_labelled(files, "ignore")
        router = router_to(_models(elicitation, rows), config)
        found = _run(rows, elicitation, router, output, concurrency)
        with writer(output) as stream:
            stream.write(lines_of(found))
    _print_summary(found, output)
    for error in bad[:3]:
        say(str(error))
    if bad or found.failed:
        raise typer.Exit(FAILED)


def _models(elicitation: Elicitation, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the models to ask about these rows; raises StartupError for a row without any."""
    for name in elicitation.models(rows):
        if not name:
            raise input_error("a row has no model to ask; name one with --model")
        yield name


def _run(
    rows: Sequence[Row], elicitation: Elicitation, router: Router, output: Path, concurrency: int
) -> ElicitedRows:
    """Ask the models about the rows while progress is shown, and close the router.

    Answers are kept in a file beside `output`. Exits with status 130 after an interruption.
    """
    from calibrator.lab.collecting.eliciting import elicit as run

    kept_at = output.with_name(f"{output.name}.answers.jsonl")

    async def elicit_and_close() -> ElicitedRows:
        """Ask about all rows and close the router, also after an error."""
        try:
            return await run(rows, elicitation, router, kept_at, Progress, concurrency)
        finally:
            await router.aclose()

    try:
        return asyncio.run(elicit_and_close())
    except KeyboardInterrupt as error:
        say("\npinocchio: interrupted; what is answered is kept, the same command goes on")
        raise typer.Exit(INTERRUPTED) from error


def _print_summary(found: ElicitedRows, output: Path) -> None:
    """Print how many rows have each new field, and what failed."""
    for name, count in sorted(found.counts.items()):
        typer.echo(f"{name}: {plural(count, 'row')}")
    typer.echo(f"written to {output}")
    if found.unread:
        say(f"{plural(found.unread, 'stated confidence')} without a number")
    if found.retries:
        say(f"{plural(found.retries, 'call was', 'calls were')} tried again")
    for what, count in sorted(found.failed.items()):
        say(f"{plural(count, 'call')} without an answer: {plain(what)}")
