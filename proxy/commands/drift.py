"""`pinocchio drift`: whether scores or calibration have drifted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption, plain
from proxy.commands.opening.opened_record import JsonOption, opened_record

if TYPE_CHECKING:
    from proxy.learning.drift import MonitorState


DRIFTED = 3


def drift(
    config: ConfigOption = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Take current traffic as the new baseline.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Report drift of scores and of calibration; the exit status is 3 if there is any now.

    Alarms about a calibrator that no longer scores are listed, but no longer change the status.
    """
    from proxy.learning.drift import look, monitor_states
    from proxy.store.verdicts.drift import forget_monitors

    with opened_record(config) as findings:
        look(findings.engine)
        if reset:
            typer.echo(f"{forget_monitors(findings.engine)} monitors begin anew")
            return
        stands = monitor_states(findings.engine)
    if as_json:
        typer.echo(json.dumps(_drift_values(stands)))
    else:
        typer.echo("\n".join(map(plain, _drift_lines(stands))))
    if any(each.alarm and each.is_current for each in stands):
        raise typer.Exit(DRIFTED)


def _drift_values(stands: Sequence[MonitorState]) -> dict[str, Any]:
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
    return {"monitors": monitors}


def _drift_lines(stands: Sequence[MonitorState]) -> Iterator[str]:
    if not stands:
        yield "no monitor has begun: replies are looked at a minute after they were asked for"
    for each in stands:
        key = each.key
        about = " ".join(filter(None, (key.calibrator, key.model, key.team)))
        what = "conversation" if key.kind == "scores" else "audited verdict"
        state = f"ALARM: {each.alarm.text}" if each.alarm else "no alarm"
        state += "" if each.is_current else " (no longer in use)"
        yield f"{key.kind} of {about}: {plural(each.seen, what)}, {state}"
        for band in each.bands:
            if band.gap is not None:
                ends = f"{band.low:g} to {band.high:g}"
                yield (
                    f"  confidence {ends}: {plural(band.verdicts, 'verdict')}, "
                    f"{'over' if band.gap >= 0 else 'under'}confident by {abs(band.gap):.3f}"
                )
