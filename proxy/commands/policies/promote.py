"""`pinocchio promote`: takes a policy, or one of its rules, out of shadow mode."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption, stop
from proxy.commands.opening.opened_record import Since, opened_record, seconds
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from policies import Policy
    from proxy.store.record.reader import RecordedExchange


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
    from policies import InvalidDocumentError, parse_policy, promote
    from proxy.store.record.reader import since as recorded_since

    try:
        text = _bytes_of(policy).decode()  # read as bytes to keep line ends
        now = parse_policy(text, str(policy))
        changed = promote(text, str(policy), rule)
    except (InvalidDocumentError, ValueError) as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    span = seconds(since)
    with opened_record(config) as findings:
        exchanges = recorded_since(findings.engine, time.time() - span)
        comparisons = [_compare(each, rule) for each in exchanges if _is_by(each, now)]
    typer.echo(
        f"{plural(len(comparisons), 'reply', 'replies')} decided by this version of policy "
        f"{now.name}, last {since}"
    )
    if not comparisons:
        typer.echo("  nothing shows yet what it would do: let the proxy decide by it for a while")
    for line in (*_once_live(comparisons, rule), *_agreement(comparisons)) if comparisons else ():
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
    """Return the content of a policy file; end the process for a pack or an unreadable file."""
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


def _is_by(exchange: RecordedExchange, policy: Policy) -> bool:
    """Return whether this version of the policy decided on a reply, whatever its certificate."""
    digest = (exchange.policy or "").rpartition("@")[2].partition("+")[0]
    return exchange.policy_name == policy.name and digest == policy.digest.partition("+")[0]


class _Comparison(NamedTuple):
    """The action that would have been taken (or None), the one taken, and a verdict (or None)."""

    would: str | None
    action: str | None
    is_correct: bool | None


def _compare(exchange: RecordedExchange, rule: str | None) -> _Comparison:
    """Return what the policy, or one rule, would have done to a reply, beside what was done."""
    would = dict(exchange.shadowed).get(rule) if rule else exchange.would_action
    return _Comparison(would, exchange.action, exchange.is_correct)


def _once_live(replies: Sequence[_Comparison], rule: str | None) -> Iterator[str]:
    """Yield, for each action but deliver, how many of the replies would get it, with the share.

    One line says so where none would change. `rule` is the promoted one, None for all.
    """
    counts = Counter(each.would for each in replies if each.would not in (None, "deliver"))
    subject = f"rule {rule!r}" if rule else "it"
    for action in sorted(counts, key=lambda name: (name != "hold", -counts[name])):
        count = counts[action]
        share = f"{count / len(replies):.1%}"
        yield f"once live, {subject} would {action} {count} of {len(replies)} ({share})"
    if replies and not counts:
        yield f"once live, {subject} would change none of them"


def _agreement(all_replies: Sequence[_Comparison]) -> Iterator[str]:
    """Yield how often what would have been done agrees with what was done.

    The last line counts the verdicts on replies where they differ.
    """
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
            f"of those that differ, {plural(len(labels), 'has', 'have')} a verdict and "
            f"{plural(wrong, 'was', 'were')} wrong"
        )
