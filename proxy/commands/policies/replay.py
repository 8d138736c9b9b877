"""`pinocchio replay`: what a policy would have done, on rows or on the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator import refuse
from proxy.commands.opening.exits import ConfigOption
from proxy.commands.opening.opened_record import recorded_exchanges
from proxy.commands.policies.options import (
    SCORED_ROWS_HELP,
    Calibrator,
    policy_named,
    scored_rows,
    sentences,
)

if TYPE_CHECKING:
    from policies import Exchange
    from proxy.commands.policies.labelled_rows import ScoredRow


def replay(
    context: typer.Context,
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
    team: Annotated[
        str | None,
        typer.Option(help="With --since: this team's requests, compared with this team's policy."),
    ] = None,
    is_all: Annotated[
        bool,
        typer.Option("--all", help="With --since: also what policies of other names decided on."),
    ] = False,
    config: ConfigOption = None,
    workflows: Annotated[
        bool, typer.Option("--workflows", help="Add the paper's three workflows and cost tables.")
    ] = False,
    calibrator: Calibrator = "embedded",
) -> None:
    """Show what a policy would have done: coverage, errors, review load, money, changes by rule.

    With --since it is replayed on what a policy of its name decided on, if there is any.
    """
    from calibrator import workflow_report
    from policies import replay as run

    with sentences():
        if bool(rows) == bool(since):
            raise ValueError("a replay needs --rows or --since, one of them")
        if since:
            refuse(context, ["calibrator"], "is for --rows; leave it out with --since")
            name = policy_named(policies).name
            exchanges, old, hints = recorded_exchanges(config, since, name, team, is_all=is_all)
            outcomes = _recorded_outcomes(exchanges)
        else:
            only_since = ["config", "team", "is_all"]
            refuse(context, only_since, "is for --since; leave it out with --rows")
            scored = scored_rows(rows or [], calibrator)
            exchanges, old, hints = [row.exchange() for row in scored], None, []
            outcomes = _outcomes(scored)
        old = policy_named(before) if before else old
        typer.echo(str(run(policy_named(policies), exchanges, before=old)))
        for hint in hints if before is None else []:
            typer.echo(hint, err=True)
        if workflows:
            typer.echo("\n".join(workflow_report(outcomes)))


def _outcomes(rows: Sequence[ScoredRow]) -> list[Any]:
    """Return labelled rows as outcomes for the tables of workflows."""
    from calibrator import Outcome

    return [
        Outcome(row.confidence, row.is_correct, row.row.model or "", row.row.question_id)
        for row in rows
    ]


def _recorded_outcomes(exchanges: Sequence[Exchange]) -> list[Any]:
    """Return the replies with a verdict as outcomes, each with a question of its own."""
    from calibrator import Outcome

    return [
        Outcome(each.facts.confidence, each.is_correct, each.facts.model, str(index))
        for index, each in enumerate(exchanges)
        if each.is_correct is not None and each.facts.confidence is not None
    ]
