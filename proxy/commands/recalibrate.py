"""`pinocchio recalibrate`: fits from files of labelled rows, or from the verdicts in the store."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calibrator import ROWS_HELP, file_option, refuse
from policies import plural
from proxy.commands.opening.exits import (
    ConfigOption,
    exit_on_calibrator_errors,
    exit_on_errors,
    stop,
)
from proxy.commands.opening.opened_record import opened_record, seconds
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from calibrator import By, Kind, Of, Recalibration, RecalibrationVersions, SignalWeights
    from proxy.config.sections import Config
    from proxy.learning.recalibrating import LearnedFit

NOT_PROMOTED = 3
NAMED = "calibrator: {recalibration: recalibrations/current}"


Files = Annotated[list[Path] | None, typer.Argument(help=ROWS_HELP)]
FromStore = Annotated[
    bool, typer.Option("--from-store", help="Fit on the verdicts in the store instead.")
]
Since = Annotated[str, typer.Option(help="With --from-store: how far to look back, such as 30d.")]
HeldOnly = Annotated[
    bool, typer.Option("--held-only", help="With --from-store: fit on held replies alone.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="With --from-store: compare, and promote nothing.")
]
SecondOpinion = Annotated[
    bool,
    typer.Option(
        "--second-opinion",
        help="Take the numbers that know second opinions, which have a recalibration of their own.",
    ),
]
SignalsOption = Annotated[
    bool,
    typer.Option(
        "--signals",
        help="Fit how a judge's P(correct) and log-probabilities join the numbers, alone or with "
        "second opinions.",
    ),
]
Rollback = Annotated[
    bool, typer.Option("--rollback", help="Go back to the recalibration before the current one.")
]
History = Annotated[
    bool, typer.Option("--history", help="List what was promoted and what was taken back.")
]
Output = Annotated[
    Path | None,
    file_option("-o", "--output", help="Write the recalibration here; promote nothing."),
]
Calibrator = Annotated[
    str, typer.Option(help="With FILES: embedded, a folder, a hub name, or fake:0.73.")
]
Scores = Annotated[
    Path | None, typer.Option(help="Take the confidences of this file instead of scoring.")
]
Curve = Annotated[
    Literal["platt", "isotonic", "temperature"], typer.Option(help="Kind of curve that is fitted.")
]
Groups = Annotated[
    Literal["model", "domain", "team"] | None,
    typer.Option(help="Fit a curve of its own for each model, domain or team with enough labels."),
]
Study = Annotated[
    Literal["model", "benchmark", "domain"] | None,
    typer.Option(
        help="Write no file: report what 100 labels mend, for each model, benchmark or domain."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


KINDS_OF_NUMBERS = {
    "alone": "",
    "others": " of numbers with second opinions",
    "signals": " for judges and log-probabilities",
}
OF_STORE = ("since", "held_only", "dry_run")
OF_FILES = ("calibrator", "scores", "study")
OF_CURVES = ("second_opinion", "kind", "by", "study")
OF_FITTING = (*OF_STORE, *OF_FILES, "output", "kind", "by")


def recalibrate(
    context: typer.Context,
    files: Files = None,
    from_store: FromStore = False,
    since: Since = "30d",
    held_only: HeldOnly = False,
    second_opinion: SecondOpinion = False,
    signals: SignalsOption = False,
    dry_run: DryRun = False,
    rollback: Rollback = False,
    history: History = False,
    config: ConfigOption = None,
    output: Output = None,
    calibrator: Calibrator = "embedded",
    scores: Scores = None,
    kind: Curve = "platt",
    by: Groups = None,
    study: Study = None,
    as_json: JsonOption = False,
) -> None:
    """Correct confidences with labelled replies, from files or from the store's verdicts.

    From the store, a recalibration replaces the current one if it is better beyond noise on
    verdicts that it did not see; the exit status is 3 if it is not.
    """
    if sum((bool(files), from_store, rollback, history)) != 1:
        message = "say what to learn from: FILES or --from-store; or --rollback, or --history"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    if signals:
        refuse(context, OF_CURVES, "is not for --signals")
    numbers: Of = "signals" if signals else "others" if second_opinion else "alone"
    if rollback or history:
        refuse(context, OF_FITTING, "is for fitting; leave it out with --rollback and --history")
        with exit_on_calibrator_errors():
            versions = _versions(config)
            if rollback:
                _roll_back(versions, numbers, as_json)
            else:
                _list_history(versions, as_json)
    elif from_store:
        refuse(context, OF_FILES, "is for labelled FILES; leave it out with --from-store")
        with exit_on_calibrator_errors():
            _learn(config, since, kind, by, numbers, held_only, dry_run, output, as_json)
    else:
        refuse(context, (*OF_STORE, "config"), "is for verdicts; leave it out, or use --from-store")
        from calibrator import recalibrate as from_files

        options_of_files = calibrator, scores, kind, by, study, numbers
        from_files(files or [], output, *options_of_files, as_json)


def _read_config(config: Path | None) -> Config:
    """Return the configuration without its policies; end the process where it is broken.

    A path of None is the file that `find_config` finds.
    """
    from proxy.config.setup import load_store_config

    with exit_on_errors():
        return load_store_config(config)


def _versions(config: Path | None) -> RecalibrationVersions:
    """Return the folder of versions that the configuration names; end the process without one."""
    from calibrator import versions_named

    if (versions := versions_named(_read_config(config).calibrator.recalibration)) is None:
        message = (
            f"no versions are kept: let proxy.yaml say `{NAMED}` and start the proxy with it; "
            "or say where to write with -o"
        )
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    return versions


def _learn(
    config: Path | None,
    since: str,
    kind: Kind,
    by: By | None,
    numbers: Of,
    held_only: bool,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit on verdicts, try the fit, write or promote it, and print the outcome.

    `numbers` is `alone`, `others` (numbers with second opinions) or `signals`. With `output` it is
    written there, with `dry_run` nowhere, else promoted if it is better. Ends the process with
    status 3 where it was to be promoted and is not better.
    """
    from calibrator import check_target
    from proxy.upstreams.router import NONE_PICKS, picks_curves

    check_target(output)
    configuration = _read_config(config)
    if by == "domain" and not picks_curves(configuration):
        raise stop(ExitStatus.UNUSABLE_INPUT, NONE_PICKS)
    versions = None if dry_run or output else _versions(config)
    current: Recalibration | SignalWeights | None
    with opened_record(config) as findings:
        engine, start = findings.engine, time.time() - seconds(since)
        if numbers == "signals":
            fit, current = _learn_signals(engine, start, configuration, held_only)
        else:
            fit, current = _learn_curve(engine, start, configuration, kind, by, numbers, held_only)
    is_promoted = versions is not None and fit.trial.is_better
    if output is not None:
        fit.recalibration.save(output)
    elif versions is not None and is_promoted:
        versions.promote(fit.recalibration, fit.trial.as_dict())
    _print_fit(fit, current, is_promoted, output, as_json)
    if versions is not None and not is_promoted:
        raise typer.Exit(NOT_PROMOTED)


