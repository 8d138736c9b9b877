"""The `pinocchio` command."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pinocchio.packages import PACKAGES, place_of

if TYPE_CHECKING:
    import typer

_QUICK = {"serve": "proxy.commands.starting.serve", "hook": "proxy.commands.policies.hook"}
GC_THRESHOLDS = 50_000, 20, 50  # high, as nearly all imported objects stay alive


def misplaced_package(root: Path) -> str | None:
    """Return a sentence about the first of our packages that is not in `root`, or None."""
    for name in PACKAGES:
        if (place := place_of(name)) != root:
            return (
                f"pinocchio: package {name!r} comes from {place or 'nowhere'}, not from {root}; "
                "another distribution installs that name: give pinocchio-proxy its own environment"
            )
    return None


def _import_structlog() -> None:
    """Import structlog without rich.

    Typer brings rich, and structlog would load it for tracebacks that are never printed. That takes
    a tenth of the proxy's start time, and 3 MB.
    """
    absent = {name: None for name in ("rich", "better_exceptions") if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        import structlog  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


def main() -> None:
    """Run the command `pinocchio` with the arguments of this process.

    Exits with a sentence where another distribution hides one of our packages.
    """
    if sentence := misplaced_package(Path(__file__).resolve().parent.parent):
        sys.exit(sentence)
    gc.set_threshold(*GC_THRESHOLDS)
    _import_structlog()
    import typer.main

    from pinocchio.options import hide_type_of_flags, options
    from proxy.http.listener.logs import configure_logs

    configure_logs("warning")  # to stderr, as machines read stdout
    cli = _commands(only=sys.argv[1] if sys.argv[1:2] in (["serve"], ["hook"]) else None)
    cli.callback()(options)
    hide_type_of_flags()
    typer.main.get_command(cli)(prog_name="pinocchio")


def _commands(*, only: str | None) -> typer.Typer:
    """Return all commands, or an app with only `serve` or `hook`, which have to start quickly.

    `only` is the name of one of these two, or None for all.
    """
    import typer

    if only is None:
        from pinocchio.commands import cli as all_commands

        return all_commands
    command = import_module(_QUICK[only])
    cli = typer.Typer(no_args_is_help=True)
    cli.command()(getattr(command, only))
    return cli


if __name__ == "__main__":
    main()
