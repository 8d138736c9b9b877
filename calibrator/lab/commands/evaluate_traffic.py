"""The part of `pinocchio evaluate` that measures on real traffic (`--traffic`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import print_table, say_bad
from calibrator.errors import JudgingError, RowError
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.lab.judging.evaluation.traffic import Traffic
    from calibrator.scorer import Scorer

TrafficPlaces = Annotated[
    list[Path] | None,
    typer.Option(
        "--traffic",
        help="Also measure on real traffic: 400 app replies of our own, and what this file or "
        "folder holds, labelled rows (.jsonl, .jsonl.gz) and hand-made pairs (.json). Of a folder "
        "with grounding/test, these, and traffic/handmade.json in or beside it. May be repeated.",
    ),
]
MOST_ROWS: Final = 1_000  # of a set


def traffic_files(places: Sequence[Path] | None) -> list[Path]:
    """Return the files of rows that --traffic names, files or folders; [] for None.

    Raises JudgingError for a folder without any, and InputError for a file that cannot be read.
    """
    from calibrator.lab.judging.evaluation.traffic import find_traffic

    found = find_traffic(places or [])
    check_readable(found, times=2)  # a look at the first row tells what the file holds
    return found


def check_has_rows(
    files: Sequence[Path], traffic: Sequence[Path] | None, needing: Mapping[str, object]
) -> None:
    """Raise JudgingError where there are no rows to judge, or an option lacks its rows.

    `needing` maps each such option to its value, which is falsy where it was not used.
    """
    if files:
        return
    if not traffic:
        raise JudgingError("give files with labelled rows, --traffic with a folder, or both")
    used = [name for name, value in needing.items() if value]
    if used:
        raise JudgingError(f"{used[0]} needs files with labelled rows; --traffic alone has none")


def traffic_of(
    scorer: Scorer | None, calibrator: str, files: Sequence[Path]
) -> tuple[Traffic, list[RowError]]:
    """Return the figures on these files and our own replies, and the errors of bad rows.

    At most `MOST_ROWS` rows of a set are used. Raises JudgingError without a scorer, as with
    `--scores`.
    """
    from calibrator.lab.judging.evaluation.traffic import (
        measure_traffic,
        probes_of,
        read_traffic,
        replies_to_score,
    )
    from calibrator.loading import checkpoint_card
    from calibrator.rows.scores import image_use

    if scorer is None:
        raise JudgingError("--traffic needs a calibrator to score replies; leave out --scores")
    sets, bad = read_traffic(files, image_use(scorer), MOST_ROWS)
    say_bad(bad, sum(len(each.rows) for each in sets) + len(bad))
    probes = probes_of(sets)
    left_out = (checkpoint_card(calibrator) or {}).get("left_out", ())
    with Progress("scoring traffic", replies_to_score(sets, probes)) as progress:
        return measure_traffic(scorer, sets, probes, left_out, progress.advance), bad


def print_traffic(traffic: Traffic) -> None:
    """Print all tables of replies of real apps that have any rows."""
    from calibrator.lab.judging.evaluation.traffic.tables import TABLES

    typer.echo(f"{traffic.calibrator}, real traffic")
    for table in TABLES:
        head, rows = table(traffic)
        if rows:
            print_table(head, rows)
            typer.echo()
