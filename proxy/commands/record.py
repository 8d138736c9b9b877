"""The commands on what was recorded: `explain`, `promote` and `reviews verdict`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from policies import counted
from proxy.commands.serve_and_reviews import (
    NAME_SHOWN,
    AsOption,
    ConfigOption,
    errors_told,
    existing_store,
    plain,
    reviews,
    stop,
    user,
)
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from policies import Decision, Exchange, Explanation, Policy
    from proxy.config.setup import Setup
    from proxy.store.record.reader import Recorded
    from proxy.store.reviews.polls import Standing
    from proxy.store.verdicts.verdicts import Findings

cli = typer.Typer(no_args_is_help=True)

RequestId = Annotated[str, typer.Argument(help="x-pinocchio-request-id, or a review id.")]
Since = Annotated[str, typer.Option(help="How far to look back, such as 12h or 30d.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def opened_record(config: Path | None, store: str | None = None) -> Iterator[Findings]:
    """The configured record, or that of a store's URL; needs no policy, and ends the process where
    there is none."""
    from proxy.config.setup import load_store_config
    from proxy.store.verdicts.verdicts import Findings

    with errors_told():
        findings = Findings(existing_store(store or load_store_config(config).store))
        try:
            yield findings
        finally:
            findings.close()


def _setup(config: Path | None, policy: str | None = None) -> Setup:
    """The configuration with its policies; ends the process where they cannot be used."""
    from proxy.config.setup import load_setup

    with errors_told():
        return load_setup(config, policy)


def seconds(text: str) -> float:
    """A duration such as `30d`; ends the process for anything else."""
    from policies import duration_s

    if (found := duration_s(text)) is None:
        message = f"--since must be a duration such as 90m, 12h or 30d, not {text!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    return found


def recorded_exchanges(config: Path | None, span: str) -> tuple[list[Exchange], Policy]:
    """What policies decided on within the last `span`, and the configured policy."""
    from proxy.store.record.reader import since

    start, setup = time.time() - seconds(span), _setup(config)
    with opened_record(config) as findings:
        found = since(findings.engine, start)
        exchanges = [exchange for each in found for exchange in each.exchanges()]
        return exchanges, as_it_stands(setup.policy, findings)


def as_it_stands(policy: Policy, findings: Findings) -> Policy:
    """The policy without the grants of its certificate that were withdrawn."""
    from policies import certified
    from proxy.policy_context.certificates import still_granted

    withdrawn = {each.grant_digest for each in findings.withdrawals()}
    return certified(policy, still_granted(policy.certificate, withdrawn))


@cli.command()
def explain(
    request_id: RequestId,
    config: ConfigOption = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Explain by this pack or policy file, not the configured one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a recorded reply was decided on, and how today's policy decides, rule by rule."""
    from policies import explain as run
    from proxy.store.record.reader import find
    from proxy.store.reviews.polls import standing_of

    setup = _setup(config, policy)
    with opened_record(config) as findings:
        recorded = find(findings.engine, request_id)
        if recorded is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        held = standing_of(findings.engine, recorded.review_id) if recorded.review_id else None
        named = [] if policy else [p for p in setup.book if p.name == recorded.policy_name]
        now = as_it_stands(next(iter(named), setup.policy), findings)
    explanations = [run(now, facts) for facts in recorded.facts]
    is_poll = request_id not in (recorded.request_id, recorded.review_id)
    if as_json:
        values = _explained_values(recorded, now, explanations)
        asked_again = {"is_poll": is_poll, "review": held and held._asdict()}
        typer.echo(json.dumps(values | asked_again))
        return
    if is_poll:
        typer.echo(f"{request_id} asked again for the reply that is held as {recorded.review_id}")
    for told in _explained(recorded, now, explanations):
        typer.echo("\n".join(plain(line) for line in told.split("\n")))
    if held is not None:
        typer.echo(_review_told(held))


def _review_told(held: Standing) -> str:
    """Where a held reply stands, as a line."""
    from proxy.store.reviews.held_replies import HELD

    state = held.state
    if state == HELD:
        state = "waits for a reviewer" if held.expires_at > time.time() else "expired"
    by = f" by {held.decided_by}" if held.decided_by else ""
    times = "once" if held.polls == 1 else f"{held.polls} times"
    again = f"; its client asked again {times}" if held.polls else ""
    return f"review {held.review_id}: {state}{by}{again}"


