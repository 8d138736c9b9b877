"""`pinocchio hook`: a policy for Claude Code's and Codex's tool calls, without a proxy.

Claude Code's PreToolUse hook and Codex's PermissionRequest hook write the call as JSON to stdin and
read a decision from stdout. A call that the policy delivers is allowed, one that it blocks is
denied, and one that it would hold is for the person at the terminal. Unreadable input ends with
status 2, which both clients treat as a denial.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from calibrator import CallNotes
    from policies import Decision, Facts, Policy

Permission = Literal["allow", "ask", "deny"]
DENIED = 2  # the exit status that both clients treat as a denial
MAX_TRANSCRIPT = 4 * 2**20  # bytes read of the conversation's end


@dataclass(frozen=True, slots=True)
class HookInput:
    """A tool call from a client's hook, and the folder where the client runs."""

    event: str
    tool: str
    arguments: str
    project: str | None
    transcript: Path | None
    is_codex: bool


def hook(
    policy: Annotated[
        str, typer.Option(help="The policy that decides: a pack by name, or a file.")
    ] = "coding-agent",
    calibrator: Annotated[
        str, typer.Option(help="Gives the confidence, if the policy looks at it.")
    ] = "embedded",
    ask: Annotated[
        Literal["person", "deny"],
        typer.Option(help="What becomes of a held call: ask the person, or deny it."),
    ] = "person",
) -> None:
    """Decide on a coding agent's tool call: the hook of Claude Code and Codex, JSON in and out."""
    from policies import InvalidDocumentError, decide, load_policy

    try:
        hook_input = read_hook_input(sys.stdin.buffer.read())
        loaded_policy = load_policy(policy)
    except (ValueError, InvalidDocumentError, OSError) as error:
        typer.echo(f"pinocchio hook: {error}", err=True)
        raise typer.Exit(DENIED) from error
    facts, words = _facts(hook_input, loaded_policy, calibrator)
    decision = decide(loaded_policy, facts)
    denies_held = ask == "deny"
    answer = hook_output(hook_input, decision, facts.confidence, words, denies_held=denies_held)
    if answer is not None:
        typer.echo(json.dumps(answer))
    raise typer.Exit(ExitStatus.OK)


def read_hook_input(raw: bytes) -> HookInput:
    """Return the call in the JSON that a coding agent writes; raises ValueError for other bytes."""
    try:
        fields = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"stdin is no JSON ({error}); a coding agent writes it") from error
    if (
        not isinstance(fields, dict)
        or not isinstance(tool := fields.get("tool_name"), str)
        or not tool
    ):
        raise ValueError("stdin names no tool: 'tool_name' must be text")
    tool_input = fields.get("tool_input", {})
    arguments = (
        tool_input if isinstance(tool_input, str) else json.dumps(tool_input, ensure_ascii=False)
    )
    transcript = fields.get("transcript_path")
    folder = os.environ.get("CLAUDE_PROJECT_DIR") or fields.get("cwd")
    return HookInput(
        str(fields.get("hook_event_name") or "PreToolUse"),
        tool,
        arguments,
        folder if isinstance(folder, str) and folder else None,
        Path(transcript) if isinstance(transcript, str) and transcript else None,
        "turn_id" in fields,  # Codex's turns have ids, Claude Code's have none
    )


def hook_output(
    hook_input: HookInput,
    decision: Decision,
    confidence: float | None,
    words: Sequence[str] = (),
    *,
    denies_held: bool = False,
) -> dict[str, Any] | None:
    """Return the JSON answer for the client, or None where the client's own approval goes on.

    `words` say what speaks against the call. With `denies_held` a call that a person should decide
    on is denied.
    """
    permission = permission_of(decision)
    if permission == "ask" and denies_held:
        permission = "deny"
    reason = f"{decision.policy}: {decision.rule}"
    phrases = [] if confidence is None else [f"confidence {confidence:.2f}"]
    if phrases := [*phrases, *words]:
        reason += f" ({'; '.join(phrases)})"
    if hook_input.event == "PermissionRequest":
        if permission == "ask":
            return None
        answer = {"behavior": permission} | ({"message": reason} if permission == "deny" else {})
        return {"hookSpecificOutput": {"hookEventName": hook_input.event, "decision": answer}}
    if hook_input.is_codex and permission != "deny":
        return None  # Codex reads only denials before a call; its sandbox and approvals go on
    return {
        "hookSpecificOutput": {
            "hookEventName": hook_input.event,
            "permissionDecision": permission,
            "permissionDecisionReason": reason,
        }
    }


