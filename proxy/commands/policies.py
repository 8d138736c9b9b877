"""The commands on policies before they are live: `certify`, `test`, `replay` and `schema`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator import ROWS_HELP, file_option
from policies import counted
from proxy.commands.record import opened_record, recorded_exchanges, seconds
from proxy.commands.serve_and_reviews import ConfigOption, errors_told

if TYPE_CHECKING:
    from calibrator import Interval
    from policies import Certification, Exchange, Grant, Labelled, Needed, Policy, Scope
    from proxy.commands.labelled_rows import ScoredRow

cli = typer.Typer(no_args_is_help=True)

DIFFERS, UNUSABLE_INPUT, NOT_CERTIFIED = 1, 2, 3
SCORED_ROWS_HELP = f"{ROWS_HELP}. Rows with a `confidence` are not scored again."
Rows = Annotated[list[Path], typer.Argument(help=SCORED_ROWS_HELP)]
Calibrator = Annotated[
    str, typer.Option(help="The calibrator that scores rows without a `confidence`.")
]
Device = Annotated[str, typer.Option(help="Where it runs: auto, cpu, cuda, ...")]
FromStore = Annotated[
    bool, typer.Option("--from-store", help="Certify on the verdicts on audited replies instead.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PolicyName = Annotated[str, typer.Argument(help="A pack or a policy file.")]


@contextmanager
def _sentences() -> Iterator[None]:
    """Turns the errors of a person's mistake into one sentence and an exit status."""
    from calibrator import CalibratorError
    from policies import PolicyError

    try:
        yield
    except (CalibratorError, PolicyError, OSError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(UNUSABLE_INPUT) from error


def _load(name: str) -> Policy:
    """A pack or a file."""
    from policies import load_policy

    return load_policy(name)


def _rows(paths: Sequence[Path], calibrator: str, device: str) -> list[ScoredRow]:
    from proxy.commands.labelled_rows import load_scored

    rows, bad = load_scored(paths, calibrator, device)
    for error in bad:
        typer.echo(str(error), err=True)
    if bad:
        typer.echo(f"pinocchio: {counted(len(bad), 'row')} could not be used", err=True)
    if not rows:
        raise ValueError(f"no labelled row in {', '.join(map(str, paths))}")
    return rows


@cli.command()
def certify(
    max_error: Annotated[
        float, typer.Option(help="Largest share of wrong replies allowed, e.g. 0.05.")
    ],
    files: Annotated[list[Path] | None, typer.Argument(help=SCORED_ROWS_HELP)] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the guarantee.")] = 0.95,
    from_store: FromStore = False,
    since: Annotated[
        str, typer.Option(help="With --from-store: how far to look back, such as 30d.")
    ] = "30d",
    config: ConfigOption = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="The certificate to write or add to.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Certify this model's replies alone.")] = None,
    team: Annotated[str | None, typer.Option(help="Certify this team's replies alone.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="The policy that has the rule of --rule.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Certify the replies that reach this rule.")
    ] = None,
    splits: Annotated[
        int, typer.Option(min=0, help="Certify this many random halves and check the other halves.")
    ] = 0,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    as_json: JsonOption = False,
) -> None:
    """Find the threshold above which at most a stated share of the replies is wrong.

    Exit status 3 where the labels prove none; how many more are needed is then said.
    """
    from calibrator import check_target, holds_chance
    from policies import certify as run

    with _sentences():
        loaded = _load(policy) if policy is not None else None
        scope = _scope(model, team, loaded, rule)
        if bool(files) == from_store:
            raise ValueError("certify needs FILES or --from-store, one of them")
        check_target(output, files or [])
        labelled, calibrators = (
            _audited(config, since, scope, loaded)
            if from_store
            else _labels(files or [], calibrator, device, scope, loaded)
        )
        if splits:
            _print_study(labelled, max_error, confidence, splits, as_json)
            return
        found = run(labelled, max_error, confidence)
        auroc = _auroc(labelled)
        _print_certification(found, scope, as_json, auroc)
        if auroc is not None and holds_chance(auroc):
            typer.echo(_cannot_rank(auroc, found), err=True)
        if found.threshold is None:
            raise typer.Exit(NOT_CERTIFIED)
        if output is not None:
            _write_certificate(output, found, scope, calibrators)


def _scope(model: str | None, team: str | None, policy: Policy | None, name: str | None) -> Scope:
    """What is certified; raises ValueError for a rule that is not in the policy."""
    from policies import Scope, nearest

    if name is None:
        return Scope(model, team)
    if policy is None:
        raise ValueError("--rule needs --policy")
    for rule in policy.rules:
        if rule.name == name:
            return Scope(model, team, name, rule.digest)
    meant = nearest(name, [rule.name for rule in policy.rules])
    hint = f"; did you mean {meant!r}?" if meant else ""
    raise ValueError(f"policy {policy.name} has no rule {name!r}{hint}")