def _learn_curve(
    engine: Any,
    start: float,
    config: Config,
    kind: Kind,
    by: By | None,
    numbers: Of,
    held_only: bool,
) -> tuple[LearnedFit, Recalibration | None]:
    """Fit a curve for numbers of one kind; return the fit and the curve in force, or None.

    `numbers` is `alone` or `others`; `start` is in seconds since 1970.
    """
    from calibrator import resolve_recalibrations
    from proxy.learning.labels import read_labels
    from proxy.learning.recalibrating import learn_recalibration, name_with_others
    from proxy.scoring.engines.opening import known_name
    from proxy.upstreams.router import Domains, Router

    section = config.calibrator
    base, recalibrations = known_name(section), resolve_recalibrations(section.recalibration)
    labels = read_labels(engine, start, base)
    if numbers == "others":
        base = name_with_others(labels.replies, base)
        labels = read_labels(engine, start, base)
    current = recalibrations.with_others if numbers == "others" else recalibrations.alone
    if current is not None and current.calibrator not in ("", base):
        current = None  # it is for numbers that are no longer given
    if "domain" in (by, current.by if current else None):
        labels = labels.in_domains(Domains(config, Router(config)))
    fit = learn_recalibration(
        labels,
        base,
        current,
        kind=kind,
        by=by,
        is_held_only=held_only,
        known=_known_recalibrations(section.recalibration, current),
    )
    return fit, current


def _learn_signals(
    engine: Any, start: float, config: Config, held_only: bool
) -> tuple[LearnedFit, SignalWeights | None]:
    """Fit weights of signals; return the fit and the weights in force, or None."""
    from calibrator import resolve_recalibrations
    from proxy.learning.labels import read_labels
    from proxy.learning.recalibrating import learn_signals
    from proxy.scoring.engines.opening import known_name
    from proxy.upstreams.router import Domains, Router

    base = known_name(config.calibrator)
    recalibrations = resolve_recalibrations(config.calibrator.recalibration)
    labels = read_labels(engine, start, base)
    if any(each.by == "domain" for each in recalibrations):
        labels = labels.in_domains(Domains(config, Router(config)))
    return learn_signals(
        labels, base, recalibrations, is_held_only=held_only
    ), recalibrations.signals


def _known_recalibrations(
    paths: Sequence[Path], current: Recalibration | None
) -> list[Recalibration]:
    """Return all recalibrations whose confidences the record may hold.

    These are all kept versions, or without such a folder the current one.
    """
    from calibrator import versions_named

    if (versions := versions_named(paths)) is not None:
        return versions.all()
    return [current] if current else []


