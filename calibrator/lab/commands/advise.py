"""`pinocchio advise`: leave a calibrator alone, recalibrate, fine-tune, or collect more labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    Calibrator,
    Files,
    RecalibrationFile,
    exit_with_bad,
    refuse,
    resumable,
    say_rows,
    sentences,
)
from calibrator.lab.commands.studies.others import OpinionWish, advise_on_opinions
from calibrator.metrics.numbers import figure
from calibrator.rows.files import check_readable, json_line

if TYPE_CHECKING:
    from calibrator.lab.judging.evaluation.advice import Advice
    from calibrator.rows.rows import Row
    from calibrator.rows.scores import Scores

SOMETHING_TO_DO = 3
MAX_ERROR = 0.05
OpinionFrom = Annotated[
    str | None, typer.Option(metavar="MODEL", help="The model that would be asked; else any other.")
]
MaxError = Annotated[
    float | None, typer.Option(help="With --second-opinion: errors allowed in what is kept: 0.05.")
]
Price = Annotated[
    float | None, typer.Option(help="With --second-opinion: what one call costs, to add it up.")
]
SENTENCES = {
    "leave": "leave it alone",
    "recalibrate": "recalibrate",
    "fine_tune": "fine-tune",
    "collect": "collect more labels",
}


def advise(
    context: typer.Context,
    files: Files,
    calibrator: Calibrator = "embedded",
    scores: Annotated[
        Path | None, typer.Option(help="Take the confidences of this file instead of scoring.")
    ] = None,
    recalibration: RecalibrationFile = None,
    second_opinion: Annotated[
        bool,
        typer.Option(
            "--second-opinion",
            help="Say instead what other models' replies to the same questions are worth, and "
            "about which replies a policy should ask for one.",
        ),
    ] = False,
    opinion_from: OpinionFrom = None,
    max_error: MaxError = None,
    price: Price = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether to recalibrate, fine-tune or leave a calibrator alone, by labelled replies.

    Exit status 0: leave it alone; 3: there is something to do; 1: rows that could not be used;
    2: nothing could be read.
    """
    from calibrator.lab.judging.evaluation.advice import advise as run
    from calibrator.rows.selection import load_labelled

    if second_opinion:
        refuse(context, ["scores", "recalibration"], "does not go with --second-opinion")
        wish = OpinionWish(opinion_from, max_error or MAX_ERROR, price)
        is_worth_it = advise_on_opinions(files, calibrator, wish, as_json)
        raise typer.Exit(SOMETHING_TO_DO if is_worth_it else 0)
    refuse(context, ["opinion_from", "max_error", "price"], "goes with --second-opinion")
    with sentences(), resumable():
        check_readable([*files, scores])
        rows, bad = load_labelled(files)
        say_rows(rows, bad)
        found = _scores(rows, scores, calibrator, recalibration)
        advice = run(rows, found.confidence, own_auroc(calibrator) if scores is None else math.nan)
    command = next_command(advice, files, calibrator)
    if as_json:
        fields = {"calibrator": found.name, **advice.as_dict(), "command": command}
        typer.echo(json_line(fields), nl=False)
    else:
        typer.echo("\n".join(_lines(advice, found.name, command)))
    exit_with_bad(bad)
    if advice.action != "leave":
        raise typer.Exit(SOMETHING_TO_DO)


def _scores(rows: Sequence[Row], path: Path | None, calibrator: str, curve: Path | None) -> Scores:
    """Return the scores of the file `path`, or else of the calibrator, for replies alone.

    `curve` is a file of recalibration. Scores that use other replies have their own recalibration,
    so they are left out.
    """
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import cache_scores
    from calibrator.rows.scores import read_kinds, score_rows

    if path is not None:
        return read_kinds(path, rows)[0]
    scorer = cache_scores(load_scorer(calibrator, recalibration=curve), "auto")
    with Progress("scoring", len(rows)) as progress:
        return score_rows(scorer, rows, progress=progress.advance)


