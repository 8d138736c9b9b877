"""`pinocchio report`: the share of correct replies, agreement of reviewers, and drift."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from calibrator import refuse
from policies import plural
from proxy.commands.opening.exits import ConfigOption, plain
from proxy.commands.opening.opened_record import JsonOption, Since, opened_record, seconds

if TYPE_CHECKING:
    from calibrator import Agreement
    from proxy.learning.drift import MonitorState
    from proxy.store.database.verdicts import VerdictStore

DRIFTED: Final = 3
Topic = Literal["estimate", "agreement", "drift"]


def report(
    context: typer.Context,
    topic: Annotated[
        Topic | None,
        typer.Argument(
            help="estimate: the share of correct replies, delivered, held and of all, from weighed "
            "verdicts; agreement: how far reviewers agree on replies that two or more have "
            "labelled; drift: whether scores or calibration have drifted. Without one, all three.",
        ),
    ] = None,
    config: ConfigOption = None,
    since: Since = "30d",
    reset: Annotated[
        bool, typer.Option("--reset", help="With drift: take current traffic as the new baseline.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Report on the verdicts in the store: how many replies are right, agreement, and drift.

    The exit status is 3 where scores or calibration drift now. Alarms about a calibrator that no
    longer scores are listed, but do not change it.
    """
    if topic == "drift":
        refuse(context, ["since"], "is for estimate and agreement; leave it out with drift")
    else:
        refuse(context, ["reset"], "is for drift: `report drift --reset`")
    start = time.time() - seconds(since)
    values, lines, has_drifted = dict[str, Any](), list[str](), False
    with opened_record(config) as findings:
        if reset:
            typer.echo(_reset_monitors(findings))
            return
        if topic in (None, "estimate"):
            values["estimate"] = _estimate(findings, start)
            lines += _estimate_lines(values["estimate"])
        if topic in (None, "agreement"):
            replies, agreement = _agreement(findings, start)
            values["agreement"] = asdict(agreement)
            lines += _agreement_lines(agreement, replies)
        if topic in (None, "drift"):
            monitors = _monitors(findings)
            values["drift"] = _drift_values(monitors)
            lines += _drift_lines(monitors)
            has_drifted = any(each.alarm and each.is_current for each in monitors)
    if as_json:
        typer.echo(json.dumps(_without_nan(values[topic] if topic else values)))
    else:
        typer.echo("\n".join(map(plain, lines)))
    if has_drifted:
        raise typer.Exit(DRIFTED)


def _estimate(findings: VerdictStore, start: float) -> dict[str, Any]:
    """Return the JSON form of the shares of right replies since `start`, in seconds since 1970."""
    from proxy.learning.labels import POPULATIONS, read_labels
    from proxy.store.verdicts.feedback import feedback_counts

    labels = read_labels(findings.engine, start)
    volunteered, wrong = feedback_counts(findings.engine, start)
    values: dict[str, Any] = {"undrawn": labels.undrawn}
    values["volunteered"] = {"labels": volunteered, "wrong": wrong}
    for name in POPULATIONS:
        population = labels.of(name)
        figures = {
            "right": population.estimate(name),
            "confidence": population.estimate(name, "confidence"),
        }
        counts = {
            "replies": population.totals.delivered + population.totals.held,
            "labels": len(population.replies),
        }
        values[name] = counts | {key: asdict(estimate) for key, estimate in figures.items()}
    return values


def _estimate_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for the delivered, the held and all replies, and one for users' feedback."""
    from proxy.learning.labels import POPULATIONS

    for name in POPULATIONS:
        population = values[name]
        right, confidence = population["right"], population["confidence"]
        verdicts = plural(population["labels"], "verdict")
        text = f"{name}: {verdicts} on {plural(population['replies'], 'reply', 'replies')}"
        if math.isnan(right["value"]):
            yield f"{text}, too few to say anything"
        else:
            yield (
                f"{text}, {right['value']:.1%} right (95 % between {right['low']:.1%} and "
                f"{right['high']:.1%}), mean confidence {confidence['value']:.1%}"
            )
    if count := values["volunteered"]["labels"]:
        wrong = values["volunteered"]["wrong"]
        yield (
            f"feedback: {count} volunteered labels, {wrong} of them say wrong; no estimate "
            "counts them, for people choose what they give feedback on"
        )


