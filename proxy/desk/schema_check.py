"""Whether a value fits a JSON Schema that a client sent.

The schema is a stranger's: a pattern in it may run for years, a reference may name a host. It is
checked in a process of its own, without a registry to load from, and ended when it takes too long.
Run as a script this file is that process: it imports jsonschema and nothing of the proxy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

LIMIT_S = 5.0


def mistake_in(value: Any, schema: Any) -> str | None:
    """A sentence about what does not fit and where; None where all does."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__],
            input=json.dumps({"schema": schema, "value": value}),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it could not be checked against its schema within {LIMIT_S:g} s"
    if done.returncode != 0:
        return "its schema cannot be used"
    found = json.loads(done.stdout)
    return found if isinstance(found, str) else None


def _mistake(value: Any, schema: Any) -> str | None:
    from jsonschema import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from jsonschema_specifications import REGISTRY

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        return f"its schema is none: {error.message}"
    errors = kind(schema, registry=REGISTRY).iter_errors(value)
    worst = min(errors, key=lambda error: (len(error.absolute_path), str(error.path)), default=None)
    if worst is None:
        return None
    return f"{worst.json_path}: {worst.message[:500]}"


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(_mistake(asked["value"], asked["schema"])))
