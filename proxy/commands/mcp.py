"""`pinocchio mcp`: an MCP server over stdin and stdout, for any MCP client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrator import install_command
from proxy.commands.opening.exits import ConfigOption, exit_on_errors, stop
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from proxy.optional.mcp.desk import DeskClient

DESK_PORT = 8_001
KEY_VARIABLE = "PINOCCHIO_REVIEWER_KEY"


def mcp(
    config: ConfigOption = None,
    desk: Annotated[
        str | None, typer.Option(help="Where the review desk listens (default: as configured).")
    ] = None,
) -> None:
    """Serve tools over MCP: score a reply or a call; with a reviewer's key, list the queue, decide.

    The key of `pinocchio keys create --role reviewer` is read from PINOCCHIO_REVIEWER_KEY. Without
    it there are only the tools that score: an agent with a key could approve its own calls.
    """
    from proxy.config.setup import load_store_config
    from proxy.http.listener.logs import configure_logs
    from proxy.optional.mcp.scoring import ScoringTools

    with exit_on_errors():
        configure_logs()
        section = load_store_config(config).calibrator
    if section.engine.kind != "in_process":
        text = "`pinocchio mcp` scores in its own process; the configuration names an engine"
        raise stop(ExitStatus.UNUSABLE_INPUT, text)
    scoring = ScoringTools(section.checkpoint, section.device, section.recalibration)
    key = os.environ.get(KEY_VARIABLE, "")
    reviewing = _desk(config, desk, key) if key else None
    try:
        from proxy.optional.mcp.server import serve
    except ImportError as error:
        text = f"`pinocchio mcp` needs a library that is not installed: {install_command('mcp')}"
        raise stop(ExitStatus.UNUSABLE_INPUT, text) from error
    try:
        serve(scoring, reviewing)
    finally:
        if reviewing is not None:
            reviewing.close()


def _desk(config: Path | None, url: str | None, key: str) -> DeskClient:
    """Return a client of the review desk at `url`, or else where the configuration has it."""
    from proxy.config.setup import load_store_config
    from proxy.optional.mcp.desk import DeskClient

    admin = load_store_config(config).admin
    host = f"[{admin.host}]" if ":" in admin.host else admin.host
    return DeskClient(url or f"http://{host}:{admin.port or DESK_PORT}", key)
