"""The command `export`: the store's content as the labelled rows that all other commands read.

    {"id", "question_id", "domain", "question", "response", "model", "correct": 0|1, "confidence",
     "calibrator", "judged", "judge", "logprobs",
     "team", "policy", "action", "kind", "state", "share", "at_s",
     "reviewers": [{"reviewer", "correct", "at_s", "note"}]}

The question is the text that the calibrator reads, the response the message that it judged. A
response that calls tools has the conversation before it in `messages` and `tools`. Unknown members
are left out. `kind` says why a reply is there (`hold`, or `audit`, drawn with probability `share`);
without a share it stands for itself alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from calibrator import file_option
from policies import plural
from proxy.commands.opening.exits import ConfigOption, exit_on_calibrator_errors, stop
from proxy.commands.opening.opened_record import opened_record, seconds
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from calibrator import Question
    from proxy.store.exported import ExportedReply, ExportedVerdict
    from proxy.store.verdicts.feedback import StoredFeedback as Volunteered


def export(
    since: Annotated[str, typer.Option(help="How far to look back, such as 12h or 30d.")] = "30d",
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Export only replies that have a verdict.")
    ] = False,
    facts: Annotated[
        bool,
        typer.Option("--facts", help="Export also exchanges without content, as `facts` alone."),
    ] = False,
    output: Annotated[
        Path | None,
        file_option("-o", "--output", help="Write to FILE.jsonl, or packed to FILE.jsonl.gz."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write held and audited replies as JSON lines for evaluate, recalibrate, certify and train."""
    from calibrator import check_target
    from proxy.store.exported import with_content, without_content

    with exit_on_calibrator_errors():
        check_target(output)
    start, count, unread = time.time() - seconds(since), 0, 0
    with opened_record(config) as record, _open_output(output) as lines:
        for each in with_content(record.engine, start, is_labelled=labelled):
            row = row_of(each)
            if row is None or (labelled and "correct" not in row):
                unread += 1
                continue
            lines.write(json.dumps(row) + "\n")
            count += 1
        if facts and not labelled:
            for exchange in without_content(record.engine, start):
                lines.write(json.dumps(facts_of(exchange)) + "\n")
                count += 1
    left_out = f"; {unread} left out: images, or several choices" if unread else ""
    if not (count or unread or labelled or facts):
        left_out = (
            ": no reply was held or audited; --facts exports all exchanges, without their text"
        )
    typer.echo(f"{plural(count, 'row')}{left_out}", err=True)


def row_of(reply: ExportedReply) -> dict[str, Any] | None:
    """Return a labelled row, or None for a reply that no calibrator reads.

    That is one of an unknown format, with several choices, with images, or without a question.
    """
    from calibrator import NotScorableError, Question
    from proxy.formats import NoAnswerError
    from proxy.formats.conversation import format_of
    from proxy.http.wire.json_splice import json_object
    from proxy.store.reviews.held_replies import state_name

    held = reply.held
    format, completion = format_of(held.path), json_object(held.reply)
    request = json_object(held.request) if held.request else None
    if format is None or completion is None:
        return None
    try:
        choices = format.choices(completion)
        question = format.question(request) if request else Question(held.question)
    except (NoAnswerError, NotScorableError, ValueError):
        return None
    question_text = question.text
    if len(choices) != 1 or question.images or not question_text:
        return None
    answering_model = completion.get("model")
    values = {
        "id": held.id,
        "question_id": hashlib.sha256(question_text.encode(errors="replace")).hexdigest()[:16],
        "domain": _domain(reply.facts),
        "question": question_text,
        **_conversation(question, choices[0].message),
        "response": dict(choices[0].message),
        "model": answering_model if isinstance(answering_model, str) else held.model,
        "correct": int(reply.verdicts[-1].is_correct) if reply.verdicts else None,
        "confidence": held.confidence,
        "calibrator": held.calibrator,
        **_signals(reply.facts),
        **_findings(held.findings),
        "request_id": held.request_id,
        "team": held.team,
        "policy": held.policy,
        "action": reply.action,
        "kind": held.kind,
        "state": state_name(held.state),
        "share": held.share,
        "at_s": held.created_at,
        "reviewers": [_verdict_member(each) for each in reply.verdicts] or None,
        "feedback": [_feedback_member(each) for each in reply.feedback] or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _conversation(question: Question, message: dict[str, Any]) -> dict[str, Any]:
    """Return `messages` and `tools` of a reply that calls tools, or {} for other replies.

    Calibrators read the conversation before such a reply, too.
    """
    tool_use = question.tool_use(message)
    return (
        {}
        if tool_use is None
        else {"messages": list(tool_use.messages), "tools": list(tool_use.tools)}
    )


def _signals(facts: str | None) -> dict[str, Any]:
    """Return a judge's number and name and the log-probabilities of a reply, None if missing.

    `recalibrate --signals` learns from them.
    """
    first_facts = json.loads(facts)[0] if facts else {}
    return {name: first_facts.get(name) for name in ("judged", "judge", "logprobs")}


def _findings(text: str | None) -> dict[str, Any]:
    """Return the calibrator's findings besides the confidence, each None where it is missing.

    `text` is the JSON object that is stored with a held reply.
    """
    findings = json.loads(text) if text else {}
    names = ("support", "basis", "unsupported", "act", "needs_facts", "familiar", "because")
    return {name: findings.get(name) for name in names}


def _domain(facts: str | None) -> str | None:
    """Return the domain of a recorded exchange, from the JSON of its facts; None without one."""
    all_facts = json.loads(facts) if facts else None
    return all_facts[0].get("domain") if all_facts else None


def _verdict_member(verdict: ExportedVerdict) -> dict[str, Any]:
    """Return a reviewer's verdict as a member of a row; the note only where there is one."""
    values = {
        "reviewer": verdict.reviewer,
        "correct": int(verdict.is_correct),
        "at_s": verdict.given_at,
    }
    return values | ({"note": verdict.note} if verdict.note else {})


def _feedback_member(label: Volunteered) -> dict[str, Any]:
    """Return feedback as a member of a row.

    It never sets `correct`, because people choose the replies that they give feedback on.
    """
    values = {"by": label.given_by, "correct": int(label.is_correct), "at_s": label.given_at}
    return values | ({"note": label.note} if label.note else {})


def facts_of(exchange: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded exchange without content: its columns, with those in JSON unpacked."""
    fields = {name: value for name, value in exchange.items() if value is not None}
    for name in {"facts", "calls", "shadowed"} & fields.keys():
        fields[name] = json.loads(fields[name])
    return {"id": fields.pop("request_id"), "at_s": fields.pop("started_at"), **fields}


@contextmanager
def _open_output(output: Path | None) -> Iterator[TextIO]:
    """Open the output, stdout without a path; end the process where it cannot be written."""
    from calibrator import writer

    if output is None:
        yield sys.stdout
        return
    try:
        with writer(output) as lines:
            yield lines
    except OSError as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, f"{output}: {error.strerror}") from error
