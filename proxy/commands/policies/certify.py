"""`pinocchio certify`: the threshold above which few enough replies are wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from calibrator import file_option, refuse
from policies import plural
from proxy.commands.opening.exits import ConfigOption, exit_on_errors
from proxy.commands.opening.opened_record import opened_record, seconds
from proxy.commands.policies.options import (
    NOT_CERTIFIED,
    SCORED_ROWS_HELP,
    Calibrator,
    JsonOption,
    policy_named,
    scored_rows,
    sentences,
)

if TYPE_CHECKING:
    from calibrator import Interval
    from policies import Certification, Grant, LabelledScore, NeededLabels, Policy, Scope
    from proxy.commands.policies.labelled_rows import ScoredRow

Found: TypeAlias = "dict[str | None, list[LabelledScore]]"
"""Labelled replies by the calibrator that gave their confidences, None where it is unknown."""
Rule = Annotated[str | None, typer.Option(help="Certify the replies that reach this rule.")]
FromStore = Annotated[
    bool, typer.Option("--from-store", help="Certify on the verdicts on audited replies instead.")
]


def certify(
    context: typer.Context,
    max_error: Annotated[
        float, typer.Option(help="Largest share of wrong replies allowed, e.g. 0.05.")
    ],
    files: Annotated[list[Path] | None, typer.Argument(help=SCORED_ROWS_HELP)] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the guarantee.")] = 0.95,
    from_store: FromStore = False,
    since: Annotated[
        str, typer.Option(help="With --from-store: how far to look back, such as 30d.")
    ] = "30d",
    config: ConfigOption = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="The certificate to write or add to.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Certify this model's replies alone.")] = None,
    team: Annotated[str | None, typer.Option(help="Certify this team's replies alone.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="The policy that has the rule of --rule.")
    ] = None,
    rule: Rule = None,
    splits: Annotated[
        int, typer.Option(min=0, help="Certify this many random halves and check the other halves.")
    ] = 0,
    calibrator: Calibrator = "embedded",
    as_json: JsonOption = False,
) -> None:
    """Find the threshold above which at most a stated share of the replies is wrong.

    Confidences that include a second opinion or signals have a threshold of their own. Exit
    status 3 where the labels prove none; it then says how many more are needed.
    """
    from calibrator import check_target

    with sentences():
        loaded = policy_named(policy) if policy is not None else None
        scope = _scope(model, team, loaded, rule)
        if bool(files) == from_store:
            raise ValueError("certify needs FILES or --from-store, one of them")
        _refuse_idle(context, from_store, splits)
        check_target(output, files or [])
        labels = (
            _read_audit_labels(config, since, scope, loaded)
            if from_store
            else _labels(files or [], calibrator, scope, loaded)
        )
        if splits:
            for labelled in labels.values():
                _print_study(labelled, max_error, confidence, splits, as_json)
            return
        if output is not None:
            _check_named(labels)
        each = [
            _print_grant(labels, name, scope, max_error, confidence, as_json) for name in labels
        ]
        grants = [grant for grant in each if grant is not None]
        for grant in grants:
            _add_grant(output, grant)
        if not grants:
            raise typer.Exit(NOT_CERTIFIED)


def _print_grant(
    labels: Found,
    calibrator: str | None,
    scope: Scope,
    max_error: float,
    confidence: float,
    as_json: bool,
) -> Grant | None:
    """Print what one calibrator's labels prove; return its grant, or None without a threshold."""
    from calibrator import holds_chance
    from policies import certify as run

    labelled = labels[calibrator]
    if len(labels) > 1 and not as_json:
        share = len(labelled) / sum(map(len, labels.values()))
        replies = plural(len(labelled), "reply", "replies")
        typer.echo(f"{calibrator}: {replies}, {share:.1%} of all")
    certification = run(labelled, max_error, confidence)
    auroc = _auroc(labelled)
    _print_certification(certification, calibrator, scope, as_json, auroc)
    if auroc is not None and holds_chance(auroc):
        typer.echo(_cannot_rank(auroc, certification), err=True)
    return None if certification.threshold is None else certification.grant(calibrator or "", scope)


