"""`pinocchio evaluate`: figures, a report and a model card from labelled rows.

Instead of rows it takes one file that an earlier evaluation wrote with -o: its figures are printed,
and written into a report or a model card, and nothing is scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    ROWS_HELP,
    Calibrator,
    RecalibrationFile,
    Rescore,
    TrainFiles,
    check_target,
    exit_with_bad,
    file_option,
    refuse,
    resumable,
    say,
    say_bad,
    say_rows,
    sentences,
    training_files,
    write_if_named,
    writer,
)
from calibrator.errors import JudgingError, OutputError, RowError, install_command
from calibrator.lab.commands.evaluate_tables import print_evaluation
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.lab.judging.evaluation.evaluate import Evaluation
    from calibrator.lab.judging.evaluation.traffic import Traffic
    from calibrator.lab.judging.sensitivity import Sensitivity
    from calibrator.lab.studies.studies import Study
    from calibrator.rows.rows import Row, Tags
    from calibrator.rows.scores import Scores
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
EVALUATION_BEGINS = b'{\n "format"'
StudyFiles = Annotated[
    list[Path] | None, typer.Option("--study", help="Add this file of `pinocchio study`.")
]
IsSensitive = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="Also make right replies wrong in one respect, and measure how far the confidence "
        "falls; ask everyday questions too.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
KeepScores = Annotated[
    Path | None,
    typer.Option("--keep-scores", help="Write the scores of every method into this folder."),
]
NoBaselines = Annotated[
    bool,
    typer.Option("--no-baselines", help="Judge the calibrator alone, without training baselines."),
]
TagNames = Annotated[
    str,
    typer.Option(
        help="Names told to the calibrator: the model's as served, the benchmark's too with "
        "all, or none; served,all,none judges them beside each other."
    ),
]
ScoreFiles = Annotated[
    list[str] | None,
    typer.Option(
        help="Judge the scores of this file, [NAME=]FILE, instead of scoring; several may be "
        "given, the first is compared with the others."
    ),
]
EvaluatedFiles = Annotated[
    list[Path] | None,
    typer.Argument(help=f"{ROWS_HELP} Or one file that -o wrote, to use its figures again."),
]
Card = Annotated[
    str | None,
    typer.Option(
        metavar="README[#PART]",
        help="Write the figures into this model card, between its two marks, or into the part "
        "with this name in its marks.",
    ),
]
Output = Annotated[Path | None, file_option("-o", "--output", help="Write all figures as JSON.")]
Report = Annotated[Path | None, file_option("--report", help="Write an HTML page with figures.")]
OF_ROWS = (
    *("calibrator", "tags", "scores", "recalibration", "train", "is_sensitive", "traffic"),
    *("keep", "no_baselines", "rescore", "output"),
)


def evaluate(
    context: typer.Context,
    files: EvaluatedFiles = None,
    calibrator: Calibrator = "embedded",
    tags: TagNames = "served",
    scores: ScoreFiles = None,
    recalibration: RecalibrationFile = None,
    train: TrainFiles = None,
    is_sensitive: IsSensitive = False,
    traffic: TrafficPlaces = None,
    keep: KeepScores = None,
    output: Output = None,
    report: Report = None,
    card: Card = None,
    studies: StudyFiles = None,
    no_baselines: NoBaselines = False,
    rescore: Rescore = False,
    as_json: AsJson = False,
) -> None:
    """Judge a calibrator on labelled rows, for each benchmark and pooled, beside baselines.

    With --traffic, on replies of real apps as well, or on these alone. Scores are kept as they are
    made: the same command goes on after an interruption.
    """
    from calibrator.lab.judging.evaluation.evaluate import (
        empty_evaluation,
        read_evaluation,
        to_json,
    )

    with sentences(), resumable():
        if len(files := files or []) == 1 and _is_evaluation(files[0]):
            refuse(context, OF_ROWS, f"is for rows, and {files[0]} has figures; leave it out")
            _publish(read_evaluation(files[0]), report, card, _studies(studies), as_json)
            return
        needing = {"--sensitivity": is_sensitive, "--scores": scores, "--train": train}
        _check_has_rows(files, traffic, {**needing, "--keep-scores": keep})
        train_files = [] if no_baselines else training_files(files, train)
        replies = _traffic_files(traffic)
        read = [*files, *train_files, *replies, *map(_scores_file, scores or [])]
        _check_files(output, report, keep, [*read, *(studies or [])], recalibration)
        if no_baselines and train:
            raise JudgingError("--train has the rows of baselines; leave out --no-baselines")
        shown_studies, names = _studies(studies), _tags(tags)
        scorer = _scorer(calibrator, recalibration, scores, is_sensitive, rescore)
        evaluation, bad = empty_evaluation(scorer.name if scorer else calibrator), list[RowError]()
        if files:
            rows, bad = _rows(files, scorer)
            say_rows(rows, bad)
            train_rows = _load_training_rows(train_files, rows, is_wanted=not no_baselines)
            found = _scores_of(rows, scorer, scores or [], names)
            evaluation = _evaluate_scores(rows, found, train_rows, keep)
            if scorer is not None and is_sensitive:
                evaluation = replace(evaluation, sensitivity=_sensitivity(scorer, rows))
        if traffic:
            on_traffic, worse = _traffic_of(scorer, calibrator, replies)
            evaluation, bad = replace(evaluation, traffic=on_traffic), [*bad, *worse]
        write_if_named(output, to_json(evaluation))
        _publish(evaluation, report, card, shown_studies, as_json)
    exit_with_bad(bad)


def _is_evaluation(path: Path) -> bool:
    """Return whether this file was written by `evaluate -o`; False for rows and for pipes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EVALUATION_BEGINS)) == EVALUATION_BEGINS


