"""One held reply for a person at a terminal; `reviews show --json` has all of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from proxy.commands.opening.exits import plain

if TYPE_CHECKING:
    from proxy.desk.decisions.rules import ThresholdSide
    from proxy.store.reviews.held_replies import HeldReply

_INDENT: Final = "  "
_TIMES: Final = (("created_at", "since"), ("expires_at", "until"), ("decided_at", "decided"))


def lines_of(facts: Mapping[str, Any], held: HeldReply, leaning: ThresholdSide) -> Iterator[str]:
    """Yield what a reviewer needs to decide: state, confidence, question, reply, calls.

    `facts` are those of `--json`, and `leaning` compares the confidence with a threshold. Control
    characters are escaped, so no text can move the cursor.
    """
    confidence = facts["confidence"]
    sure = "no confidence" if confidence is None else f"confidence {leaning.figure(confidence)}"
    if leaning.side is not None:
        where = "below" if leaning.side == "low" else "at or above"
        sure += f" ({where} {leaning.whose} threshold, {leaning.threshold:g})"
    yield f"{plain(str(facts['id']))}  {facts['state']}, queue {plain(str(facts['queue']))}"
    yield f"{_INDENT}{plain(str(facts['model']))}, {sure}, policy {plain(str(facts['policy']))}"
    told = [f"{word} {_at(facts[name])}" for name, word in _TIMES if facts.get(name) is not None]
    if told:
        yield f"{_INDENT}{', '.join(told)}"
    yield from _decision(facts)
    yield "Question"
    yield from _indent(str(facts["question"] or "(not kept)"))
    yield "Reply"
    yield from _indent("(not kept any more)" if held.is_forgotten else _text_of(held))
    for call in facts["calls"]:
        yield from _call(call)


def _decision(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield who decided, the note, the number of approvals, and an edit."""
    if facts.get("decided_by"):
        yield f"{_INDENT}decided by {plain(str(facts['decided_by']))}"
    if facts.get("note"):
        yield f"{_INDENT}note: {plain(str(facts['note']))}"
    if approvals := facts.get("approvals"):
        given = len(approvals["given"])
        yield f"{_INDENT}approvals: {given} of {approvals['needed']}"
    if facts.get("revision"):
        yield f"{_INDENT}edited; approve it with --revision {plain(str(facts['revision']))}"


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    """Yield a call, one argument on each line, with its marks and risk."""
    risk = f"  [{plain(str(call['risk']))}]" if call.get("risk") else ""
    yield f"Call {plain(str(call.get('name')))}{risk}"
    if call.get("level"):
        reasons = plain("; ".join(map(str, call.get("reasons") or ())))
        yield f"{_INDENT}risk {plain(str(call['level']))}: {reasons}"
    if whole := (call.get("marks") or {}).get(""):
        yield f"{_INDENT}[{plain(str(whole))}]"
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
