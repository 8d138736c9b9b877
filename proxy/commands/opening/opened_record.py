"""The record of a configuration, opened for a command that reads it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from policies import plural
from proxy.commands.opening.exits import existing_store, exit_on_errors, plain, stop
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from policies import Exchange, Policy
    from proxy.config.setup import Setup
    from proxy.store.database.verdicts import VerdictStore

NOT_CONFIGURED: Final = "is not in this configuration (it may have been given by `serve --policy`)"
RequestId = Annotated[str, typer.Argument(help="x-pinocchio-request-id, or a review id.")]
Since = Annotated[str, typer.Option(help="How far to look back, such as 12h or 30d.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def opened_record(config: Path | None) -> Iterator[VerdictStore]:
    """Open the configured store to read and write verdicts; close it at the end.

    Ends the process where there is none. Policies are not read.
    """
    from proxy.config.setup import load_store_config
    from proxy.store.database.verdicts import VerdictStore

    with exit_on_errors():
        findings = VerdictStore(existing_store(load_store_config(config).store))
        try:
            yield findings
        finally:
            findings.close()


def usable_setup(config: Path | None, policy: str | None = None) -> Setup:
    """Load the configuration with its policies; end the process where they cannot be used."""
    from proxy.config.setup import load_setup

    with exit_on_errors():
        return load_setup(config, policy)


def seconds(text: str) -> float:
    """Convert a duration such as `30d` to seconds; end the process for anything else."""
    from policies import duration_s

    if (duration := duration_s(text)) is None:
        message = f"--since must be a duration such as 90m, 12h or 30d, not {text!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    return duration


class RecordedTraffic(NamedTuple):
    """Recorded exchanges, the policy to compare with, and sentences about other policies."""

    exchanges: list[Exchange]
    policy: Policy
    hints: list[str]


def recorded_exchanges(
    config: Path | None, span: str, name: str, team: str | None = None, *, is_all: bool = False
) -> RecordedTraffic:
    """Read the exchanges of the last `span`, such as `30d`, that policies decided on.

    These are those of a team, or else those that policy `name` decided on. Where that one decided
    on nothing, or with `is_all`, those of every policy are read. Ends the process for an unknown
    team, or where the record cannot be read.
    """
    from proxy.store.record.reader import since

    start, setup = time.time() - seconds(span), usable_setup(config)
    teams = setup.config.teams
    if team is not None and team not in teams:
        known = ", ".join(teams) or "none"
        raise stop(ExitStatus.UNUSABLE_INPUT, f"--team: there is no team {team!r}; known: {known}")
    with opened_record(config) as findings:
        recorded = list(since(findings.engine, start))
        policy, hints = setup.policy, []
        if team is not None:
            recorded = [each for each in recorded if any(fact.team == team for fact in each.facts)]
            policy = setup.book.load(teams[team].policy)
        elif not is_all and any(each.policy_name == name for each in recorded):
            kept = [each for each in recorded if each.policy_name == name]
            hints = _left_out(len(recorded) - len(kept), name)
            policy = next((each for each in setup.book if each.name == name), policy)
            recorded = kept
        exchanges = [exchange for each in recorded for exchange in each.exchanges()]
        hints += _other_policies(exchanges, setup, policy.name)
        return RecordedTraffic(exchanges, without_withdrawn(policy, findings), hints)


def _left_out(count: int, name: str) -> list[str]:
    """Return a sentence about requests that other policies than `name` decided on; [] for none."""
    if not count:
        return []
    requests = plural(count, "request")
    return [f"{requests} that other policies than {plain(name)} decided on: left out; see --all"]


def _other_policies(exchanges: Sequence[Exchange], setup: Setup, default: str) -> list[str]:
    """Return a sentence for each policy, other than `default`, that decided on any of these."""
    names = Counter(each.label.partition("/")[0] for each in exchanges if each.label)
    known = {each.name for each in setup.book}
    replies = plural(len(exchanges), "reply", "replies")
    return [
        f"policy {plain(name)}{'' if name in known else f', which {NOT_CONFIGURED},'} decided on "
        f"{count} of {replies}, not {default}; to compare with it, add --before with its pack or "
        "file"
        for name, count in names.most_common()
        if name != default
    ]


def without_withdrawn(policy: Policy, findings: VerdictStore) -> Policy:
    """Return the policy with a certificate that lacks the grants that were withdrawn."""
    from policies import with_certificate
    from proxy.learning.certificates import still_granted

    withdrawn = {each.grant_digest for each in findings.withdrawals()}
    return with_certificate(policy, still_granted(policy.certificate, withdrawn))