def _studies(files: Sequence[Path] | None) -> list[Study]:
    """Read the files of `pinocchio study -o`."""
    from calibrator.lab.studies.studies import read_study

    return [read_study(path) for path in files or []]


def _publish(
    evaluation: Evaluation,
    report: Path | None,
    card: str | None,
    studies: Sequence[Study],
    as_json: bool,
) -> None:
    """Print an evaluation, and write it as an HTML report and into a model card where named."""
    from calibrator.lab.reporting.model_card import update_card
    from calibrator.lab.reporting.report import render

    check_target(report)
    if report:
        with writer(report) as stream:
            stream.write(render(evaluation, studies))
    if card:
        readme, _, part = card.partition("#")
        update_card(Path(readme), evaluation, studies, part)
    print_evaluation(evaluation, as_json)


def _check_files(
    output: Path | None,
    report: Path | None,
    keep: Path | None,
    inputs: Sequence[Path],
    recalibration: Path | None,
) -> None:
    """Raise OutputError where an output would replace an input or another output.

    Raises InputError for an input that cannot be read; the loader reads the recalibration.
    """
    check_target(output, [*inputs, recalibration])
    check_target(report, [*inputs, recalibration])
    if output and report and output.resolve() == report.resolve():
        raise OutputError(f"-o and --report both say {output}; name two files")
    if keep and keep.exists() and not keep.is_dir():
        raise OutputError(f"--keep-scores writes into a folder, and {keep} is a file")
    check_readable(inputs)


def _has_name(value: str) -> bool:
    """Return whether a value of --scores is NAME=FILE, not a file with = in its name."""
    return "=" in value and not Path(value).exists()


def _scores_file(value: str) -> Path:
    """Return the file of a value of --scores, `FILE` or `NAME=FILE`."""
    return Path(value.partition("=")[2] if _has_name(value) else value)


def _read(value: str, rows: Sequence[Row]) -> list[Scores]:
    """Return the scores of a value of --scores for these rows, one entry for each kind in it."""
    from calibrator.rows.scores import read_kinds

    name = value.partition("=")[0] if _has_name(value) else None
    return read_kinds(_scores_file(value), rows, name)


def _tags(text: str) -> list[Tags]:
    """Parse `--tags`, such as `served,none`. Raises JudgingError for an unknown one."""
    from calibrator.rows.rows import Tags

    known: dict[str, Tags] = {name: name for name in get_args(Tags)}
    try:
        return [known[name.strip()] for name in dict.fromkeys(text.split(","))]
    except KeyError as error:
        raise JudgingError(f"--tags are {', '.join(known)}, not {text!r}") from error