def _agreement(findings: VerdictStore, start: float) -> tuple[int, Agreement]:
    """Return the number of labelled replies since `start`, and how far their reviewers agree."""
    from calibrator import Label, agreement_of
    from proxy.store.verdicts.labels import all_verdicts

    verdicts = all_verdicts(findings.engine, start)
    replies = len({each.request_id for each in verdicts})
    return replies, agreement_of(Label(*each) for each in verdicts)


def _agreement_lines(agreement: Agreement, replies: int) -> Iterator[str]:
    """Yield a line for all reviewers and one for each pair; `replies` have a verdict at all."""
    if not agreement.replies:
        yield f"none of {replies} replies has two verdicts"
        return
    yield (
        f"{plural(agreement.replies, 'reply', 'replies')} with two verdicts or more: "
        f"{agreement.raw:.1%} of the pairs agree, "
        f"Krippendorff's alpha {_figure(agreement.alpha)}"
    )
    for pair in agreement.pairs:
        names = " and ".join(name or "the command line" for name in (pair.first, pair.second))
        yield (
            f"  {names}: {pair.agreed} of {pair.replies} agree, Cohen's kappa {_figure(pair.kappa)}"
        )


def _reset_monitors(findings: VerdictStore) -> str:
    """Begin all monitors of drift anew, and return a sentence with their number."""
    from proxy.learning.drift import look
    from proxy.store.verdicts.drift import forget_monitors

    look(findings.engine)
    return f"{forget_monitors(findings.engine)} monitors begin anew"


def _monitors(findings: VerdictStore) -> list[MonitorState]:
    """Return the monitors' states, after they have looked at the latest traffic."""
    from proxy.learning.drift import look, monitor_states

    look(findings.engine)
    return monitor_states(findings.engine)


def _drift_values(states: Sequence[MonitorState]) -> dict[str, Any]:
    """Return the states of the monitors as JSON values."""
    monitors = [
        {
            **each.key._asdict(),
            "seen": each.seen,
            "is_current": each.is_current,
            "alarm": each.alarm
            and {"at": each.alarm.at, "request_id": each.alarm.request_id, "text": each.alarm.text},
            "bands": [asdict(band) | {"gap": band.gap} for band in each.bands],
        }
        for each in states
    ]
    return {"monitors": monitors}


def _drift_lines(monitors: Sequence[MonitorState]) -> Iterator[str]:
    """Yield a line for each monitor, and one for each of its bands of confidence with verdicts."""
    if not monitors:
        yield "no monitor has begun: replies are looked at a minute after they were asked for"
    for each in monitors:
        key = each.key
        subject = " ".join(filter(None, (key.calibrator, key.model, key.team)))
        unit = "conversation" if key.kind == "scores" else "audited verdict"
        state = f"ALARM: {each.alarm.text}" if each.alarm else "no alarm"
        state += "" if each.is_current else " (no longer in use)"
        yield f"{key.kind} of {subject}: {plural(each.seen, unit)}, {state}"
        for band in each.bands:
            if band.gap is not None:
                bounds = f"{band.low:g} to {band.high:g}"
                yield (
                    f"  confidence {bounds}: {plural(band.verdicts, 'verdict')}, "
                    f"{'over' if band.gap >= 0 else 'under'}confident by {abs(band.gap):.3f}"
                )


def _figure(value: float) -> str:
    """Return a number with three decimals, or `unknown` for nan."""
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _without_nan(value: Any) -> Any:
    """Return JSON values in which nan, which JSON lacks, is None; tuples become lists."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