def _print_fit(
    fit: LearnedFit,
    current: Recalibration | SignalWeights | None,
    is_promoted: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Print the figures of a fit and what becomes of it, as text or as JSON."""
    recalibration, trial = fit.recalibration, fit.trial
    before = current.name if current else None
    if as_json:
        fields: dict[str, Any] = {
            "name": recalibration.name,
            "calibrator": recalibration.calibrator,
        }
        fields |= {"before": before, "promoted": is_promoted}
        values = {**fields, **_parts(recalibration), "unknown": fit.unknown}
        typer.echo(json.dumps({**values, **trial.as_dict()}))
        return
    curves = ""
    if "groups" in (parts := _parts(recalibration)) and getattr(recalibration, "by", None):
        curves = f", {len(parts['groups'])} with curves of their own"
    typer.echo(
        f"{recalibration.name}: fitted on {plural(trial.labels, 'verdict')}, worth "
        f"{trial.effective_labels:.0f} "
        f"of equal weight{curves}\n"
        f"  for {recalibration.calibrator}"
    )
    for name in parts.get("numbers", ()):
        typer.echo(f"  gives {name}")
    pairs = (("ECE", "ece"), ("Brier", "brier"), ("log loss", "log_loss"))
    figures = ", ".join(
        f"{name} {getattr(trial.before, key):.3f} -> {getattr(trial.after, key):.3f}"
        for name, key in pairs
    )
    typer.echo(f"  on verdicts it was not fitted on, against {before or 'none'}: {figures}")
    gain = trial.gain
    typer.echo(
        f"  gain of log loss {gain.value:+.4f}, 95 % between {gain.low:+.4f} and "
        f"{gain.high:+.4f}{'' if gain.low > 0 else ': may be no gain'}"
    )
    if fit.unknown:
        typer.echo(
            f"  {plural(fit.unknown, 'verdict')} left out: what was recalibrated is not recorded"
        )
    typer.echo(_conclusion(fit, is_promoted, output))


def _parts(recalibration: Recalibration | SignalWeights) -> dict[str, list[str]]:
    """Return what a fit consists of, by a name for JSON.

    These are `groups` with a curve of their own, or `numbers` that weights of signals give.
    """
    from calibrator import SignalWeights

    if isinstance(recalibration, SignalWeights):
        return {"numbers": sorted(recalibration.names())}
    return {"groups": sorted(recalibration.groups)}


def _conclusion(fit: LearnedFit, is_promoted: bool, output: Path | None) -> str:
    """Return the last line: written, promoted, or why nothing changed."""
    if output is not None:
        unproven = "" if fit.trial.is_better else ", without a proven gain: not better beyond noise"
        return f"written to {output}{unproven}"
    if is_promoted:
        return (
            "promoted: it counts from the next request on, `--rollback` takes it back; certified "
            "thresholds were for the version before, so certify again"
        )
    if fit.trial.is_better:
        return "better beyond noise; nothing was promoted, as asked"
    return "not promoted: it is not better beyond noise; what counted before still counts"


def _roll_back(versions: RecalibrationVersions, numbers: Of, as_json: bool) -> None:
    """Take the current recalibration of this kind back, and print which one counts now."""
    change = versions.roll_back(numbers)
    if as_json:
        typer.echo(json.dumps({"before": change.before, "after": change.after}))
    else:
        typer.echo(f"{change.before} was taken back; {change.after or 'no recalibration'} counts")


def _list_history(versions: RecalibrationVersions, as_json: bool) -> None:
    """Print all promotions and rollbacks, and which recalibrations count now."""
    current = versions.current(), versions.current("others"), versions.current("signals")
    for change in versions.history():
        fields: dict[str, Any] = {"at": change.at, "kind": change.kind}
        fields |= {"before": change.before, "after": change.after}
        if as_json:
            fields |= {"knows_others": change.knows_others, "knows_signals": change.knows_signals}
            typer.echo(json.dumps({**fields, "figures": dict(change.figures)}))
        else:
            labels = change.figures.get("labels")
            why = f", {plural(labels, 'verdict')}" if labels else ""
            suffix = KINDS_OF_NUMBERS[change.of]
            change_text = f"{change.before or 'none'} -> {change.after or 'none'}{suffix}"
            typer.echo(f"{change.at}  {change.kind.replace('_', ' ')}  {change_text}{why}")
    if not as_json:
        typer.echo(f"{current[0].name if current[0] else 'no recalibration'} counts")
        if current[1]:
            typer.echo(f"{current[1].name} counts for numbers with second opinions")
        if current[2]:
            typer.echo(f"{current[2].name} counts for judges and log-probabilities")