def own_auroc(calibrator: str) -> float:
    """Return the AUROC on the checkpoint's card, the lowest of several; nan without any."""
    from calibrator.loading import checkpoint_card

    quality: Any = (checkpoint_card(calibrator) or {}).get("quality") or {}
    stated = [each.get("auroc") for each in quality.values() if isinstance(each, dict)]
    numbers = [float(each) for each in stated if isinstance(each, int | float)]
    return min(numbers, default=math.nan)


def next_command(advice: Advice, files: Sequence[Path], calibrator: str) -> str | None:
    """Return the command to run now, or None where there is nothing to run."""
    paths = " ".join(map(str, files))
    named = "" if calibrator == "embedded" else f" --calibrator {calibrator}"
    if advice.action == "recalibrate":
        kind = "" if advice.kind == "platt" else f" --kind {advice.kind}"
        return f"pinocchio recalibrate {paths}{named}{kind} -o recalibration.json"
    if advice.action == "fine_tune":
        return _tuning_command(paths, calibrator)
    return None


def _tuning_command(paths: str, calibrator: str) -> str:
    """Return the command that tunes an embedded calibrator, or trains a language model on."""
    from calibrator.loading import checkpoint_card

    card = checkpoint_card(calibrator) or {}
    if card.get("architecture", "embedded") != "embedded":
        return f"pinocchio train {paths} --start {calibrator} -o tuned"
    return f"pinocchio tune {paths} --calibrator {calibrator} -o tuned"


def _evidence(value: float) -> str:
    """Return a Bayes factor for people: three digits, and `over 1,000,000` beyond."""
    return "over 1,000,000" if value > 1e6 else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _lines(advice: Advice, name: str, command: str | None) -> Iterator[str]:
    """Yield the lines of the advice for a terminal; `command` is the one to run next."""
    from calibrator.recalibration.trial import ENOUGH

    if advice.is_chance:
        yield f"{name}: do not let a threshold on it decide; {SENTENCES[advice.action]}"
    else:
        yield f"{name}: {SENTENCES[advice.action]}"
    yield f"  {advice.why}"
    if advice.is_chance:
        yield (
            "  until it ranks, let policies go by tools, models and domains; a recalibration would "
            "give all replies nearly the same number"
        )
        yield (
            "  fine-tune it on labels of your own, or take a calibrator that is a language model, "
            "and run this again"
        )
    own = ""
    if math.isfinite(advice.own_auroc):
        own = f" (on its own card, for another mix of replies: {advice.own_auroc:.3f})"
    yield f"  {advice.rows:,} rows of {advice.questions:,} questions, {advice.right:.1%} correct"
    if math.isfinite(advice.ece):
        yield (
            f"  AUROC {advice.auroc.value:.3f}{own}, ECE {advice.ece:.3f}, Brier {advice.brier:.3f}"
        )
    elif math.isfinite(advice.auroc.value):
        value, low, high = (figure(each) for each in astuple(advice.auroc))
        yield f"  so far AUROC {value}, by these labels from {low} to {high}"
    if advice.is_delivered_only:
        yield (
            "  all of these were delivered: held replies, whose confidences a policy sorted out, "
            "are missing, so AUROC is lower than that of all replies"
        )
    for kind, tried in advice.trials.items():
        strength = "" if tried.evidence >= ENOUGH else ", too weak to act on"
        yield (
            f"  {kind}: ECE {tried.after.ece:.3f} on rows that were not fitted on, evidence "
            f"{_evidence(tried.evidence)} (from {ENOUGH:g} on it counts{strength})"
        )
    for each in advice.expected:
        yield (
            f"  with {each.labels:,} labels: ECE {figure(each.platt)} (Platt), "
            f"{figure(each.isotonic)} (isotonic)"
        )
    if advice.more_labels:
        yield f"  about {advice.more_labels:,} more labels are needed"
    if command:
        yield f"next: {command}"
