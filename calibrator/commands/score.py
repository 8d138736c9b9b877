"""`pinocchio score`: it adds a score and a confidence to rows."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    Calibrator,
    Device,
    RecalibrationFile,
    Rescore,
    check_target,
    file_option,
    is_among,
    refuse,
    report_bad,
    resumable,
    say,
    sentences,
    writer,
)
from calibrator.errors import ClusterError, OutputError, RowError
from calibrator.rows.files import SAMPLE, check_readable

if TYPE_CHECKING:
    from calibrator.readers.evidence.facts.fact_file import FactFile
    from calibrator.rows.rows import ImageUse, Row
    from calibrator.rows.shards import Options
    from calibrator.scorer import Item

Rows = Annotated[
    list[Path],
    typer.Argument(
        help="JSON lines with question or messages, and response; .gz is read too. "
        f"A sample: {SAMPLE}"
    ),
]
Output = Annotated[
    Path | None, file_option("-o", "--output", help="Write into this file, not to stdout.")
]
ToldNames = Annotated[
    Literal["served", "all", "none"],
    typer.Option(
        help="Names the calibrator sees: the model's (served), the benchmark's too (all), none."
    ),
]
Facts = Annotated[
    Path | None,
    file_option(
        "--facts",
        help="Hold replies against these names and texts, JSON lines, as `calibrator.facts` does.",
    ),
]
Brief = Annotated[
    bool,
    typer.Option("--brief", help="Write only ids and scores; a row without an id gets a digest."),
]
IgnoreImages = Annotated[
    bool, typer.Option("--ignore-images", help="Score the text alone where no image can be read.")
]
Engine = Annotated[
    Literal["process", "ray"],
    typer.Option(help="process: here; ray: on a Ray cluster, for millions of rows, with -o."),
]
RayAddress = Annotated[
    str,
    typer.Option(
        envvar="RAY_ADDRESS",
        help="Use this Ray cluster; without it one is started on this machine.",
    ),
]
Actors = Annotated[
    int,
    typer.Option(min=0, help="How many calibrators run on Ray; 0 means one for each core or GPU."),
]


def score(
    context: typer.Context,
    rows: Rows,
    output: Output = None,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    tags: ToldNames = "served",
    recalibration: RecalibrationFile = None,
    facts: Facts = None,
    rescore: Rescore = False,
    brief: Brief = False,
    ignore_images: IgnoreImages = False,
    engine: Engine = "process",
    ray_address: RayAddress = "",
    actors: Actors = 0,
) -> None:
    """Add a raw `score` and a `confidence` to every row; name and leave out the bad rows.

    Scores are kept as they are made: the same command goes on after an interruption.
    """
    if engine == "ray":
        refuse(context, ["rescore"], "is for one process; on Ray every row is scored anew")
        refuse(context, ["facts"], "is for one process; leave out --engine ray")
        from calibrator.rows.shards import Options

        calibrating = (calibrator, device, recalibration)
        options = Options(tags, is_brief=brief, ignores_images=ignore_images)
        _score_on_ray(rows, output, calibrating, options, ray_address, actors)
        return
    refuse(context, ["ray_address", "actors"], "is for Ray; say --engine ray too, or leave it out")
    from calibrator.loading import load_facts_for, load_scorer
    from calibrator.rows.kept_scores import cache_scores, reused_sentence
    from calibrator.rows.scores import image_use, score_items, scored_line
    from calibrator.scorer import provenance

    with sentences(), resumable():
        may_be_input = len(rows) == 1 and not brief  # the whole row is written
        check_target(output, [recalibration, facts, *([] if may_be_input else rows)])
        check_readable(rows)
        known = None if facts is None else load_facts_for(calibrator, facts)
        scorer = load_scorer(calibrator, device, recalibration=recalibration)
        scorer = cache_scores(scorer, device, is_renewed=rescore)
        good, bad = _rows(rows, image_use(scorer, are_ignored=ignore_images))
        if bad and output and is_among(output, rows):
            raise OutputError(f"{output} would lose its bad rows ({bad[0]}); name another file")
        items = [row.item(tags) for row in good]
        if known is not None:
            _add_facts(items, known)
        with Progress("scoring", len(good)) as progress:
            scores = score_items(scorer, items, progress.advance)
        if sentence := reused_sentence(scorer):
            say(sentence)
        with writer(output) as stream:
            for row, found in zip(good, scores, strict=True):
                stream.write(
                    scored_line(row, found, provenance(scorer, found), tags, is_brief=brief)
                )
    report_bad(bad, len(good) + len(bad))


def _add_facts(items: Sequence[Item], known: FactFile) -> None:
    """Give each item the operator's facts that it is about, and print how many have some."""
    for item in items:
        item.facts = known.about_item(item)
    used = sum(bool(item.facts) for item in items)
    counts = f"{used:,} of {len(items):,} rows are about one of them"
    say(f"{known.path}: {known.count:,} facts; {counts}")


def _rows(files: Sequence[Path], use: ImageUse) -> tuple[list[Row], list[RowError]]:
    """Return the rows of all files that can be scored, and the errors of the others.

    `use` says what becomes of rows with images.
    """
    from calibrator.rows.rows import Row, read_rows

    read = [row for path in files for _, row in read_rows(path, use)]
    good = [row for row in read if isinstance(row, Row)]
    return good, [row for row in read if isinstance(row, RowError)]


def _score_on_ray(
    rows: Sequence[Path],
    output: Path | None,
    calibrating: tuple[str, str, Path | None],
    options: Options,
    address: str,
    actors: int,
) -> None:
    """Score the files on Ray, and write their rows to `output` in order.

    `calibrating` is (name, device, file of recalibration or None); `actors` 0 means one for each
    core or GPU. An interrupted run is resumed. Exits with status 1 if rows could not be scored.
    """
    with sentences(), resumable():
        if find_spec("calibrator.lab") is None:
            raise ClusterError("--engine ray needs calibrator/lab, which this installation lacks")
        from calibrator.lab.cluster.ray_scoring import ActorCalibrator, score_files
        from calibrator.rows.shards import begin

        if output is None:
            raise ClusterError("--engine ray needs -o OUT: what is done is kept beside it")
        check_target(output, [calibrating[-1], *rows])
        check_readable(rows)
        calibrator = ActorCalibrator.with_absolute_paths(*calibrating)
        run = begin(output, rows, calibrator.version(), options)
        with Progress("scoring on Ray", None) as bar:
            score_files(run, calibrator, address=address, actors=actors, progress=bar.advance)
        bad, total = run.check()
        with writer(output) as stream:
            run.write_all(stream)
        run.remove()
    report_bad(bad, total)