def _refuse_idle(context: typer.Context, from_store: bool, splits: int) -> None:
    """End the process with status 2 where a given option would change nothing."""
    if from_store:
        refuse(context, ["calibrator"], "is for FILES; leave it out with --from-store")
    else:
        refuse(context, ["since", "config"], "is for the store; leave it out with FILES")
    if splits:
        refuse(context, ["output"], "names a certificate, and --splits makes none; leave one out")


def _scope(model: str | None, team: str | None, policy: Policy | None, name: str | None) -> Scope:
    """Return the scope to certify; raises ValueError for a rule that is not in the policy."""
    from policies import Scope, nearest

    if name is None:
        return Scope(model, team)
    if policy is None:
        raise ValueError("--rule needs --policy")
    for rule in policy.rules:
        if rule.name == name:
            return Scope(model, team, name, rule.digest)
    suggestion = nearest(name, [rule.name for rule in policy.rules])
    hint = f"; did you mean {suggestion!r}?" if suggestion else ""
    raise ValueError(f"policy {policy.name} has no rule {name!r}{hint}")


def _labels(files: Sequence[Path], calibrator: str, scope: Scope, policy: Policy | None) -> Found:
    """Return the labels of files in this scope, by the calibrator of their confidences.

    The key is None for rows that do not name it. Raises ValueError where no row is in the scope.
    """
    found: Found = {}
    for row in _in_scope(scored_rows(files, calibrator), scope, policy):
        found.setdefault(row.calibrator, []).append(row.as_label())
    return found


def _read_audit_labels(
    config: Path | None, since: str, scope: Scope, policy: Policy | None
) -> Found:
    """Read the labels of the store's audited replies, by the calibrator of their numbers.

    The calibrators are those of the configuration: alone, and with second opinions or signals.
    """
    from calibrator import resolve_recalibrations
    from proxy.config.setup import load_store_config
    from proxy.learning.certifying import audited_knowing, audited_labels
    from proxy.scoring.engines.opening import known_name

    with exit_on_errors():
        section = load_store_config(config).calibrator
    checkpoint = calibrator = known_name(section)
    recalibrations = resolve_recalibrations(section.recalibration)
    if recalibrations.alone is not None:
        calibrator += f"+{recalibrations.alone.name}"
    start = time.time() - seconds(since)
    with opened_record(config) as findings:
        labels = audited_labels(findings.engine, start, calibrator, scope, policy)
        return {
            calibrator: labels,
            **audited_knowing(findings.engine, start, checkpoint, recalibrations, scope, policy),
        }


def _in_scope(rows: list[ScoredRow], scope: Scope, policy: Policy | None) -> list[ScoredRow]:
    """Return the rows within the scope of a grant; raises ValueError where there are none."""
    from policies import reaches

    kept = [row for row in rows if scope.model in (None, row.row.model)]
    kept = [row for row in kept if scope.team in (None, row.row.raw.get("team"))]
    if scope.rule is not None and policy is not None:
        kept = [row for row in kept if reaches(policy, scope.rule, row.exchange().facts)]
    if not kept:
        raise ValueError(f"no labelled row is within {scope}")
    return kept


def _auroc(labelled: Sequence[LabelledScore]) -> Interval | None:
    """Return the AUROC of the confidences with its interval, or None for labels of one kind."""
    from calibrator import auroc_interval

    if len({each.is_correct for each in labelled}) < 2:
        return None
    labels = [float(each.is_correct) for each in labelled]
    questions = [each.question for each in labelled]
    return auroc_interval(labels, [each.confidence for each in labelled], questions)


def _cannot_rank(auroc: Interval, certification: Certification) -> str:
    """Return a warning that the confidences do not rank these replies, and what to do."""
    auroc_text = f"AUROC {auroc.value:.3f}, 95 % between {auroc.low:.3f} and {auroc.high:.3f}"
    note = ""
    if certification.threshold is not None:
        note = "the threshold holds because few replies are wrong, not because it sorts them; "
    return (
        "warning: the calibrator cannot rank these replies, as far as "
        f"{plural(certification.labels, 'label shows', 'labels show')} "
        f"({auroc_text}); {note}do not gate on it; `pinocchio advise` with the same labels says "
        "what to do"
    )


