"""`pinocchio test`: a policy's decisions on recorded exchanges, compared with the expected ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.policies.options import DIFFERS, JsonOption, policy_named, sentences

PolicyName = Annotated[str, typer.Argument(help="A pack or a policy file.")]


def run_fixtures(
    policy: PolicyName,
    fixtures: Annotated[Path, typer.Argument(help="A file of fixtures, or a folder of them.")],
    as_json: JsonOption = False,
) -> None:
    """Test a policy on recorded exchanges; exit status 1 if a decision differs."""
    from policies import check_fixtures, load_fixtures

    with sentences():
        checked = check_fixtures(policy_named(policy), load_fixtures(fixtures))
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
