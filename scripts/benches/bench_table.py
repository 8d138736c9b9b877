"""The output of the benchmarks: figures in aligned columns, progress on stderr."""

from __future__ import annotations

import math
import sys


def say(line: str) -> None:
    """Print a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)


def table(rows: list[list[str]]) -> str:
    """Return the rows as lines of text in aligned columns, the first to the left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )


def number_text(value: float) -> str:
    """Return a number as text: `-` for nan, `1,234` for whole or large ones, else two decimals."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
