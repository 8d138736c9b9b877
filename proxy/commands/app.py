"""All commands of the proxy, each from its own module, in the groups of `pinocchio --help`.

A command is a function of its own module, such as `top.py`, and is listed in the table below. A
group of commands is a Typer app of its own. Researchers' commands are in
`calibrator/lab/commands/app.py`; `pinocchio/commands.py` adds them as the group `lab`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from calibrator import score
from proxy.commands.audit import cli as audit
from proxy.commands.checkup.doctor import doctor
from proxy.commands.export import export
from proxy.commands.keys import cli as keys
from proxy.commands.mcp import mcp
from proxy.commands.policies.certify import certify
from proxy.commands.policies.explain import explain
from proxy.commands.policies.hook import hook
from proxy.commands.policies.promote import promote
from proxy.commands.policies.replay import replay
from proxy.commands.policies.test import run_fixtures
from proxy.commands.recalibrate import recalibrate
from proxy.commands.reviews.label import label
from proxy.commands.reviews.report import report
from proxy.commands.reviews.reviews import reviews
from proxy.commands.starting.check import check
from proxy.commands.starting.init import init
from proxy.commands.starting.migrate import migrate
from proxy.commands.starting.serve import serve
from proxy.commands.top import top
from proxy.commands.tune import tune

CALIBRATORS: Final = "Calibrators: score replies, correct the scores, train and judge calibrators"
GROUPS: Final[dict[str, dict[str, Callable[..., Any]]]] = {
    "Run: start the proxy, and look at what it did": {
        "serve": serve,
        "init": init,
        "check": check,
        "doctor": doctor,
        "top": top,
        "explain": explain,
    },
    "Review: decide on held replies, say what was right, count it": {
        "reviews": reviews,
        "label": label,
        "report": report,
        "mcp": mcp,
    },
    "Policies: test a policy, replay it on traffic, prove its threshold": {
        "test": run_fixtures,
        "replay": replay,
        "promote": promote,
        "certify": certify,
        "hook": hook,
    },
    "Operate: keys and the store": {
        "keys": keys,
        "export": export,
        "migrate": migrate,
        "audit": audit,
    },
    CALIBRATORS: {"score": score, "recalibrate": recalibrate, "tune": tune},
}

cli = typer.Typer(no_args_is_help=True)
for title, commands in GROUPS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            cli.add_typer(command, name=name, rich_help_panel=title)
        else:
            cli.command(name, rich_help_panel=title)(command)
