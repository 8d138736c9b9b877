"""`pinocchio reviews agreement` and `estimate`: figures from the verdicts of reviewers."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from typing import Any

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption
from proxy.commands.opening.opened_record import JsonOption, Since, opened_record, seconds
from proxy.commands.reviews.reviews import reviews


@reviews.command("agreement")
def show_agreement(
    config: ConfigOption = None, since: Since = "30d", as_json: JsonOption = False
) -> None:
    """Show how far reviewers agree on replies that two or more of them have labelled."""
    from calibrator import Label, agreement_of
    from proxy.store.verdicts.labels import all_verdicts

    start = time.time() - seconds(since)
    with opened_record(config) as findings:
        given = all_verdicts(findings.engine, start)
    found = agreement_of(Label(*each) for each in given)
    if as_json:
        typer.echo(json.dumps(_without_nan(asdict(found))))
        return
    if not found.replies:
        typer.echo(f"none of {len({each.request_id for each in given})} replies has two verdicts")
        return
    typer.echo(
        f"{plural(found.replies, 'reply', 'replies')} with two verdicts or more: "
        f"{found.raw:.1%} of the pairs agree, "
        f"Krippendorff's alpha {_figure(found.alpha)}"
    )
    for pair in found.pairs:
        names = " and ".join(name or "the command line" for name in (pair.first, pair.second))
        typer.echo(
            f"  {names}: {pair.agreed} of {pair.replies} agree, Cohen's kappa {_figure(pair.kappa)}"
        )


@reviews.command("estimate")
def show_estimate(
    config: ConfigOption = None, since: Since = "30d", as_json: JsonOption = False
) -> None:
    """Estimate the share of right replies, delivered, held and of all, from weighed verdicts."""
    from proxy.learning.labels import POPULATIONS, read_labels
    from proxy.store.verdicts.feedback import feedback_counts

    start = time.time() - seconds(since)
    with opened_record(config) as findings:
        labels = read_labels(findings.engine, start)
        volunteered, wrong = feedback_counts(findings.engine, start)
    values: dict[str, Any] = {"undrawn": labels.undrawn}
    values["volunteered"] = {"labels": volunteered, "wrong": wrong}
    for name in POPULATIONS:
        its = labels.of(name)
        figures = {"right": its.estimate(name), "confidence": its.estimate(name, "confidence")}
        counts = {"replies": its.totals.delivered + its.totals.held, "labels": len(its.replies)}
        values[name] = counts | {key: asdict(found) for key, found in figures.items()}
    if as_json:
        typer.echo(json.dumps(_without_nan(values)))
        return
    for name in POPULATIONS:
        its_values = values[name]
        right, sure = its_values["right"], its_values["confidence"]
        verdicts = plural(its_values["labels"], "verdict")
        told = f"{name}: {verdicts} on {plural(its_values['replies'], 'reply', 'replies')}"
        if math.isnan(right["value"]):
            typer.echo(f"{told}, too few to say anything")
        else:
            typer.echo(
                f"{told}, {right['value']:.1%} right (95 % between {right['low']:.1%} and "
                f"{right['high']:.1%}), mean confidence {sure['value']:.1%}"
            )
    if volunteered:
        typer.echo(
            f"feedback: {volunteered} volunteered labels, {wrong} of them say wrong; no estimate "
            "counts them, for people choose what they give feedback on"
        )


def _figure(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _without_nan(value: Any) -> Any:
    """Replace nan, which JSON lacks, by None; tuples become lists."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