def _labels(
    files: Sequence[Path], calibrator: str, device: str, scope: Scope, policy: Policy | None
) -> tuple[list[Labelled], set[str | None]]:
    """The labels of files, and the calibrators that gave their confidences."""
    rows = _in_scope(_rows(files, calibrator, device), scope, policy)
    return [row.labelled() for row in rows], {row.calibrator for row in rows}


def _audited(
    config: Path | None, since: str, scope: Scope, policy: Policy | None
) -> tuple[list[Labelled], set[str | None]]:
    """The same of the store's audited replies, under the calibrator that is configured now."""
    from calibrator import resolve_recalibration
    from proxy.config.setup import load_store_config
    from proxy.learning.certifying import audited_labels
    from proxy.scoring.engines.opening import known_name

    with errors_told():
        named = load_store_config(config).calibrator
    calibrator = known_name(named)
    if named.recalibration and (found := resolve_recalibration(named.recalibration)):
        calibrator += f"+{found.name}"
    start = time.time() - seconds(since)
    with opened_record(config) as findings:
        labels = audited_labels(findings.engine, start, calibrator, scope, policy)
    return labels, {calibrator}


def _in_scope(rows: list[ScoredRow], scope: Scope, policy: Policy | None) -> list[ScoredRow]:
    """The rows that a grant of this scope speaks about; raises ValueError where there are none."""
    from policies import reaches

    kept = [row for row in rows if scope.model in (None, row.row.model)]
    kept = [row for row in kept if scope.team in (None, row.row.raw.get("team"))]
    if scope.rule is not None and policy is not None:
        kept = [row for row in kept if reaches(policy, scope.rule, row.exchange().facts)]
    if not kept:
        raise ValueError(f"no labelled row is within {scope}")
    return kept


def _auroc(labelled: Sequence[Labelled]) -> Interval | None:
    """How well the confidences rank the labelled replies; None for labels of one kind."""
    from calibrator import auroc_interval

    if len({each.is_correct for each in labelled}) < 2:
        return None
    right = [float(each.is_correct) for each in labelled]
    questions = [each.question for each in labelled]
    return auroc_interval(right, [each.confidence for each in labelled], questions)


def _cannot_rank(auroc: Interval, found: Certification) -> str:
    """What to do where right replies are no surer than wrong ones."""
    told = f"AUROC {auroc.value:.3f}, 95 % within {auroc.low:.3f} and {auroc.high:.3f}"
    so = ""
    if found.threshold is not None:
        so = "the threshold holds because few replies are wrong, not because it sorts them; "
    return (
        "warning: the calibrator cannot rank these replies, as far as "
        f"{counted(found.labels, 'label shows', 'labels show')} "
        f"({told}); {so}do not gate on it; `pinocchio advise` with the same labels says what "
        "to do"
    )


def _print_certification(
    found: Certification, scope: Scope, as_json: bool, auroc: Interval | None
) -> None:
    if as_json:
        values = asdict(found) | {"coverage": found.coverage, "scope": asdict(scope)}
        values["auroc"] = auroc and asdict(auroc)
        del values["scores"]
        typer.echo(json.dumps(values))
        return
    if found.threshold is not None:
        typer.echo(
            f"threshold {found.threshold:g}: of {scope} at or above it, at most "
            f"{found.max_error:.3g} are wrong, with {found.confidence:.3g} confidence\n"
            f"coverage {found.coverage:.3f}: {found.accepted} of "
            f"{counted(found.labels, 'question')}, "
            f"{found.wrong} of them wrong"
        )
        return
    assert found.needed is not None
    needed = _needed(found.needed)
    typer.echo(
        f"No threshold found for {scope}: "
        f"{counted(found.labels, 'labelled question does', 'labelled questions do')} not prove "
        f"that at most {found.max_error:.3g} are wrong ({found.confidence:.3g} confidence).\n"
        f"{needed}"
    )


def _needed(needed: Needed) -> str:
    """What would prove a threshold, or why nothing will."""
    which = "too many of the surest replies are wrong"
    if needed.wrong:
        are = "is" if needed.wrong == 1 else "are"
        which = f"{needed.wrong:,} of the {needed.surest:,} surest replies {are} wrong"
    least = f"at least {needed.at_least:,}, if none of them is wrong"
    if needed.expected is not None:
        more = counted(needed.expected, "more label is", "more labels are")
        text = f"About {more} needed, going by the errors so far; {least}."
        if not needed.wrong:
            return text
        return f"{text} The search ends at the first threshold that fails, and {which}."
    if needed.is_hopeless:
        return (
            f"More labels will hardly help: {which}. Look at those replies, recalibrate, or allow "
            "a higher --max-error."
        )
    return f"They are too few: with {least}, it could be proved."