def _load_training_rows(
    paths: Sequence[Path], rows: Sequence[Row], *, is_wanted: bool
) -> list[Row]:
    """Return the rows that baselines are fitted on; [] without files.

    They are checked against the judged rows before anything is scored. A line says where baselines
    are wanted and there are no files, and where scikit-learn is missing. Raises JudgingError.
    """
    from calibrator.lab.judging.evaluation.methods import check_baselines, has_sklearn
    from calibrator.rows.selection import load_labelled

    if not paths:
        if is_wanted:
            say("no training rows beside the test rows, so no baselines; give them with --train")
        return []
    found, _ = load_labelled(paths)
    check_baselines(found, rows)
    say(f"baselines are fitted on {len(found)} training rows")
    if not has_sklearn():
        say(
            "without TF-IDF and length: scikit-learn is not installed; it comes with: "
            + install_command("train")
        )
    return found


def _scorer(
    calibrator: str,
    recalibration: Path | None,
    scores: Sequence[str] | None,
    is_sensitive: bool,
    is_renewed: bool,
) -> Scorer | None:
    """Return the calibrator, which keeps its scores, or None where scores were given instead.

    Raises JudgingError for --sensitivity with given scores.
    """
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import cache_scores

    if not scores:
        scorer = load_scorer(calibrator, recalibration=recalibration)
        return cache_scores(scorer, "auto", is_renewed=is_renewed)
    if is_sensitive:
        raise JudgingError(
            "--sensitivity needs a calibrator, which scores changed replies; --scores has numbers "
            "of the unchanged ones only. Leave one of the two out"
        )
    return None


def _rows(files: Sequence[Path], scorer: Scorer | None) -> tuple[list[Row], list[RowError]]:
    """Return the labelled rows that the calibrator can read, and the errors of the others.

    Without a scorer rows with images are read, too, as they are not scored.
    """
    from calibrator.rows.scores import image_use
    from calibrator.rows.selection import load_labelled

    return load_labelled(files, "read" if scorer is None else image_use(scorer))


def _scores_of(
    rows: Sequence[Row], scorer: Scorer | None, files: Sequence[str], names: Sequence[Tags]
) -> list[Scores]:
    """Return the scores of the rows: for each of `names`, the scorer's with these tags.

    Without a scorer, they are read from `files`, the files of scores, and `names` is not used. A
    scorer's scores that use other replies are returned beside those of replies alone, under their
    own names. Shows progress, and prints how many scores were reused.
    """
    from calibrator.rows.kept_scores import reused_sentence
    from calibrator.rows.scores import score_kinds

    if scorer is None:
        return [one for each in files for one in _read(each, rows)]
    with Progress("scoring", len(rows) * len(names)) as progress:
        kinds = [score_kinds(scorer, rows, each, progress.advance) for each in names]
    found = [one for each in kinds for one in each]
    if sentence := reused_sentence(scorer):
        say(sentence)
    return found


def _evaluate_scores(
    rows: Sequence[Row], found: Sequence[Scores], train: Sequence[Row], keep: Path | None
) -> Evaluation:
    """Return the figures of these scores and of the baselines, while progress is shown.

    With `keep`, the scores of every method are written into that folder.
    """
    from calibrator.lab.judging.evaluation.evaluate import STEPS
    from calibrator.lab.judging.evaluation.methods import judge_all, keep_scores, methods_of

    if train:
        say("fitting the baselines; on 100,000 rows this takes a few minutes")
    methods = methods_of(found, train, rows)
    if keep:
        keep_scores(keep, rows, methods)
    with Progress("working out intervals", STEPS * len(methods)) as progress:
        return judge_all(rows, methods, train, progress.advance)


def _sensitivity(scorer: Scorer, rows: Sequence[Row]) -> Sensitivity:
    """Measure how far the confidence falls where right replies are made wrong."""
    from calibrator.lab.judging.sensitivity import items_to_score, measure, pairs_of

    pairs = pairs_of(rows)
    with Progress("scoring replies made wrong", items_to_score(pairs)) as progress:
        return measure(scorer, pairs, progress.advance)


def _traffic_files(places: Sequence[Path] | None) -> list[Path]:
    """Return the files of rows that --traffic names, files or folders; [] for None.

    Raises JudgingError for a folder without any, and InputError for a file that cannot be read.
    """
    from calibrator.lab.judging.evaluation.traffic import find_traffic

    found = find_traffic(places or [])
    check_readable(found, times=2)  # a look at the first row tells what the file holds
    return found


def _check_has_rows(
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


def _traffic_of(
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
