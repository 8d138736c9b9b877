"""Checks whether a value fits a JSON Schema that a client sent.

The schema is not trusted: a pattern in it may run for years, and a reference may name a host. So it
is checked in a separate process, without a registry to load from, which is killed when it takes too
long. Run as a script this file is that process: it imports jsonschema and nothing of the proxy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

LIMIT_S = 5.0  # seconds for all values of an edit
Refusal = Callable[[str], Exception]


class SchemaChecks:
    """The values of one edit and their schemas, checked in one process within `LIMIT_S`."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._refusals: list[Refusal] = []

    def add(self, value: Any, schema: Any, refusal: Refusal) -> None:
        """Add a value to check; `refusal` makes an exception of the sentence about a mistake."""
        self._pairs.append((value, schema))
        self._refusals.append(refusal)

    def run(self) -> None:
        """Check all values in a process of its own, which may take `LIMIT_S` seconds.

        Raises what the refusal makes of the first value that does not fit or cannot be checked.
        """
        mistakes = _mistakes(self._pairs) if self._pairs else []
        for mistake, refusal in zip(mistakes, self._refusals, strict=False):
            if mistake is not None:
                raise refusal(mistake)


def _mistakes(pairs: Sequence[tuple[Any, Any]]) -> list[str | None]:
    """Return what is wrong with each value, up to the first mistake; None for each that fits.

    Runs a process of its own, which is killed after `LIMIT_S`; that is a mistake too.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__],
            input=json.dumps(pairs),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return [f"it could not be checked against its schema within {LIMIT_S:g} s"]
    mistakes = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        mistakes.append("its schema cannot be used")
    return mistakes


def _mistake(value: Any, schema: Any) -> str | None:
    """Return what is wrong with a value as a sentence, or None. Imports jsonschema."""
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
    for value, schema in json.load(sys.stdin):
        mistake = _mistake(value, schema)
        print(json.dumps(mistake))
        if mistake is not None:
            break
