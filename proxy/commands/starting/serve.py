"""`pinocchio serve`: runs the proxy, or the scoring server alone."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from calibrator import refuse
from proxy.commands.opening.exits import DEFAULT_HOST, DEFAULT_PORT, ConfigOption, exit_on_errors


def serve(
    context: typer.Context,
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    policy: Annotated[
        str | None, typer.Option(help="Use this pack or policy file, not the configured policy.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that serve, in place of `workers` of the configuration."),
    ] = None,
    scorer_only: Annotated[
        bool,
        typer.Option("--scorer-only", help="Run only the scoring server, for other processes."),
    ] = False,
) -> None:
    """Run the proxy."""
    # numpy reads this when it is imported. With a thread for each core its library waits for cores
    # that others use: a score of a short reply took ten times as long on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with exit_on_errors():
        if scorer_only:
            refuse(
                context, ["policy", "workers"], "is for the proxy; leave it out with --scorer-only"
            )
            from proxy.scoring.server.app import serve_scorer

            serve_scorer(config, host, port, typer.echo)
            return
        from proxy.startup.startup import serve as run

        run(config, host, port, policy, typer.echo, workers)
