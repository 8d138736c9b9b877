"""`pinocchio reviews`: lists, shows, approves and rejects held replies in a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from calibrator import refuse
from proxy.commands.opening.exits import (
    NAME_SHOWN,
    AsOption,
    ConfigOption,
    existing_store,
    exit_on_errors,
    plain,
    plain_json,
    stop,
    user,
)
from proxy.commands.opening.opened_record import NOT_CONFIGURED
from proxy.errors import BadRequestError, DecidedError, ExitStatus, NotFoundError, StartupError

if TYPE_CHECKING:
    from proxy.desk.decisions.desk import Desk
    from proxy.desk.decisions.rules import ThresholdSide
    from proxy.desk.decisions.standing import LikeThis
    from proxy.store.queue import QueueEntry
    from proxy.store.reviews.held_replies import HeldReply


_INDENT: Final = "  "
_TIMES: Final = (("created_at", "since"), ("expires_at", "until"), ("decided_at", "decided"))

reviews = typer.Typer(no_args_is_help=True, help="List, read, approve and reject held replies.")
LabelOption = Annotated[
    bool | None,
    typer.Option(
        "--correct/--wrong", help="Also label the reply; without either it gets no label."
    ),
]
NoteOption = Annotated[
    str | None, typer.Option(help="The reason; a rejection sends it to the app.")
]
RevisionOption = Annotated[
    str | None,
    typer.Option(help="The edit that is approved, as `reviews show` has it, if somebody made one."),
]
StateOption = Annotated[
    str,
    typer.Option(
        help="List replies in this state: open, released, rejected or expired; with "
        "--standing: open or all."
    ),
]
StandingOption = Annotated[
    bool, typer.Option("--standing", help="List approvals that cover further calls, not replies.")
]
SHOWN_OF_ID: Final = 8  # characters of an id's random part
LEAST_OF_ID: Final = 4
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@reviews.command("list")
def list_reviews(
    context: typer.Context,
    config: ConfigOption = None,
    state: StateOption = "open",
    queue: Annotated[str | None, typer.Option(help="List those of this queue alone.")] = None,
    team: Annotated[str | None, typer.Option(help="List those of this team alone.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    standing: StandingOption = False,
    as_json: JsonOption = False,
) -> None:
    """List held replies and those drawn to be checked, most likely wrong first.

    A terminal shows a part of each id; other commands take it in place of the whole one.
    """
    if standing:
        refuse(context, ["queue", "team", "limit"], "is for replies; leave it out with --standing")
        _list_standing(config, state, as_json)
        return
    from proxy.desk.decisions.basis import score_facts
    from proxy.desk.decisions.times import in_words
    from proxy.store.reviews.held_replies import STATE_NAMES, state_name, stored_state

    if (stored := stored_state(state)) is None:
        known = ", ".join(STATE_NAMES)
        message = f"--state must be one of {known}, not {state!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    with _desk(config) as desk:
        page = desk.queue.page(stored, limit, queue=queue, team=team)
        if not page and not as_json:
            typer.echo(f"no reply is {state_name(stored)}", err=True)
        for entry in page:
            if as_json:
                typer.echo(json.dumps(_facts(desk, desk.find_reply(entry.id))))
                continue
            score = "no score" if entry.confidence is None else f"{entry.confidence:.4f}"
            if (support := score_facts(entry)["support"]) is not None:
                score += f"  support {support:.4f}"
            age = f"{in_words(time.time() - entry.created_at)} ago"
            typer.echo(
                f"{_id_text(entry.id)}  {score}  {plain(entry.queue)}"
                f"  {plain(entry.model[:NAME_SHOWN])}  {age}  {_end(entry)}"
                f"  {entry.question[:60]!r}"
            )
            for call in desk.calls(entry):
                risk = f"  [{call.risk}]" if call.risk else ""
                risk += "  [high risk]" if call.level == "high" else ""
                typer.echo(f"    {plain(call.marked_line)}{risk}")
        if len(page) == limit:
            total = desk.queue.count(stored, queue=queue, team=team)
            if total > limit:
                typer.echo(f"{limit} of {total} are shown; --limit {total} shows all", err=True)
        _warn_of_missing(desk, [entry.policy for entry in page])


def _list_standing(config: Path | None, state: str, as_json: bool) -> None:
    """Print the approvals that cover further calls: those in force, or all for state `all`."""
    if state not in ("open", "all"):
        message = f"--state must be open or all with --standing, not {state!r}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    from proxy.desk.decisions.standing import approval_json
    from proxy.desk.decisions.times import format_time_left

    with _desk(config) as desk:
        approvals = [
            approval_json(each) for each in desk.queue.standing_approvals(is_all=state == "all")
        ]
    for each in approvals:
        if as_json:
            typer.echo(json.dumps(each))
            continue
        time_left = format_time_left(max(0.0, each["expires_at"] - time.time()))
        state = f"{time_left} left" if each["state"] == "open" else each["state"]
        free = ", ".join(map(plain, each["any"])) or "nothing"
        typer.echo(
            f"{each['id']}  {plain(each['tool'])}  any: {free}"
            f"  {each['uses']} of {each['most_uses']} used  {state}  by {plain(each['created_by'])}"
        )
    if not approvals and not as_json:
        typer.echo("no approval covers further calls", err=True)


def _id_text(id: str) -> str:
    """Return the part of an id that a list shows; commands take it in place of the whole."""
    if not sys.stdout.isatty():
        return plain(id)
    return plain(id.replace("_", "-").rpartition("-")[2][:SHOWN_OF_ID])


def _whole_id(desk: Desk, id: str) -> str:
    """Return the id of the review with this part of an id, or the text itself if none has it.

    Raises NotFoundError where several match.
    """
    if len(id) < LEAST_OF_ID or desk.queue.get(id) is not None:
        return id
    ids = desk.queue.ids_like(id)
    if len(ids) > 1:
        raise NotFoundError(f"several reviews have {id!r} in their id; give more of it")
    return ids[0] if ids else id


@reviews.command("show")
def show_review(
    id: str,
    config: ConfigOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with all that upstream answered.")
    ] = False,
) -> None:
    """Show one held reply: what was asked, what was answered, the calls, and why it is held."""
    with _desk(config) as desk:
        held = desk.find_reply(_whole_id(desk, id))
        reply = None if held.is_forgotten else json.loads(held.reply)
        facts, leaning = _facts(desk, held), desk.leaning_of(held)
        _warn_of_missing(desk, [held.policy])
    if as_json:
        text = json.dumps({**facts, "reply": reply}, indent=2, ensure_ascii=False)
        typer.echo(plain_json(text))
        return

    for line in _lines_of(facts, held, leaning):
        typer.echo(line)


@reviews.command("approve")
def approve(
    id: str,
    config: ConfigOption = None,
    reviewer: AsOption = None,
    correct: LabelOption = None,
    note: NoteOption = None,
    revision: RevisionOption = None,
    like_this: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES", help="Also approve calls like its one call, for so many minutes."
        ),
    ] = None,
    uses: Annotated[int, typer.Option(min=1, help="With --like-this: how many calls.")] = 10,
    any_of: Annotated[
        list[str] | None,
        typer.Option("--any", help="With --like-this: an argument that may have any value."),
    ] = None,
) -> None:
    """Let the client fetch the reply."""
    from proxy.desk.decisions.standing import LikeThis

    further_calls = None if like_this is None else LikeThis(like_this * 60, uses, any_of or ())
    _decide(id, config, "approve", reviewer, correct, note, revision, further_calls)


@reviews.command("reject")
def reject(
    id: str,
    config: ConfigOption = None,
    reviewer: AsOption = None,
    correct: LabelOption = None,
    note: NoteOption = None,
) -> None:
    """Withhold the reply for good, or end an approval that covers further calls, by its id."""
    _decide(id, config, "reject", reviewer, correct, note)


def _decide(
    id: str,
    config: Path | None,
    verdict: Literal["approve", "reject"],
    reviewer: str | None,
    correct: bool | None = None,
    note: str | None = None,
    revision: str | None = None,
    like_this: LikeThis | None = None,
) -> None:
    """Decide on a held reply, or end the approval with this id, and print the outcome."""
    from proxy.desk.decisions.desk import Verdict
    from proxy.desk.decisions.standing import end

    decision = Verdict(verdict, correct, None, note, revision, like_this)
    with _desk(config) as desk:
        if verdict == "reject" and desk.queue.standing_by_id(id) is not None:
            if correct is not None or note is not None:
                message = f"{id} is an approval: leave out --correct, --wrong and --note"
                raise stop(ExitStatus.UNUSABLE_INPUT, message)
            typer.echo(f"{id} is {end(desk.queue, id, reviewer or user())['state']}")
            return
        id = _whole_id(desk, id)
        decided = desk.decide(id, decision, reviewer or user())
    typer.echo(f"{id} is {decided['state']}{_approvals(decided['approvals'])}")


def _approvals(approvals: dict[str, Any] | None) -> str:
    """Return a phrase such as `: 1 of 2 approved (ann)`; empty where one person decides."""
    if approvals is None:
        return ""
    people = ", ".join(plain(each["by"]) for each in approvals["given"])
    return f": {len(approvals['given'])} of {approvals['needed']} approved" + (
        f" ({people})" if people else ""
    )


@contextmanager
def _desk(config: Path | None) -> Iterator[Desk]:
    """Open the review desk on the configured store.

    Ends the process where there is no store, and with status 1 where the desk refuses something. A
    broken policy is ignored: it must not keep people from deciding.
    """
    from proxy.config.setup import load_setup, load_store_config
    from proxy.desk.decisions.desk import Desk
    from proxy.store.queue import ReviewQueue

    with exit_on_errors():
        store = existing_store(load_store_config(config).store)
        setup = None
        with suppress(StartupError):  # a broken policy must not keep people from deciding
            setup = load_setup(config)
        desk = Desk(ReviewQueue(store), (lambda: setup) if setup is not None else None)
        try:
            yield desk
        except (NotFoundError, DecidedError, BadRequestError) as error:
            raise stop(ExitStatus.FAILED, error.message) from error
        finally:
            desk.queue.close()


def _facts(desk: Desk, held: HeldReply) -> dict[str, object]:
    """Return what is known of a held reply as JSON values, without the text of the reply."""
    from proxy.desk.decisions.basis import score_facts
    from proxy.desk.decisions.desk import approvals_of
    from proxy.store.reviews.approvals import revision_of
    from proxy.store.reviews.held_replies import state_name

    names = ("id", "queue", "model", "policy", "confidence", "calibrator", "question")
    times = ("created_at", "expires_at", "decided_at", "taken_at")
    facts: dict[str, object] = {name: getattr(held, name) for name in names + times}
    bound = json.loads(held.calls) if held.calls else []
    bound = [{"name": call.pop("tool", None), **call} for call in bound]  # stored as `tool`
    calls = [
        {**call.facts(), **(bound[at] if at < len(bound) else {})}
        for at, call in enumerate(desk.calls(held))
    ]
    more = {
        "state": state_name(held.state),
        "on_expiry": None if held.kind == "audit" else held.on_expiry,
        "calls": calls or bound,
        "approvals": approvals_of(held),
        "revision": revision_of(held.proposed),
        "proposed": json.loads(held.proposed) if held.proposed else None,
        "score": score_facts(held),
    }
    return facts | more | {"decided_by": held.decided_by, "note": held.note}


def _warn_of_missing(desk: Desk, labels: Sequence[str]) -> None:
    """Print a line for each policy that held a call and is not in the configuration.

    Without it nothing says which pattern of risk a call matches. `labels` are such as
    `desk/unsure@3f2a`.
    """
    for name in sorted({name for each in labels if (name := desk.missing_policy(each))}):
        text = (
            f"policy {plain(name)} {NOT_CONFIGURED}, so nothing says which pattern a call matches"
        )
        typer.echo(text, err=True)


def _end(held: QueueEntry) -> str:
    """Return when an open reply expires and what happens then, such as `reject in 4 min`.

    For one that is not open, return how it ended and by whom.
    """
    from proxy.desk.decisions.times import format_time_left

    if held.state == "held":
        left_s = max(0.0, held.expires_at - time.time())
        if held.kind == "audit":  # it was delivered: nothing is withheld when its time is up
            return f"to be checked within {format_time_left(left_s)}"
        return f"{held.on_expiry} in {format_time_left(left_s)}"
    return held.state if held.decided_by is None else f"{held.state} by {held.decided_by}"


# --- one reply, for a person at a terminal --------------------------------------------------------


def _lines_of(facts: Mapping[str, Any], held: HeldReply, leaning: ThresholdSide) -> Iterator[str]:
    """Yield what a reviewer needs to decide: state, confidence, question, reply, calls.

    `facts` are those of `--json`, and `leaning` compares the confidence with a threshold. Control
    characters are escaped, so no text can move the cursor.
    """
    confidence = facts["confidence"]
    score = "no confidence" if confidence is None else f"confidence {leaning.figure(confidence)}"
    if leaning.side is not None:
        where = "below" if leaning.side == "low" else "at or above"
        score += f" ({where} {leaning.whose} threshold, {leaning.threshold:g})"
    yield f"{plain(str(facts['id']))}  {facts['state']}, queue {plain(str(facts['queue']))}"
    yield f"{_INDENT}{plain(str(facts['model']))}, {score}, policy {plain(str(facts['policy']))}"
    times = [f"{word} {_at(facts[name])}" for name, word in _TIMES if facts.get(name) is not None]
    if times:
        yield f"{_INDENT}{', '.join(times)}"
    yield from _decision(facts)
    yield "Question"
    yield from _indent(str(facts["question"] or "(not kept)"))
    yield "Reply"
    yield from _indent("(not kept any more)" if held.is_forgotten else _text_of(held))
    for call in facts["calls"]:
        yield from _call(call)


def _decision(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield who decided, the note, the number of approvals, and an edit; nothing without any."""
    if facts.get("decided_by"):
        yield f"{_INDENT}decided by {plain(str(facts['decided_by']))}"
    if facts.get("note"):
        yield f"{_INDENT}note: {plain(str(facts['note']))}"
    if approvals := facts.get("approvals"):
        count = len(approvals["given"])
        yield f"{_INDENT}approvals: {count} of {approvals['needed']}"
    if facts.get("revision"):
        yield f"{_INDENT}edited; approve it with --revision {plain(str(facts['revision']))}"


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    """Yield a call, one argument on each line, with its marks and risk in brackets."""
    risk = f"  [{plain(str(call['risk']))}]" if call.get("risk") else ""
    yield f"Call {plain(str(call.get('name')))}{risk}"
    if call.get("level"):
        reasons = plain("; ".join(map(str, call.get("reasons") or ())))
        yield f"{_INDENT}risk {plain(str(call['level']))}: {reasons}"
    if call_mark := (call.get("marks") or {}).get(""):
        yield f"{_INDENT}[{plain(str(call_mark))}]"
    arguments, marks = call.get("arguments"), call.get("marks") or {}
    if not isinstance(arguments, dict):
        yield from _indent(str(arguments))
        return
    for name, value in arguments.items():
        mark = f"  [{plain(str(marks[name]))}]" if marks.get(name) else ""
        yield f"{_INDENT}{plain(str(name))}: {plain(json.dumps(value, ensure_ascii=False))}{mark}"


def _text_of(held: HeldReply) -> str:
    """Return the text of a held reply, of an edit where there is one, or `(no text)`."""
    from proxy.formats.conversation import read_reply

    turns = read_reply(held.edit or held.reply, held.path)
    texts = [part.text for turn in turns for part in turn.parts if part.kind == "text"]
    return "\n".join(texts) or "(no text)"


def _indent(text: str) -> Iterator[str]:
    """Yield the lines of a text, indented and with control characters escaped."""
    for line in text.splitlines() or [""]:
        yield f"{_INDENT}{plain(line)}"


def _at(seconds: float) -> str:
    """Return a time in seconds since 1970 as `2026-05-02 14:30 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