def permission_of(decision: Decision) -> Permission:
    """Return allow, ask or deny for a call that has not run yet, by the policy's decision.

    A policy in shadow allows all. A decision that would ask another model or the user is for a
    person.
    """
    if decision.mode == "shadow" or decision.action.name in ("deliver", "annotate"):
        return "allow"
    return "deny" if decision.action.name == "block" else "ask"


def _facts(hook_input: HookInput, policy: Policy, calibrator: str) -> tuple[Facts, list[str]]:
    """Return the facts about a call, and up to four phrases that speak against it.

    The confidence and marks are known only where the policy needs a score and there is a
    transcript.
    """
    from policies import Facts, OfferedTools, ToolCall

    readings = OfferedTools([hook_input.tool]).readings(hook_input.tool)
    confidence, notes = None, None
    if policy.needs_score and hook_input.transcript is not None:
        confidence, notes = _judge_call(hook_input, hook_input.transcript, calibrator)
    marks, risk = None, None
    words: list[str] = []
    if notes is not None:
        marks, risk = tuple((mark.name, mark.argument) for mark in notes.marks), notes.risk
        words = [f"{mark.argument}: {mark.words}".lstrip(": ") for mark in notes.marks[:3]]
        words += [f"high risk: {', '.join(notes.reasons)}"] if notes.risk == "high" else []
    call = ToolCall(
        hook_input.tool, hook_input.arguments, readings, hook_input.project, marks, risk
    )
    return Facts(confidence, "", (call,), finish_reason="tool_calls"), words


def _judge_call(
    hook_input: HookInput, transcript: Path, calibrator: str
) -> tuple[float | None, CallNotes | None]:
    """Return the probability that the call is right after the conversation, its marks and risk.

    Each is None where it cannot be known; the reason is printed on stderr.
    """
    from calibrator import CalibratorError, NotScorableError, Pinocchio, call_notes
    from proxy.formats import MESSAGES, RESPONSES

    function = {"name": hook_input.tool, "arguments": hook_input.arguments}
    reply = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    notes = None
    try:
        messages, items = _conversation(transcript)
        format, payload = (RESPONSES, {"input": items}) if items else (MESSAGES, {})
        question = format.question(payload or {"messages": messages})
        if (tool_use := question.tool_use(reply)) is not None:
            [notes] = call_notes(tool_use) or [None]
        return Pinocchio(calibrator).score(reply, messages=question.all_messages()), notes
    except (OSError, CalibratorError, NotScorableError, ValueError) as error:
        typer.echo(f"pinocchio hook: no confidence: {error}", err=True)
        return None, notes


def _conversation(transcript: Path) -> tuple[list[Any], list[Any]]:
    """Return the messages of Claude Code's transcript, and the items of one of Codex's, unchanged.

    One of the lists is empty, both for another file. What the model said last, whose call is
    decided on, is left out: the assistant's messages at the end, or the items behind the last
    message or call output.
    """
    messages, items = [], []
    for line in _lines(transcript):
        if isinstance(message := line.get("message"), dict) and "role" in message:
            messages.append(message)
        elif line.get("type") == "response_item" and isinstance(line.get("payload"), dict):
            items.append(line["payload"])
    while messages and messages[-1].get("role") == "assistant":
        messages.pop()  # the message whose call is decided on
    while items and items[-1].get("type") not in ("message", "function_call_output"):
        items.pop()
    return messages, items


def _lines(transcript: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in the lines of a transcript, from its last MAX_TRANSCRIPT bytes."""
    with transcript.open("rb") as file:
        file.seek(max(0, transcript.stat().st_size - MAX_TRANSCRIPT))
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # the first line may be cut
            if isinstance(value, dict):
                yield value