def _explained(
    recorded: Recorded, policy: Policy, explanations: Sequence[Explanation]
) -> Iterator[str]:
    from policies import strictest

    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(recorded.started_at))
    asked = recorded.facts[0].model if recorded.facts else recorded.model
    model = plain((asked or "none")[:NAME_SHOWN])
    yield f"{recorded.request_id} at {at}: model {model}, status {recorded.status}"
    if not recorded.facts:
        why = recorded.reason or recorded.error or recorded.confidence_status
        yield f"no policy decided on it: {why}"
        return
    sure = "none" if recorded.confidence is None else f"{recorded.confidence:.4f}"
    yield f"confidence {sure} ({recorded.confidence_status}) by {recorded.calibrator}"
    yield f"then  {recorded.policy}: {_then(recorded)}"
    if recorded.would_action:
        yield f"      in shadow, so the action was {recorded.action}"
    if recorded.escalated_from:
        yield f"      escalated from {recorded.escalated_from}; below is what its reply led to"
    for rule, action in recorded.shadowed:
        yield f"      rule {rule} in shadow would {action}"
    lacks = sorted(recorded.lacks & policy.looks_at)
    if lacks and recorded.is_by(policy):
        yield f"now   the same version of the policy; its rules look at {', '.join(lacks)},"
        yield "      which the record does not keep, so they are not tried again"
        yield "the same decision"
        return
    for index, explanation in enumerate(explanations):
        choice = f" choice {index}," if len(explanations) > 1 else ""
        yield f"now{choice}  {explanation}"
    if lacks:
        yield f"the record lacks what a rule looks at: {', '.join(lacks)}"
    if open_ones := _undecided(recorded, policy):
        yield "what it would be depends on that: " + "; ".join(open_ones)
        yield "whether the decision is the same cannot be told"
        return
    now = strictest(each.decision for each in explanations)
    yield "the same decision" if _is_same(recorded, now) else "another decision than then"


def _undecided(recorded: Recorded, policy: Policy) -> list[str]:
    """What each choice may come to of which the record lacks too much for one decision."""
    from policies import possible_decisions, shown_decisions

    every = (possible_decisions(policy, facts, recorded.lacks) for facts in recorded.facts)
    return [shown_decisions(possible) for possible in every if len(possible) > 1]


def _explained_values(
    recorded: Recorded, policy: Policy, explanations: Sequence[Explanation]
) -> dict[str, object]:
    from policies import facts_as_values, strictest

    lacks = sorted(recorded.lacks & policy.looks_at)
    then = {"policy": recorded.policy, "action": _then(recorded)}
    facts = [facts_as_values(facts) for facts in recorded.facts]
    said = {"request_id": recorded.request_id, "then": then, "facts": facts, "lacks": lacks}
    if lacks and recorded.is_by(policy):
        return {**said, "now": then, "is_same": True, "rules": []}
    now = strictest(each.decision for each in explanations) if explanations else None
    if _undecided(recorded, policy):
        now = None
    return {
        **said,
        "now": {"policy": now.label, "action": now.action.name} if now else None,
        "is_same": _is_same(recorded, now) if now else None,
        "rules": [
            [{"rule": r.rule, "verdict": r.verdict, "reasons": r.reasons} for r in each.rules]
            for each in explanations
        ],
    }


def _then(recorded: Recorded) -> str | None:
    """What the policy said; in shadow, something else was done."""
    return recorded.would_action or recorded.action


def _is_same(recorded: Recorded, now: Decision) -> bool:
    """Whether the same rule decides in the same way.

    The record has the end of an escalation, which depends on another reply than the facts.
    """
    if recorded.action == "escalate" or recorded.escalated_from:
        return now.action.name == "escalate"
    rule = now.label.partition("/")[2].partition("@")[0]
    return rule == recorded.rule and now.action.name in (_then(recorded), "escalate")


