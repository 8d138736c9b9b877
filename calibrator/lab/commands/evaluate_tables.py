"""The output of `pinocchio evaluate`: tables for people, a JSON object per line for machines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import typer

from calibrator.commands.terminal import print_table, say
from calibrator.metrics.numbers import bounds, chance_text, figure
from calibrator.rows.files import json_line

if TYPE_CHECKING:
    from calibrator.lab.judging.evaluation.evaluate import Evaluation
    from calibrator.lab.judging.evaluation.traffic import Traffic
    from calibrator.lab.judging.sensitivity import Sensitivity


FEW: Final = 50
"""Rows below which a line warns about figures; `pinocchio advise` gives no advice below it."""


def print_evaluation(evaluation: Evaluation, as_json: bool) -> None:
    """Print all figures to stdout, with `as_json` as one JSON object per line.

    Why figures are missing or uncertain is printed to stderr first.
    """
    if sentence := _why_little(evaluation):
        say(f"pinocchio: {sentence}")
    if as_json:
        for result in evaluation.results:
            typer.echo(json_line(result.as_dict()), nl=False)
        for line in evaluation.sensitivity.lines() if evaluation.sensitivity else ():
            typer.echo(json_line(line), nl=False)
        for line in evaluation.traffic.lines() if evaluation.traffic else ():
            typer.echo(json_line(line), nl=False)
        return
    if evaluation.traffic:
        _print_traffic(evaluation.traffic)
    if evaluation.sensitivity:
        _print_sensitivity(evaluation.sensitivity)
    if not evaluation.rows:
        return
    _print_groups(evaluation)
    _print_methods(evaluation)
    _print_within(evaluation)


def _why_little(evaluation: Evaluation) -> str:
    """Return a sentence on why figures are missing or uncertain; empty for enough rows.

    That is with rows of one label only, and below `FEW` rows.
    """
    count, right = evaluation.rows, evaluation.accuracy
    if not count:
        return ""
    if right in (0, 1):
        return (
            f"every row ({count:,}) is {'correct' if right else 'wrong'}: a ranking needs correct "
            "and wrong ones, so AUROC is missing, and the shares kept say nothing"
        )
    if count < FEW:
        return f"{count} rows are few: figures of fewer than {FEW} mostly show chance"
    return ""


def _print_traffic(traffic: Traffic) -> None:
    """Print all tables of replies of real apps that have any rows."""
    from calibrator.lab.judging.evaluation.traffic.tables import TABLES

    typer.echo(f"{traffic.calibrator}, real traffic")
    for table in TABLES:
        head, rows = table(traffic)
        if rows:
            print_table(head, rows)
            typer.echo()


def _print_sensitivity(sensitivity: Sensitivity) -> None:
    """Print tables of each kind of corruption, of everyday answers, and of each benchmark."""
    from calibrator.lab.judging.sensitivity.tables import (
        benchmarks_table,
        everyday_table,
        kinds_table,
    )

    if not sensitivity.benchmarks:
        say("no kind of corruption applies to enough right replies; 20 of a benchmark are needed")
    typer.echo(f"{sensitivity.calibrator}, right replies made wrong")
    for table in (kinds_table, everyday_table, benchmarks_table):
        head, rows = table(sensitivity)
        if rows:
            print_table(head, rows)
            typer.echo()


def _print_groups(evaluation: Evaluation) -> None:
    """Print the judged method on each benchmark and task, beside the first baseline's AUROC.

    The means over benchmarks and the figures on all rows come last.
    """
    kinds = ("benchmark", "task", "mean")
    found = [one for kind in kinds for one in evaluation.of_kind(kind)]
    found += [one for one in evaluation.of_kind("pooled") if one.rows == evaluation.rows]
    rivals = evaluation.baselines[:1]
    seen = ["sensitivity"] if evaluation.sensitivity else []
    rows = []
    for one in found:
        theirs = [evaluation.find(one.group, rival) for rival in rivals]
        rows.append(
            [
                one.group,
                f"{one.rows:,}",
                figure(one.accuracy),
                figure(one.auroc),
                bounds(one.question_low, one.question_high),
                *(figure(evaluation.sensitivity_on(one)) for _ in seen),
                *(figure(value) for value in (one.within, one.brier, one.ece)),
                *(figure(rival.auroc if rival else math.nan) for rival in theirs),
            ]
        )
    head = ["", "rows", "right", "AUROC", "95 % over questions", *seen, "within", "Brier", "ECE"]
    typer.echo(evaluation.judged)
    print_table([*head, *rivals], rows)


def _print_methods(evaluation: Evaluation) -> None:
    """Print every method on all rows, and on the rows with a stated confidence if there are any."""
    from calibrator.rows.groups import POOLED

    means = {one.method: one.auroc for one in evaluation.results if one.kind == "mean"}
    head = ["", "AUROC", "95 % over replies", "mean", "within", "Brier", "ECE", "kept at 90 %"]
    for group in dict.fromkeys(one.group for one in evaluation.results if one.kind == "pooled"):
        rows = [
            [
                one.method,
                figure(one.auroc),
                bounds(one.low, one.high),
                figure(means[one.method] if group == POOLED else math.nan),
                *(figure(v) for v in (one.within, one.brier, one.ece)),
                figure(one.coverage_90),
                figure(one.coverage_95),
            ]
            for one in evaluation.results
            if one.group == group
        ]
        typer.echo(f"\n{group}")
        print_table([*head, "at 95 % right"], rows)


def _print_within(evaluation: Evaluation) -> None:
    """Print how methods rank replies to the same question; nothing if no question has both labels.

    The last column is p of permuting labels within questions.
    """
    if not evaluation.within:
        return
    first = evaluation.within[0]
    rows = [
        [
            one.method,
            figure(one.auroc.value),
            bounds(one.auroc.low, one.auroc.high),
            figure(one.pairs),
            chance_text(one.p_auroc),
        ]
        for one in evaluation.within
    ]
    typer.echo(f"\nwithin {first.questions:,} questions, {first.replies:,} replies")
    head = ["", "AUROC", "95 % over questions", "pairs in order", "chance"]
    print_table(head, rows)
