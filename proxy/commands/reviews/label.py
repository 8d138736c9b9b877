"""`pinocchio label`: say of recorded replies whether they were correct.

One reply by its id, many by a file, or those that people labelled in Langfuse or Phoenix. These are
reviewers' verdicts; a file of users' feedback is kept apart from them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from calibrator import refuse
from policies import plural
from proxy.commands.opening.exits import (
    NAME_SHOWN,
    AsOption,
    ConfigOption,
    exit_on_calibrator_errors,
    exit_on_errors,
    plain,
    stop,
    user,
)
from proxy.commands.opening.opened_record import Since, opened_record, seconds
from proxy.errors import BadRequestError, ExitStatus

if TYPE_CHECKING:
    from proxy.optional.scores.scores import ForeignVerdict
    from proxy.store.database.verdicts import VerdictStore
    from proxy.store.queue import ReviewQueue
    from proxy.store.verdicts.feedback import Feedback

AT_ONCE: Final = 1_000  # lines of feedback stored in one transaction
MOST_PRINTED: Final = 20  # printed lines about labels that were not kept

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="ID|FILE",
        help="x-pinocchio-request-id or a review id; or a file of JSON lines, .gz too: "
        '{"request_id": "req_..", "correct": true, "note": ".."}.',
    ),
]
FeedbackOption = Annotated[
    bool,
    typer.Option(
        "--feedback",
        help="With a FILE: keep it as users' feedback, which no estimate, certificate or "
        "recalibration counts.",
    ),
]
FetchOption = Annotated[
    bool,
    typer.Option(
        "--fetch",
        help="Take the verdicts that people gave in Langfuse or Phoenix: scores named `correct`.",
    ),
]


def label(
    context: typer.Context,
    target: Target = None,
    verdict: Annotated[
        Literal["correct", "wrong"] | None,
        typer.Argument(help="With an ID: whether the reply was correct."),
    ] = None,
    config: ConfigOption = None,
    reviewer: AsOption = None,
    feedback: FeedbackOption = False,
    fetch: FetchOption = False,
    since: Since = "30d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fetch: count what would be kept.")
    ] = False,
) -> None:
    """Label recorded replies: one by ID, or many by a FILE; `correct` or `wrong`.

    Verdicts are counted in replays and by `recalibrate --from-store`, and watch certificates. Of a
    FILE of verdicts nothing is stored where a line cannot be read. Exit status 1 where a reply is
    not on record.
    """
    if not fetch:
        refuse(context, ["since", "dry_run"], "is for --fetch; leave it out")
    if fetch and (target or feedback):
        raise stop(ExitStatus.UNUSABLE_INPUT, "--fetch takes no ID, no FILE and no --feedback")
    if feedback and (verdict or not target):
        raise stop(ExitStatus.UNUSABLE_INPUT, "--feedback is for a FILE of labels")
    by = reviewer or user()
    if fetch:
        refuse(context, ["reviewer"], "is not for --fetch: each score names who gave it")
        _fetch_verdicts(config, since, dry_run=dry_run)
    elif target and verdict:
        _give_one(config, target, verdict, by)
    elif target and feedback:
        _keep_feedback(config, Path(target), by)
    elif target:
        _give_all(config, Path(target), by)
    else:
        message = "say what to label: ID correct, ID wrong, a FILE of labels, or --fetch"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)


def _give_one(config: Path | None, request_id: str, label: str, by: str) -> None:
    """Store one verdict of `by`; end the process where the reply is not on record."""
    from proxy.config.setup import load_store_config
    from proxy.store.queue import ReviewQueue
    from proxy.store.record.reader import find

    is_correct = label == "correct"
    with opened_record(config) as findings:
        exchange = find(findings.engine, request_id)
        if exchange is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        before = findings.verdict_of(exchange.request_id, by)
        queue = ReviewQueue(load_store_config(config).store)
        give(findings, queue, exchange.request_id, is_correct, by)
        queue.close()
    typer.echo(f"{exchange.request_id} is {label}, says {by}{_in_place_of(before)}")


def _give_all(config: Path | None, file: Path, by: str) -> None:
    """Store the verdicts of a file in the name of `by`, and print their number.

    Ends the process with exit status 2, and stores nothing, without the file or where a line cannot
    be read. Replies that are not on record are listed after the others were stored; then the status
    is 1.
    """
    from proxy.config.setup import load_store_config
    from proxy.store.queue import ReviewQueue
    from proxy.store.record.reader import find

    missing, count = list[str](), 0
    if not file.exists():
        message = f"there is no file {file}; to label one reply, say `label ID correct` or `wrong`"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with exit_on_calibrator_errors():
        labels = list(_labels(file))
    with opened_record(config) as findings:
        queue = ReviewQueue(load_store_config(config).store)
        for place, label in labels:
            if (exchange := find(findings.engine, label.id)) is None:
                missing.append(f"{place}: there is no record of {plain(label.id[:NAME_SHOWN])}")
                continue
            give(findings, queue, exchange.request_id, label.is_correct, by)
            count += 1
        queue.close()
    typer.echo(f"{plural(count, 'verdict')} of {by} stored")
    if missing:
        more = [f"and {len(missing) - MOST_PRINTED} more"] if len(missing) > MOST_PRINTED else []
        raise stop(ExitStatus.FAILED, "\n".join([*missing[:MOST_PRINTED], *more]))


def _labels(file: Path) -> Iterator[tuple[str, Feedback]]:
    """Yield each label of a file with its place, `FILE:LINE`.

    Ends the process where a line is no label.
    """
    from proxy.learning.feedback import read_label

    for number, line in _lines(file):
        place = f"{file}:{number}"
        try:
            label = read_label(json.loads(line), place)
        except BadRequestError as error:
            raise stop(ExitStatus.UNUSABLE_INPUT, error.message) from error
        except ValueError as error:
            raise stop(ExitStatus.UNUSABLE_INPUT, f"{place}: no JSON: {error}") from error
        yield place, label


def give(
    findings: VerdictStore, queue: ReviewQueue, request_id: str, is_correct: bool, by: str
) -> None:
    """Store a verdict, and close the review of a reply that was drawn to be checked.

    No other reviewer has to check it then.
    """
    from proxy.store.reviews.held_replies import REJECTED, RELEASED

    findings.give_verdict(request_id, is_correct, by)
    if audit := queue.audit_of(request_id):  # no other reviewer has to check it
        queue.decide(audit, RELEASED if is_correct else REJECTED, by)


def _in_place_of(before: bool | None) -> str:
    """Return `, who said wrong before` for a verdict that replaces one; empty for a first one."""
    return "" if before is None else f", who said {'correct' if before else 'wrong'} before"


def _keep_feedback(config: Path | None, file: Path, by: str) -> None:
    """Store a file of users' feedback in the name of `by`, and print how many labels were kept.

    Ends the process with exit status 1 where a line was not kept; the first of them are printed.
    """
    from proxy.learning.feedback import read_label
    from proxy.store.verdicts.feedback import FeedbackStore

    counts: Counter[str] = Counter()
    problems: list[str] = []
    with opened_record(config) as findings, exit_on_calibrator_errors():
        store = FeedbackStore(lambda: findings.engine)
        lines = _lines(file)
        while batch := list(islice(lines, AT_ONCE)):
            numbers, labels = [], []
            for number, line in batch:
                try:
                    labels.append(read_label(json.loads(line)))
                    numbers.append(number)
                except (BadRequestError, ValueError) as error:
                    counts["unreadable"] += 1
                    reason = error.message if isinstance(error, BadRequestError) else "no JSON"
                    problems.append(f"{file}:{number}: {reason}")
            for number, label, status in zip(numbers, labels, store.keep(labels, by), strict=True):
                counts[status] += 1
                if status == "not_found":
                    problems.append(f"{file}:{number}: there is no record of {label.id}")
    for text in problems[:MOST_PRINTED]:
        typer.echo(text, err=True)
    if len(problems) > MOST_PRINTED:
        typer.echo(f"and {len(problems) - MOST_PRINTED} more", err=True)
    labels_kept = plural(counts["kept"], "label")
    typer.echo(f"{labels_kept} kept, {len(problems)} not")
    if problems:
        count = plural(len(problems), "line")
        raise stop(ExitStatus.FAILED, f"not kept: {count} of {file}")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    from calibrator import open_lines

    with open_lines(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line


def _fetch_verdicts(config: Path | None, since: str, *, dry_run: bool) -> None:
    """Store the verdicts of the last `since` from Langfuse and Phoenix, and print their numbers.

    A score named `correct`, of a reply whose confidence was sent there, is the verdict of whoever
    gave it. Ends the process where nothing is configured, or where a server cannot be read.
    """
    from proxy.config.setup import load_store_config
    from proxy.optional.scores.scores import UnreadableScoresError, score_keepers
    from proxy.store.queue import ReviewQueue

    start = max(0.0, time.time() - seconds(since))
    with exit_on_errors():
        loaded = load_store_config(config)
    keepers = score_keepers(loaded.telemetry)
    if not keepers:
        message = "the configuration has neither telemetry.langfuse nor telemetry.phoenix"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with opened_record(config) as findings:
        queue = ReviewQueue(loaded.store)
        try:
            for keeper in keepers:
                counts = Counter(
                    _keep(findings, queue, verdict, dry_run=dry_run)
                    for verdict in keeper.verdicts(start)
                )
                typer.echo(f"{keeper.name}: {_describe_counts(counts, dry_run=dry_run)}")
        except UnreadableScoresError as error:
            raise stop(ExitStatus.FAILED, str(error)) from error
        finally:
            queue.close()
            for keeper in keepers:
                keeper.close()


def _keep(
    findings: VerdictStore, queue: ReviewQueue, verdict: ForeignVerdict, *, dry_run: bool
) -> str:
    """Keep a verdict unless it is a dry run, and return its outcome.

    The outcome is kept, known, unknown or ambiguous.
    """
    from proxy.store.record.reader import find

    if verdict.request_id is None:
        return "ambiguous"
    exchange = find(findings.engine, verdict.request_id)
    if exchange is None:
        return "unknown"
    if findings.verdict_of(exchange.request_id, verdict.by) == verdict.is_correct:
        return "known"
    if not dry_run:
        give(findings, queue, exchange.request_id, verdict.is_correct, verdict.by)
    return "kept"


def _describe_counts(counts: Counter[str], *, dry_run: bool) -> str:
    """Return a phrase such as `3 verdicts kept, 2 known already`."""
    kept = f"{plural(counts['kept'], 'verdict')} {'would be kept' if dry_run else 'kept'}"
    others = (
        ("known", "known already"),
        ("unknown", "of replies that are not on record"),
        ("ambiguous", "on a trace with several replies"),
    )
    return ", ".join(
        [kept, *(f"{counts[name]} {phrase}" for name, phrase in others if counts[name])]
    )
