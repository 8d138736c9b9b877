"""`pinocchio migrate`: brings the store's schema up to date before a new version starts."""

from __future__ import annotations

import typer

from proxy.commands.opening.exits import ConfigOption, exit_on_errors


def migrate(config: ConfigOption = None) -> None:
    """Make the store's tables, or bring them up to this version, as `serve` does at its start."""
    from proxy.config.setup import load_store_config
    from proxy.startup.startup import check_folder
    from proxy.store.database.database import open_engine
    from proxy.store.database.schema import LATEST
    from proxy.store.database.tables import place_of

    with exit_on_errors():
        url = load_store_config(config).store
        check_folder(url)
        open_engine(url).dispose()
        typer.echo(f"the store {place_of(url)} is ready (schema {LATEST})")
