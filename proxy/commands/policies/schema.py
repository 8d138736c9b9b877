"""`pinocchio schema`: the JSON Schema of policies."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON Schema of policies, for editors."""
    from policies import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