def _print_certification(
    result: Certification,
    calibrator: str | None,
    scope: Scope,
    as_json: bool,
    auroc: Interval | None,
) -> None:
    """Print the threshold, or why there is none and how many labels are missing; or JSON."""
    if as_json:
        values = asdict(result) | {
            "coverage": result.coverage,
            "scope": asdict(scope),
        }
        values["calibrator"] = calibrator
        values["auroc"] = auroc and asdict(auroc)
        del values["scores"]
        typer.echo(json.dumps(values))
        return
    if result.threshold is not None:
        typer.echo(
            f"threshold {result.threshold:g}: of {scope} at or above it, at most "
            f"{result.max_error:.3g} are wrong, with {result.confidence:.3g} confidence\n"
            f"coverage {result.coverage:.3f}: {result.accepted} of "
            f"{plural(result.labels, 'question')}, "
            f"{result.wrong} of them wrong"
        )
        return
    assert result.needed is not None
    typer.echo(
        f"No threshold found for {scope}: "
        f"{plural(result.labels, 'labelled question does', 'labelled questions do')} not prove "
        f"that at most {result.max_error:.3g} are wrong ({result.confidence:.3g} confidence).\n"
        + "\n".join(_describe_missing(result.needed))
    )


def _describe_missing(needed: NeededLabels) -> Iterator[str]:
    """Yield sentences: how near the labels are to a proof, and what would help."""
    if needed.accepted:
        are = "is" if needed.wrong == 1 else "are"
        yield (
            f"Nearest: {needed.wrong:,} of the {plural(needed.accepted, 'reply', 'replies')} at "
            f"or above {needed.start:g} {are} wrong."
        )
    missing = plural(needed.at_least, "more label", "more labels")
    if needed.is_hopeless:
        yield "More labels will hardly help: look at those replies, or allow a higher --max-error."
    elif needed.expected is None or needed.expected == needed.at_least:
        yield f"In the best case (no further errors) {missing} would do."
    else:
        yield (
            f"About {needed.expected:,} more labels would do if errors go on as so far; "
            f"in the best case (no further errors) {needed.at_least:,}."
        )
    if needed.provable_error is not None:
        yield (
            f"These labels would have proved --max-error {needed.provable_error:g}, for "
            f"{needed.provable_coverage:.1%} of the replies. A rate that is picked after looking "
            "at the labels is not guaranteed by them: to use it, certify it on new labels."
        )


def _print_study(
    labelled: list[Any], max_error: float, confidence: float, splits: int, as_json: bool
) -> None:
    """Print how a certificate of one random half holds on the other, over `splits` splits."""
    from policies import study

    figures = study(labelled, max_error, confidence, splits=splits)
    if as_json:
        typer.echo(json.dumps(asdict(figures)))
        return
    typer.echo(
        f"{plural(figures.splits, 'split')} of {plural(figures.questions, 'question')}: "
        f"{figures.certified:.1%} certified\n"
        f"at most {max_error:.3g} of errors asked for; best coverage with all labels in view "
        f"{figures.best_coverage:.3f}"
    )
    if figures.mean_error is not None and figures.median_coverage is not None:
        typer.echo(
            f"on the other halves: mean error {figures.mean_error:.4f}, median coverage "
            f"{figures.median_coverage:.3f}, more errors than asked for in {figures.violations:.1%}"
        )


def _check_named(labels: Found) -> None:
    """Raise ValueError where some confidences do not name the calibrator that gave them."""
    if None in labels:
        raise ValueError(
            "a certificate is for one calibrator: the rows have to say, under `calibrator`, which "
            "version gave their confidences"
        )


def _add_grant(path: Path | None, grant: Grant) -> None:
    """Write the grant to the file, beside those for another calibrator, error or scope, and say so.

    One for the same is replaced; the certificate's date becomes today's. The file is replaced at
    once, so a running proxy never reads half of it. None as path does nothing. Raises OSError, and
    the errors of `parse_certificate` for a file that is no certificate.
    """
    from policies import Certificate, parse_certificate

    if path is None:
        return
    known: tuple[Grant, ...] = ()
    if path.exists():
        known = parse_certificate(path.read_text(encoding="utf-8"), str(path)).grants
    kept = tuple(each for each in known if each.subject != grant.subject)
    issued = datetime.now(UTC).date().isoformat()
    certificate = Certificate((*kept, grant), issued)
    new_path = path.with_name(f"{path.name}.new")  # a running proxy never reads half of it
    new_path.write_text(certificate.to_json(), encoding="utf-8")
    new_path.replace(path)
    typer.echo(f"written to {path}", err=True)
