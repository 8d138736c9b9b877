"""`pinocchio reviews verdict`: labels a recorded reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from proxy.commands.exits import AsOption, ConfigOption, stop, user
from proxy.commands.opened_record import RequestId, opened_record
from proxy.commands.reviews.reviews import reviews
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from proxy.store.reviews.queue import ReviewQueue
    from proxy.store.verdicts.verdicts import Findings


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
    from proxy.store.record.reader import find
    from proxy.store.reviews.queue import ReviewQueue

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


def give(
    findings: Findings, queue: ReviewQueue, request_id: str, is_correct: bool, by: str
) -> None:
    """Keep a verdict, and close the review of a reply that was drawn to be checked."""
    from proxy.store.reviews.held_replies import REJECTED, RELEASED

    findings.give_verdict(request_id, is_correct, by)
    if drawn := queue.audit_of(request_id):  # no other reviewer has to check it
        queue.decide(drawn, RELEASED if is_correct else REJECTED, by)


def _in_place_of(before: bool | None) -> str:
    return "" if before is None else f", who said {'correct' if before else 'wrong'} before"
