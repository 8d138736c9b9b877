"""All commands of `pinocchio`: those of the proxy, and researchers' in the group `lab`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from pinocchio.packages import has_lab
from proxy.commands.app import CALIBRATORS
from proxy.commands.app import cli as commands_of_proxy

LAB_HELP = """Train, judge and study calibrators; collect labelled replies (for researchers).

Each of these commands works without `lab` too: `pinocchio evaluate` is `pinocchio lab evaluate`.
"""


class RootGroup(TyperGroup):
    """The command `pinocchio`, which also finds the commands of `lab` by their names alone."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, if need be from the group `lab`, or None.

        Without the lab, an unknown name ends the process with a sentence that says so.
        """
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        if "lab" not in self.commands:
            raise SystemExit(
                f"pinocchio: there is no command `{cmd_name}` here; the researchers' commands are "
                "in calibrator/lab, and this installation leaves that folder out"
            )
        lab: Any = self.commands["lab"]
        return lab.get_command(ctx, cmd_name)


cli = typer.Typer(cls=RootGroup, no_args_is_help=True)
cli.add_typer(commands_of_proxy)  # without a name: its commands join the others
if has_lab():
    from calibrator.lab import cli as lab

    cli.add_typer(lab, name="lab", help=LAB_HELP, rich_help_panel=CALIBRATORS)
