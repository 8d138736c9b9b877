"""`pinocchio reviews verdict`: labels a recorded reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from policies import plural
from proxy.commands.opening.exits import (
    NAME_SHOWN,
    AsOption,
    ConfigOption,
    calibrator_errors_told,
    plain,
    stop,
    user,
)
from proxy.commands.opening.opened_record import RequestId, opened_record
from proxy.commands.reviews.reviews import reviews
from proxy.errors import BadRequestError, ExitStatus

if TYPE_CHECKING:
    from proxy.store.database.verdicts import VerdictStore
    from proxy.store.queue import ReviewQueue
    from proxy.store.verdicts.feedback import Feedback

MOST_TOLD: Final = 20  # printed lines about replies that are not on record


@reviews.command("verdict")
def verdict(
    request_id: RequestId,
    label: Annotated[
        Literal["correct", "wrong"], typer.Argument(help="Whether the reply was correct.")
    ],
    config: ConfigOption = None,
    reviewer: AsOption = None,
) -> None:
    """Label a recorded reply; verdicts are counted in replays and watch certificates."""
    from proxy.config.setup import load_store_config
    from proxy.store.queue import ReviewQueue
    from proxy.store.record.reader import find

    is_correct, by = label == "correct", reviewer or user()
    with opened_record(config) as findings:
        recorded = find(findings.engine, request_id)
        if recorded is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        before = findings.verdict_of(recorded.request_id, by)
        queue = ReviewQueue(load_store_config(config).store)
        give(findings, queue, recorded.request_id, is_correct, by)
        queue.close()
    typer.echo(f"{recorded.request_id} is {label}, says {by}{_in_place_of(before)}")


@reviews.command("verdicts")
def verdicts(
    file: Annotated[
        Path, typer.Argument(help='JSON lines: {"request_id": "req_..", "correct": true}; or gzip.')
    ],
    config: ConfigOption = None,
    reviewer: AsOption = None,
) -> None:
    """Label recorded replies by a file, as `verdict` labels one.

    Nothing is stored where a line cannot be read. Exit status 1 where a reply is not on record.
    """
    from proxy.config.setup import load_store_config
    from proxy.store.queue import ReviewQueue
    from proxy.store.record.reader import find

    by, missing, count = reviewer or user(), list[str](), 0
    with calibrator_errors_told():
        labels = list(_labels(file))
    with opened_record(config) as findings:
        queue = ReviewQueue(load_store_config(config).store)
        for place, label in labels:
            if (recorded := find(findings.engine, label.id)) is None:
                missing.append(f"{place}: there is no record of {plain(label.id[:NAME_SHOWN])}")
                continue
            give(findings, queue, recorded.request_id, label.is_correct, by)
            count += 1
        queue.close()
    typer.echo(f"{plural(count, 'verdict')} of {by} stored")
    if missing:
        more = [f"and {len(missing) - MOST_TOLD} more"] if len(missing) > MOST_TOLD else []
        raise stop(ExitStatus.FAILED, "\n".join([*missing[:MOST_TOLD], *more]))


def _labels(file: Path) -> Iterator[tuple[str, Feedback]]:
    """Yield each label with its place; end the process where a line is none."""
    from calibrator import open_lines
    from proxy.learning.feedback import read_label

    with open_lines(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
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
    """Keep a verdict, and close the review of a reply that was drawn to be checked."""
    from proxy.store.reviews.held_replies import REJECTED, RELEASED

    findings.give_verdict(request_id, is_correct, by)
    if drawn := queue.audit_of(request_id):  # no other reviewer has to check it
        queue.decide(drawn, RELEASED if is_correct else REJECTED, by)


def _in_place_of(before: bool | None) -> str:
    return "" if before is None else f", who said {'correct' if before else 'wrong'} before"