@cli.command()
def promote(
    policy: Annotated[Path, typer.Argument(help="The policy file, which is changed in place.")],
    rule: Annotated[
        str | None, typer.Option(help="Promote only this rule, not the whole policy.")
    ] = None,
    since: Since = "30d",
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the counts, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Change the file without asking.")] = False,
) -> None:
    """Take a policy, or one rule, out of shadow mode after showing what it would have done."""
    from policies import InvalidDocumentError, parse_policy, promoted
    from proxy.store.record.reader import since as recorded_since

    try:
        text = _bytes_of(policy).decode()  # line ends stay
        now = parse_policy(text, str(policy))
        changed = promoted(text, str(policy), rule)
    except (InvalidDocumentError, ValueError) as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    span = seconds(since)
    with opened_record(config) as findings:
        found = recorded_since(findings.engine, time.time() - span)
        beside = [_beside(each, rule) for each in found if _is_by(each, now)]
    typer.echo(
        f"{counted(len(beside), 'reply', 'replies')} decided by this version of policy "
        f"{now.name}, last {since}"
    )
    for line in (*_once_live(beside, rule), *_agreement(beside)):
        typer.echo(f"  {line}")
    after = parse_policy(changed, str(policy))
    if after.on_score_error != now.on_score_error:
        typer.echo(f"without a score, a reply is then: {after.on_score_error.name}")
    if dry_run:
        return
    if not (yes or typer.confirm(f"promote {rule or now.name}?")):
        raise stop(ExitStatus.FAILED, f"{policy} was not changed")
    policy.write_bytes(changed.encode())
    typer.echo(f"{policy}: {f'rule {rule!r}' if rule else f'policy {now.name}'} is live")


def _bytes_of(policy: Path) -> bytes:
    """What a policy file has; ends the process where it cannot be read, or names a pack."""
    from policies import pack_names

    try:
        return policy.read_bytes()
    except OSError as error:
        message = f"the policy file {policy} cannot be read: {error.strerror}"
        if str(policy) in pack_names():
            message = (
                f"{policy} is a pack, and packs cannot be promoted: copy it to a policy file of "
                "your own, let the proxy decide by that, and promote the file"
            )
        raise stop(ExitStatus.UNUSABLE_INPUT, message) from error


def _is_by(recorded: Recorded, policy: Policy) -> bool:
    """Whether this version of the policy decided, whatever its certificate was."""
    digest = (recorded.policy or "").rpartition("@")[2].partition("+")[0]
    return recorded.policy_name == policy.name and digest == policy.digest.partition("+")[0]


class _Beside(NamedTuple):
    """What would have been done, None for nothing, what was done, and a verdict on the reply."""

    would: str | None
    action: str | None
    is_correct: bool | None


def _beside(recorded: Recorded, rule: str | None) -> _Beside:
    would = dict(recorded.shadowed).get(rule) if rule else recorded.would_action
    return _Beside(would, recorded.action, recorded.is_correct)


def _once_live(replies: Sequence[_Beside], rule: str | None) -> Iterator[str]:
    """How many of the replies would not have been delivered as they were: what changes."""
    counts = Counter(each.would for each in replies if each.would not in (None, "deliver"))
    whose = f"rule {rule!r}" if rule else "it"
    for action in sorted(counts, key=lambda name: (name != "hold", -counts[name])):
        count = counts[action]
        share = f"{count / len(replies):.1%}"
        yield f"once live, {whose} would {action} {count} of {len(replies)} ({share})"
    if replies and not counts:
        yield f"once live, {whose} would change none of them"


def _agreement(all_replies: Sequence[_Beside]) -> Iterator[str]:
    replies = [each for each in all_replies if each.would is not None]
    counts = Counter((each.would, each.action) for each in replies)
    for (would, action), count in counts.most_common():
        agrees = "agrees" if would == action else "differs"
        yield f"{count:7}  would {would}, was {action}: {agrees}"
    differing = [each for each in replies if each.would != each.action]
    yield f"{len(replies) - len(differing)} of {len(replies)} agree with what was done"
    labels = [each.is_correct for each in differing if each.is_correct is not None]
    if labels:
        wrong = labels.count(False)
        yield (
            f"of those that differ, {counted(len(labels), 'has', 'have')} a verdict and "
            f"{counted(wrong, 'was', 'were')} wrong"
        )


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
    from proxy.store.reviews.held_replies import REJECTED, RELEASED
    from proxy.store.reviews.queue import ReviewQueue

    is_correct, by = label == "correct", reviewer or user()
    with opened_record(config) as findings:
        recorded = find(findings.engine, request_id)
        if recorded is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        before = findings.verdict_of(recorded.request_id, by)
        findings.give_verdict(recorded.request_id, is_correct, by)
        queue = ReviewQueue(load_store_config(config).store)
        if drawn := queue.audit_of(recorded.request_id):  # nobody else need look at it
            queue.decide(drawn, RELEASED if is_correct else REJECTED, by)
        queue.close()
    typer.echo(f"{recorded.request_id} is {label}, says {by}{_in_place_of(before)}")


def _in_place_of(before: bool | None) -> str:
    return "" if before is None else f", who said {'correct' if before else 'wrong'} before"
