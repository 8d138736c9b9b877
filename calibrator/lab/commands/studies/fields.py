"""The output of `pinocchio study fields`: whether an altered argument is reported first."""

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

HEAD = (
    "altered",
    "replies",
    "any flagged",
    "ranked first",
    "over all",
    "random",
    "flagged in right",
)


def show_fields(
    rows: Sequence[Row], scorer: Scorer, count: int | None, output: Path | None
) -> None:
    """Change one argument of right calls, print whether it is reported, and write it as JSON."""
    from calibrator.lab.judging.sensitivity.fields import MOST, study_fields

    with Progress("scoring", 2 * (count or MOST)) as progress:
        found = study_fields(scorer, rows, count or MOST, progress.advance)
    write_if_named(output, found.as_json())
    lines = [
        [
            one.kind,
            f"{one.replies:,}",
            *map(figure, (one.told, one.first, one.found, one.chance, one.alarms)),
        ]
        for one in found.entries
    ]
    print_table(HEAD, lines)
