"""The work of `pinocchio recalibrate FILES`: it fits a recalibration on labelled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    check_target,
    exit_with_bad,
    print_table,
    say,
    say_rows,
    sentences,
)
from calibrator.errors import JudgingError
from calibrator.metrics.numbers import figure
from calibrator.rows.files import check_readable, json_line

if TYPE_CHECKING:
    from calibrator.errors import RowError
    from calibrator.metrics.intervals import Interval
    from calibrator.recalibration.curves import By, Kind, Of
    from calibrator.recalibration.signals import LabelledSignals
    from calibrator.rows.rows import Row
    from calibrator.rows.scores import Scores
    from calibrator.scorer import Scorer


def recalibrate(
    files: Sequence[Path],
    output: Path | None,
    calibrator: str,
    scores: Path | None,
    kind: Kind,
    by: By | None,
    study: str | None,
    of: Of,
    as_json: bool,
) -> None:
    """Fit a recalibration on labelled rows, and print its gains; write it, or only study it.

    `of` says whether it is for scores of replies alone, for scores that use the `others` of rows,
    or whether it joins the signals of rows to either. Platt needs about 100 labels. Exits with a
    sentence where it fails.
    """
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import cache_scores
    from calibrator.rows.scores import image_use, read_one_kind
    from calibrator.rows.selection import load_labelled

    if (output is None) == (study is None):
        say("pinocchio: say where to write with -o, or ask for a report with --study")
        raise typer.Exit(2)
    knows_others = of == "others"
    with sentences():
        check_target(output, [*files, scores])
        check_readable([*files, scores])
        if of == "signals":
            if output is None:
                raise JudgingError("--study is about curves; leave out --signals")
            exit_with_bad(_join_signals(files, output, calibrator, scores, as_json))
            return
        if scores:
            rows, bad = load_labelled(files, "read")
            say_rows(rows, bad)
            rows, found = read_one_kind(scores, rows, knows_others=knows_others)
        else:
            scorer = cache_scores(load_scorer(calibrator), "auto")
            rows, bad = load_labelled(files, image_use(scorer))
            say_rows(rows, bad)
            rows, found = _scores(rows, scorer, knows_others)
        if study:
            _report(rows, found, study, as_json)
        elif output:
            _fit(rows, found, output, kind, by, as_json)
    exit_with_bad(bad)


def _scores(rows: Sequence[Row], scorer: Scorer, knows_others: bool) -> tuple[list[Row], Scores]:
    """Return the rows that have a score of the wanted kind, and the scores, in the same order.

    With `knows_others` these are rows with replies of other models, scored with them; else all
    rows, scored without them. Raises JudgingError where scores should use other replies and cannot.
    """
    from calibrator.rows.scores import score_kinds
    from calibrator.scorer import opinion_of

    if knows_others and not opinion_of(scorer):
        raise JudgingError(f"{scorer.name} does not read what others replied")
    rows = [row if knows_others else replace(row, others=()) for row in rows]
    if knows_others and not (rows := [row for row in rows if row.others]):
        raise JudgingError("no row has 'others', replies of other models to its question")
    with Progress("scoring", len(rows)) as progress:
        *_, found = score_kinds(scorer, rows, progress=progress.advance)
    return rows, found


def _join_signals(
    files: Sequence[Path],
    output: Path,
    calibrator: str,
    scores: Path | None,
    as_json: bool,
) -> list[RowError]:
    """Fit weights of signals, write them to `output` and print their gain; return bad rows' errors.

    Signals are a judge's P(correct) and log-probabilities. Raises JudgingError where no row has
    any.
    """
    from calibrator.loading import load_scorer
    from calibrator.metrics.metrics import brier, ece
    from calibrator.recalibration.fit import observed_rows
    from calibrator.recalibration.signals import confidences, cross_fitted_signals, fit_signals
    from calibrator.recalibration.trial import log_loss_gain
    from calibrator.rows.kept_scores import cache_scores
    from calibrator.rows.rows import labels_of
    from calibrator.rows.scores import image_use
    from calibrator.rows.selection import load_labelled

    scorer = None if scores else cache_scores(load_scorer(calibrator), "auto")
    every, bad = load_labelled(files, "read" if scorer is None else image_use(scorer))
    say_rows(every, bad)
    rows = [row for row in every if row.signals.kinds]
    if not rows:
        raise JudgingError("no row has 'judged' and 'judge', or 'logprobs'")
    replies = _labelled_signals(rows, scorer, scores)
    weights = fit_signals(replies)
    weights.save(output)
    labels, before = labels_of(rows), confidences(replies)
    after = cross_fitted_signals(replies, [row.question_id for row in rows])
    figures: dict[str, Any] = {"name": weights.name, "labels": weights.labels}
    figures |= {"numbers": sorted(weights.names())}
    for name, measure in (("ece", ece), ("brier", brier)):
        figures |= {f"{name}_before": round(measure(labels, before), 4)}
        figures |= {f"{name}_after": round(measure(labels, after), 4)}
    figures |= _gain_figures(log_loss_gain(observed_rows(rows, before), before, after))
    if as_json:
        typer.echo(json_line(figures), nl=False)
    else:
        typer.echo(f"{weights.name}: fitted on {weights.labels} labels, for {weights.calibrator}")
        typer.echo("".join(f"  gives {name}\n" for name in figures["numbers"]), nl=False)
        _print_gains(figures)
        typer.echo(f"  use it with `calibrator: {{recalibration: {output}}}` in proxy.yaml")
    return bad


def _labelled_signals(
    rows: Sequence[Row], scorer: Scorer | None, scores: Path | None
) -> list[LabelledSignals]:
    """Return each row's label, confidence without signals, its calibrator and its signals.

    Confidences are read from the file `scores` or, where that is None, computed by `scorer`.
    """
    from calibrator.recalibration.signals import LabelledSignals
    from calibrator.rows.scores import read_with_provenance, score_items
    from calibrator.scorer import provenance

    if scorer is None:
        assert scores is not None
        numbers = read_with_provenance(scores, rows)
    else:
        with Progress("scoring", len(rows)) as progress:
            found = score_items(scorer, [row.item("served") for row in rows], progress.advance)
        numbers = [(each.confidence, provenance(scorer, each)) for each in found]
    return [
        LabelledSignals(bool(row.correct), number, name, row.signals)
        for row, (number, name) in zip(rows, numbers, strict=True)
    ]


def _print_gains(figures: Mapping[str, Any]) -> None:
    """Print ECE, Brier score and gain of log loss, of fits on the other questions.

    `figures` has `ece_before`, `ece_after`, `brier_before`, `brier_after` and `gain` with its
    bounds.
    """
    typer.echo(
        f"  on rows that were not fitted on: ECE {figures['ece_before']:.3f} -> "
        f"{figures['ece_after']:.3f}, Brier {figures['brier_before']:.3f} -> "
        f"{figures['brier_after']:.3f}"
    )
    is_proven = figures["gain_low"] > 0
    typer.echo(
        f"  gain of log loss {figures['gain']:+.4f}, 95 % between {figures['gain_low']:+.4f} and "
        f"{figures['gain_high']:+.4f}{'' if is_proven else ': may be no gain'}"
    )


def _gain_figures(gain: Interval) -> dict[str, float]:
    """Return `gain` (of log loss), `gain_low` and `gain_high` (its 95 % interval) for JSON.

    They are rounded to four places.
    """
    return {
        "gain": round(gain.value, 4),
        "gain_low": round(gain.low, 4),
        "gain_high": round(gain.high, 4),
    }


def _fit(
    rows: Sequence[Row], scores: Scores, output: Path, kind: Kind, by: By | None, as_json: bool
) -> None:
    """Fit a recalibration, write it to `output`, and print its figures as text or JSON.

    `by` fits a curve for each model, domain or team besides. The figures are those of cross-
    fitting.
    """
    from calibrator.metrics.metrics import brier, ece
    from calibrator.recalibration.fit import cross_fitted, fit_recalibration, observed_rows
    from calibrator.recalibration.trial import log_loss_gain
    from calibrator.rows.rows import labels_of

    found = fit_recalibration(
        rows, scores.confidence, kind=kind, by=by, calibrator=scores.calibrator
    )
    found.save(output)
    y, after = labels_of(rows), cross_fitted(rows, scores.confidence, kind=kind, by=by)
    figures = {
        "name": found.name,
        "labels": found.labels,
        "groups": sorted(found.groups),
        "ece_before": round(ece(y, scores.confidence), 4),
        "ece_after": round(ece(y, after), 4),
        "brier_before": round(brier(y, scores.confidence), 4),
        "brier_after": round(brier(y, after), 4),
        **_gain_figures(
            log_loss_gain(observed_rows(rows, scores.confidence), scores.confidence, after)
        ),
    }
    if as_json:
        typer.echo(json_line(figures), nl=False)
        return
    own = f", {len(found.groups)} with curves of their own" if by else ""
    typer.echo(f"{found.name}: fitted on {found.labels} labels{own}, for {scores.name}")
    _print_gains(figures)
    typer.echo(f"  use it with `calibrator: {{recalibration: {output}}}` in proxy.yaml")


def _report(rows: Sequence[Row], scores: Scores, by: Any, as_json: bool) -> None:
    """Print what recalibrating on a hundred labels gains, for each model, benchmark or domain.

    `by` is one of these three words. Exits with status 2 where no group is large enough.
    """
    from calibrator.recalibration.study import LABELS, MIN_ROWS, SPLITS, mean_of, study

    found = study(rows, scores.confidence, by)
    if not found:
        say(f"pinocchio: no {by} has {MIN_ROWS} rows of both labels")
        raise typer.Exit(2)
    lines = [*found, mean_of(found)]
    if as_json:
        for one in lines:
            typer.echo(json_line(one.as_dict()), nl=False)
        return
    typer.echo(
        f"{scores.name}: {LABELS} labels, judged on the other questions, mean of {SPLITS} splits"
    )
    names = [
        *("accuracy", "auroc", "ece", "ece_plain", "ece_platt"),
        *("ece_temperature", "ece_isotonic", "auroc_isotonic"),
    ]
    names += ["ece_floor", "brier", "brier_platt"]
    cells = [
        [one.group, f"{one.rows:,}", *(figure(getattr(one, name)) for name in names)]
        for one in lines
    ]
    head = [
        *("", "rows", "right", "AUROC", "ECE", "plain Platt", "Platt"),
        *("temperature", "isotonic", "its AUROC"),
    ]
    print_table([*head, "floor", "Brier", "Platt"], cells)
