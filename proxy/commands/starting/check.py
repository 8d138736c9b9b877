"""`pinocchio check`: the mistakes in a configuration and its policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from policies import Policy, plural
from proxy.commands.opening.exits import DEFAULT_HOST, DEFAULT_PORT, ConfigOption, stop
from proxy.errors import ExitStatus, StartupError

if TYPE_CHECKING:
    from proxy.config.setup import Setup

JUDGE_BY_PRIOR = (
    "a judge moves a number by a prior, by 0.76 of log-odds at most, until verdicts teach what it "
    "is worth: `pinocchio recalibrate --from-store --signals`"
)
LOGPROBS_UNWEIGHED = (
    "log-probabilities are told and change no number yet: verdicts teach what they are worth, with "
    "`pinocchio recalibrate --from-store --signals`"
)


def check(
    config: ConfigOption = None,
    policy: Annotated[
        str | None, typer.Option(help="Check this pack or policy file, not the configured one.")
    ] = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON Schema of policies, for editors, instead."),
    ] = False,
) -> None:
    """Check a configuration and its policy; exit status 2 names each problem's file and line."""
    from policies import json_schema, lint, stream_report
    from proxy.config.settings.problems import add_location
    from proxy.config.setup import load_setup
    from proxy.scoring.loader import load_recalibrations
    from proxy.startup.startup import check_setup, check_stored_keys, without_domains, workers_line
    from proxy.upstreams.upstream_lines import upstream_lines

    if schema:
        typer.echo(json.dumps(json_schema(), indent=2))
        return
    try:
        setup = load_setup(config, policy)
        check_setup(setup, DEFAULT_HOST)
        check_stored_keys(setup)
        facts = _facts_line(setup)
    except StartupError as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    typer.echo(f"{setup.path or 'built-in configuration'}: ok")
    rules = plural(len(setup.policy.rules), "rule")
    typer.echo(
        f"policy {setup.policy.name}@{setup.policy.digest}: ok, {setup.policy.mode}, {rules}"
    )
    for line in stream_report(setup.policy):
        typer.echo(f"  {line}")
    recalibrations = load_recalibrations(setup.config.calibrator)
    for line in _beyond_the_reply(
        setup.policy, is_weighed=bool(recalibrations and recalibrations.signals)
    ):
        typer.echo(f"  {line}")
    typer.echo(f"calibrator {setup.config.calibrator.summary}")
    for line in [*facts, *workers_line(setup.config)]:
        typer.echo(line.strip())
    for name, team in setup.config.teams.items():
        policy_of_team = setup.book.load(team.policy)
        typer.echo(f"team {name}: policy {policy_of_team.name}@{policy_of_team.digest}")
    for line in upstream_lines(setup.config, setup.path):
        typer.echo(line)
    for text in _own_addresses(setup):
        typer.echo(f"  warning: {text}")
    if text := without_domains(setup.config, recalibrations):
        place = add_location(setup.path, ("calibrator", "recalibration"), text)
        typer.echo(f"  warning: {place}")
    for text in [*_no_models(setup), *setup.book.namesakes()]:
        typer.echo(f"  warning: {text}")
    for each in setup.book:
        for warning in lint(each):
            typer.echo(f"  warning: {warning}")


def _own_addresses(setup: Setup) -> Iterator[str]:
    """Yield a warning for each upstream at the address where `serve` itself listens by default."""
    from proxy.config.settings.problems import add_location
    from proxy.upstreams.loops import address_of, is_at

    for name, upstream in setup.config.upstreams.items():
        if upstream.base_url and is_at(upstream.base_url, DEFAULT_HOST, DEFAULT_PORT):
            text = (
                f"{address_of(upstream.base_url)} is where `pinocchio serve` itself listens, "
                "unless --port says otherwise"
            )
            yield add_location(setup.path, ("upstreams", name, "base_url"), text)


def _no_models(setup: Setup) -> Iterator[str]:
    """Yield a warning where the configuration routes no model, so that nothing can be answered."""
    from proxy.config.settings.problems import add_location

    if not setup.config.models:
        name = next(iter(setup.config.upstreams), "NAME")
        text = f'none, so no request can be answered; all are by [{{match: "*", upstream: {name}}}]'
        yield add_location(setup.path, ("models",), text)


def _facts_line(setup: Setup) -> list[str]:
    """Return a line with the number of the operator's facts, or none without a file of facts.

    Raises StartupError for a broken file.
    """
    from proxy.scoring.loader import load_fact_file, locate_calibrator_error

    with locate_calibrator_error(setup.path, "facts"):
        facts = load_fact_file(setup.config.calibrator)
    if facts is None:
        return []
    return [f"facts {facts.path}: {plural(facts.count, 'entry', 'entries')}"]


def _beyond_the_reply(policy: Policy, *, is_weighed: bool) -> Iterator[str]:
    """Yield a line for each other model that the policy asks, and for unweighed signals."""
    if policy.second_opinion is not None:
        yield str(policy.second_opinion)
    if policy.judge is not None:
        yield str(policy.judge)
    if policy.judge is not None and not is_weighed:
        yield JUDGE_BY_PRIOR
    if policy.logprobs and not is_weighed:
        yield LOGPROBS_UNWEIGHED
