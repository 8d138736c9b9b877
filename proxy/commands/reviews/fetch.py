"""`pinocchio reviews fetch`: keeps people's verdicts in Langfuse or Phoenix in the store."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption, errors_told, stop
from proxy.commands.opening.opened_record import Since, opened_record, seconds
from proxy.commands.reviews.reviews import reviews
from proxy.commands.reviews.verdict import give
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from proxy.optional.scores.scores import ForeignVerdict
    from proxy.store.database.verdicts import VerdictStore
    from proxy.store.queue import ReviewQueue


@reviews.command("fetch")
def fetch(
    config: ConfigOption = None,
    since: Since = "30d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be kept, and keep nothing.")
    ] = False,
) -> None:
    """Fetch verdicts that people gave in Langfuse or Phoenix, for `recalibrate --from-store`.

    A score that is named as `verdict` in the configuration's telemetry, of a reply whose confidence
    was sent there, is the verdict of whoever gave it.
    """
    from proxy.config.setup import load_store_config
    from proxy.optional.scores.scores import UnreadableScoresError, score_keepers
    from proxy.store.queue import ReviewQueue

    start = max(0.0, time.time() - seconds(since))
    with errors_told():
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
    findings: VerdictStore, queue: ReviewQueue, found: ForeignVerdict, *, dry_run: bool
) -> str:
    """Keep a verdict unless it is a dry run, and return its outcome.

    The outcome is kept, known, unknown or ambiguous.
    """
    from proxy.store.record.reader import find

    if found.request_id is None:
        return "ambiguous"
    recorded = find(findings.engine, found.request_id)
    if recorded is None:
        return "unknown"
    if findings.verdict_of(recorded.request_id, found.by) == found.is_correct:
        return "known"
    if not dry_run:
        give(findings, queue, recorded.request_id, found.is_correct, found.by)
    return "kept"


def _describe_counts(counts: Counter[str], *, dry_run: bool) -> str:
    kept = f"{plural(counts['kept'], 'verdict')} {'would be kept' if dry_run else 'kept'}"
    others = (
        ("known", "known already"),
        ("unknown", "of replies that are not on record"),
        ("ambiguous", "on a trace with several replies"),
    )
    return ", ".join([kept, *(f"{counts[name]} {said}" for name, said in others if counts[name])])
