"""The commands on what verdicts tell: `drift`, `reviews agreement` and `reviews estimate`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policies import counted
from proxy.commands.record import JsonOption, Since, opened_record, seconds
from proxy.commands.serve_and_reviews import ConfigOption, reviews

if TYPE_CHECKING:
    from proxy.learning.drift import Standing, Week

cli = typer.Typer()

DRIFTED = 3


@cli.command()
def drift(
    config: ConfigOption = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Take current traffic as the new baseline.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Report drift of scores and of calibration; the exit status is 3 if there is any now.

    Alarms about a calibrator that no longer scores are listed, and change the status no more.
    """
    from proxy.learning.drift import look, standing, weekly
    from proxy.store.verdicts.drift import forget_monitors

    with opened_record(config) as findings:
        look(findings.engine)
        if reset:
            typer.echo(f"{forget_monitors(findings.engine)} monitors begin anew")
            return
        stands, weeks = standing(findings.engine), weekly(findings.engine)
    if as_json:
        typer.echo(json.dumps(_drift_values(stands, weeks)))
    else:
        typer.echo("\n".join(_drift_lines(stands, weeks)))
    if any(each.alarm and each.is_current for each in stands):
        raise typer.Exit(DRIFTED)


def _drift_values(stands: Sequence[Standing], weeks: Sequence[Week]) -> dict[str, Any]:
    monitors = [
        {
            **each.key._asdict(),
            "seen": each.seen,
            "is_current": each.is_current,
            "alarm": each.alarm
            and {"at": each.alarm.at, "request_id": each.alarm.request_id, "text": each.alarm.text},
            "bands": [asdict(band) | {"gap": band.gap} for band in each.bands],
        }
        for each in stands
    ]
    its_weeks = [asdict(each) | {"reading": each.distance.reading} for each in weeks]
    return {"monitors": monitors, "weeks": its_weeks}


def _drift_lines(stands: Sequence[Standing], weeks: Sequence[Week]) -> Iterator[str]:
    if not stands:
        yield "no monitor has begun: replies are looked at a minute after they were asked for"
    for each in stands:
        key = each.key
        about = " ".join(filter(None, (key.calibrator, key.model, key.team)))
        what = "conversation" if key.kind == "scores" else "audited verdict"
        state = f"ALARM: {each.alarm.text}" if each.alarm else "no alarm"
        state += "" if each.is_current else " (no longer in use)"
        yield f"{key.kind} of {about}: {counted(each.seen, what)}, {state}"
        for band in each.bands:
            if band.gap is not None:
                ends = f"{band.low:g} to {band.high:g}"
                yield (
                    f"  confidence {ends}: {counted(band.verdicts, 'verdict')}, too sure by "
                    f"{band.gap:+.3f}"
                )
    for week in weeks:
        found = week.distance
        whose = " ".join(filter(None, (week.model, week.team)))
        yield (
            f"this week of {whose}: {counted(found.now, 'reply', 'replies')} against "
            f"{found.before}, KS {found.ks:.3f} "
            f"(p {found.ks_p:.2g}), PSI {found.psi:.3f}: {found.reading}"
        )


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
        f"{counted(found.replies, 'reply', 'replies')} with two verdicts or more: "
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
        verdicts = counted(its_values["labels"], "verdict")
        told = f"{name}: {verdicts} on {counted(its_values['replies'], 'reply', 'replies')}"
        if math.isnan(right["value"]):
            typer.echo(f"{told}, too few to say anything")
        else:
            typer.echo(
                f"{told}, {right['value']:.1%} right (95 % within {right['low']:.1%} and "
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
    """JSON has no nan."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