def _print_study(
    labelled: list[Any], max_error: float, confidence: float, splits: int, as_json: bool
) -> None:
    from policies import study

    found = study(labelled, max_error, confidence, splits=splits)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(
        f"{counted(found.splits, 'split')} of {counted(found.questions, 'question')}: "
        f"{found.certified:.1%} certified\n"
        f"at most {max_error:.3g} of errors asked for; best coverage with all labels in view "
        f"{found.best_coverage:.3f}"
    )
    if found.mean_error is not None and found.median_coverage is not None:
        typer.echo(
            f"on the other halves: mean error {found.mean_error:.4f}, median coverage "
            f"{found.median_coverage:.3f}, more errors than asked for in {found.violations:.1%}"
        )


def _write_certificate(
    path: Path, found: Certification, scope: Scope, calibrators: set[str | None]
) -> None:
    """Adds the grant to the file, in place of one for the same calibrator, error and scope."""
    from policies import Certificate, parse_certificate

    calibrator = calibrators.pop()
    if calibrators or calibrator is None:
        raise ValueError(
            "a certificate is for one calibrator: the rows have to say, under `calibrator`, which "
            "version gave their confidences, all of them the same"
        )
    grant = found.grant(calibrator, scope)
    known: tuple[Grant, ...] = ()
    if path.exists():
        known = parse_certificate(path.read_text(encoding="utf-8"), str(path)).grants
    kept = tuple(each for each in known if each.subject != grant.subject)
    issued = datetime.now(UTC).date().isoformat()
    certificate = Certificate((*kept, grant), issued)
    written = path.with_name(f"{path.name}.new")  # a running proxy never reads half of it
    written.write_text(certificate.to_json(), encoding="utf-8")
    written.replace(path)
    typer.echo(f"written to {path}", err=True)


@cli.command("test")
def run_fixtures(
    policy: PolicyName,
    fixtures: Annotated[Path, typer.Argument(help="A file of fixtures, or a folder of them.")],
    as_json: JsonOption = False,
) -> None:
    """Test a policy on recorded exchanges; exit status 1 if a decision differs."""
    from policies import check_fixtures, load_fixtures

    with _sentences():
        checked = check_fixtures(_load(policy), load_fixtures(fixtures))
    differing = [each for each in checked if each.differences]
    if as_json:
        values = [{"name": c.fixture.name, "differences": c.differences} for c in checked]
        typer.echo(json.dumps({"fixtures": values, "differing": len(differing)}))
    else:
        for each in checked:
            typer.echo(str(each))
        typer.echo(f"fixtures that differ: {len(differing)} of {len(checked)}")
    if differing:
        raise typer.Exit(DIFFERS)


@cli.command()
def replay(
    policies: Annotated[str, typer.Option("--policies", help="The new policy, a pack or a file.")],
    rows: Annotated[
        list[Path] | None,
        typer.Option(help=f"{SCORED_ROWS_HELP} One --rows for each file."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Replay the record of this last span, such as 12h or 30d, not rows."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            help="Compare with this policy; with --since the configured one is the default."
        ),
    ] = None,
    config: ConfigOption = None,
    workflows: Annotated[
        bool, typer.Option("--workflows", help="Add the paper's three workflows and cost tables.")
    ] = False,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
) -> None:
    """Show what a policy would have done: coverage, errors, review load, money, changes by rule."""
    from policies import replay as run
    from policies import workflow_report

    with _sentences():
        if bool(rows) == bool(since):
            raise ValueError("a replay needs --rows or --since, one of them")
        if since:
            exchanges, old = recorded_exchanges(config, since)
            outcomes = _recorded_outcomes(exchanges)
        else:
            read = _rows(rows or [], calibrator, device)
            exchanges, old = [row.exchange() for row in read], None
            outcomes = _outcomes(read)
        old = _load(before) if before else old
        typer.echo(str(run(_load(policies), exchanges, before=old)))
        if workflows:
            typer.echo("\n".join(workflow_report(outcomes)))


def _outcomes(rows: Sequence[ScoredRow]) -> list[Any]:
    from policies import Outcome

    return [
        Outcome(row.confidence, row.is_correct, row.row.model or "", row.row.question_id)
        for row in rows
    ]


def _recorded_outcomes(exchanges: Sequence[Exchange]) -> list[Any]:
    """The replies that have a verdict; each counts as one to a question of its own."""
    from policies import Outcome

    return [
        Outcome(each.facts.confidence, each.is_correct, each.facts.model, str(index))
        for index, each in enumerate(exchanges)
        if each.is_correct is not None and each.facts.confidence is not None
    ]


@cli.command()
def schema() -> None:
    """Print the JSON Schema of policies, for editors."""
    from policies import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
