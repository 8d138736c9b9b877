"""The output of `pinocchio study reasons`: whether confidences move as their reasons say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import print_table, write_if_named
from calibrator.metrics.numbers import figure

if TYPE_CHECKING:
    from calibrator.rows.rows import Row
    from calibrator.scorer import Scorer

HEAD = ("the reason", "told", "taken away", "the number rises", "by", "right")


def show_reasons(
    rows: Sequence[Row], scorer: Scorer, count: int | None, output: Path | None
) -> None:
    """Remove the causes that reasons name, print how the confidence moves, and write it as JSON."""
    from calibrator.lab.judging.sensitivity.reasons import MAX_ROWS, study_reasons

    with Progress("scoring", len(rows)) as progress:
        found = study_reasons(scorer, rows, count or MAX_ROWS, progress.advance)
    write_if_named(output, found.as_json())
    lines = [
        [
            one.reason,
            f"{one.told:,}",
            f"{one.edited:,}",
            figure(one.share),
            figure(one.rise),
            figure(one.right),
        ]
        for one in [*found.entries, found.all]
    ]
    print_table(HEAD, lines)
