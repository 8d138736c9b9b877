"""All commands of the proxy, each from its own module.

A command is a function of its own module, such as `drift.py`, and is listed in the tuple below. A
group of commands has a `cli` of its own. Their groups in `pinocchio --help` are in
`pinocchio/help.py`. Researchers' commands are in
`calibrator/lab/commands/app.py`.
"""

from __future__ import annotations

import typer

from proxy.commands import audit, export, keys, recalibrate, tune
from proxy.commands.checkup.doctor import doctor
from proxy.commands.drift import drift
from proxy.commands.mcp import mcp
from proxy.commands.policies.certify import certify
from proxy.commands.policies.explain import explain
from proxy.commands.policies.hook import hook
from proxy.commands.policies.promote import promote
from proxy.commands.policies.replay import replay
from proxy.commands.policies.schema import schema
from proxy.commands.policies.test import run_fixtures
from proxy.commands.reviews import feedback, fetch, figures, verdict
from proxy.commands.reviews.reviews import reviews
from proxy.commands.starting.check import check
from proxy.commands.starting.init import init
from proxy.commands.starting.migrate import migrate
from proxy.commands.starting.serve import serve
from proxy.commands.top import top

cli = typer.Typer(no_args_is_help=True)
for command in (
    init,
    serve,
    check,
    doctor,
    top,
    migrate,
    mcp,
    drift,
    certify,
    explain,
    hook,
    promote,
    replay,
    schema,
):
    cli.command()(command)
cli.command("test")(run_fixtures)
for commands in (feedback, recalibrate, tune):
    cli.add_typer(commands.cli)  # without a name: its commands join the others
for name, group in (("export", export), ("keys", keys), ("audit", audit)):
    cli.add_typer(group.cli, name=name)
cli.add_typer(reviews, name="reviews")

__all__ = ["cli", "fetch", "figures", "verdict"]  # the last three add commands to `reviews`
