"""`pinocchio hook`: Claude Code and Codex ask a policy before a tool runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from policies import decide, parse_policy
from proxy.commands.policies.hook import hook_output, permission_of, read_hook_input
from tests.running.live_proxy import ROOT, environment

BLOCKS = """
version: 1
name: mine
mode: enforce
rules:
  - {name: no web, when: {tools: [WebFetch]}, then: {block: {message: no}}}
default: deliver
"""
SCORED = """
version: 1
name: scored
mode: enforce
rules:
  - {name: unsure, when: {tools: any, confidence: {below: 1.0}}, then: hold}
default: deliver
"""
SAID = [
    {"type": "user", "message": {"role": "user", "content": "List the files in src."}},
    {"type": "summary", "summary": "no message"},
    {"type": "assistant", "message": {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls src"}}]}},
]  # fmt: skip


def asked(tool: str, input: Any, event: str = "PreToolUse", **more: Any) -> bytes:
    """Return what a client writes to the hook's stdin."""
    body = {"session_id": "s", "hook_event_name": event, "tool_name": tool, "tool_input": input}
    return json.dumps({**body, "cwd": "/srv/app", **more}).encode()


def run_hook(stdin: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pinocchio", "hook", *arguments]
    env = {k: v for k, v in environment().items() if k != "CLAUDE_PROJECT_DIR"}
    return subprocess.run(command, input=stdin, capture_output=True, env=env, timeout=120)


def decided(stdin: bytes, policy: str = BLOCKS) -> dict[str, Any] | None:
    from policies import Facts, ToolCall

    hook_input = read_hook_input(stdin)
    facts = Facts(
        None, "", (ToolCall(hook_input.tool, hook_input.arguments, (), hook_input.project),)
    )
    return hook_output(hook_input, decide(parse_policy(policy, "mine.yaml"), facts), None)


@pytest.mark.parametrize(
    ("tool", "input", "permission", "rule"),
    [
        ("Bash", {"command": "pytest -q"}, "allow", "commands that read, test or edit"),
        ("Edit", {"file_path": "/srv/app/a.py"}, "allow", "tools that read or edit"),
        ("Bash", {"command": "git push"}, "ask", "pushing and publishing"),
        ("Write", {"file_path": "/etc/motd"}, "ask", "outside the project"),
    ],
)
def test_claude_code_gets_a_permission_with_its_reason(
    tool: str, input: Any, permission: str, rule: str
) -> None:
    """The pack `coding-agent` decides unless another policy is named."""
    done = run_hook(asked(tool, input))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": permission,
            "permissionDecisionReason": f"coding-agent: {rule}",
        }
    }


def test_what_a_policy_blocks_is_denied() -> None:
    """A call that a policy blocks is denied without a question to a person."""
    answer = decided(asked("WebFetch", {"url": "https://example.com"}))
    assert answer is not None
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_codexs_approval_is_given_denied_or_left_to_the_person() -> None:
    """Codex's PermissionRequest gets allow or deny; without one Codex asks as usual."""
    allowed = decided(asked("Bash", {"command": "ls"}, "PermissionRequest", turn_id="t"))
    assert allowed == {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow"},
        }
    }
    denied = decided(asked("WebFetch", {}, "PermissionRequest", turn_id="t"))
    assert denied is not None
    behavior = {"behavior": "deny", "message": "mine: no web"}
    assert denied["hookSpecificOutput"]["decision"] == behavior
    held = BLOCKS.replace("{block: {message: no}}", "hold")
    assert decided(asked("WebFetch", {}, "PermissionRequest", turn_id="t"), held) is None


def test_codex_before_a_call_is_told_of_denials_alone() -> None:
    """Before a call Codex gets only denials: it does not know `allow` and `ask` there."""
    assert decided(asked("Bash", {"command": "ls"}, turn_id="t")) is None
    assert decided(asked("WebFetch", {}, turn_id="t")) is not None


def test_where_nobody_can_be_asked_a_held_call_is_denied() -> None:
    """With `--ask deny`, for clients such as Codex that cannot ask, a held call is denied."""
    stdin = asked("Bash", {"command": "git push"}, turn_id="t")
    assert run_hook(stdin).stdout == b""
    answer = json.loads(run_hook(stdin, "--ask", "deny").stdout)["hookSpecificOutput"]
    assert answer["permissionDecision"] == "deny"
    assert "pushing and publishing" in answer["permissionDecisionReason"]


def test_a_policy_in_shadow_asks_nobody() -> None:
    """A call that a policy in shadow would hold is allowed."""
    from policies import Facts, ToolCall

    shadow = parse_policy(BLOCKS.replace("enforce", "shadow"), "mine.yaml")
    facts = Facts(None, "", (ToolCall("WebFetch"),))
    assert permission_of(decide(shadow, facts)) == "allow"


@pytest.mark.parametrize(
    ("stdin", "arguments", "expected"),
    [
        (b"", (), "stdin is no JSON"),
        (b"[]", (), "stdin names no tool"),
        (b'{"tool_name": 3}', (), "stdin names no tool"),
        (asked("Bash", {}), ("--policy", "coding-agnt"), "coding-agnt"),
    ],
)
def test_what_cannot_be_decided_is_denied(
    stdin: bytes, arguments: tuple[str, ...], expected: str
) -> None:
    """An undecidable call ends with status 2, a denial to both clients, and its reason."""
    done = run_hook(stdin, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert expected in done.stderr.decode()


def test_a_policy_that_looks_at_the_confidence_gets_one(tmp_path: Path) -> None:
    """A policy on the confidence gets one from the client's transcript without the call itself."""
    transcript, policy = tmp_path / "s.jsonl", tmp_path / "scored.yaml"
    transcript.write_text("\n".join(json.dumps(line) for line in SAID))
    policy.write_text(SCORED)
    stdin = asked("Bash", {"command": "ls src"}, transcript_path=str(transcript))
    done = run_hook(stdin, "--policy", str(policy))
    assert done.returncode == 0, done.stderr
    reason = json.loads(done.stdout)["hookSpecificOutput"]["permissionDecisionReason"]
    assert re.fullmatch(r"scored: unsure \(confidence 0\.\d\d\)", reason)


@pytest.mark.parametrize(
    ("recipient", "permission", "words"),
    [
        ("ann@corp.example", "allow", ""),
        ("bob@corp.example", "ask", "to: not in the conversation"),
    ],
)
def test_marks_count_and_are_told(
    tmp_path: Path, recipient: str, permission: str, words: str
) -> None:
    """With `doubtful-calls` a call passes unless it has a mark, which is in the answer."""
    message = {"role": "user", "content": "Mail the text 'All done' to ann@corp.example."}
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(json.dumps({"type": "user", "message": message}))
    input = {"to": recipient, "text": "All done"}
    stdin = asked("mcp__mail__send_email", input, transcript_path=str(transcript))
    done = run_hook(stdin, "--policy", "doubtful-calls")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)["hookSpecificOutput"]
    assert output["permissionDecision"] == permission
    assert words in output["permissionDecisionReason"]


def test_a_rule_on_the_risk_decides(tmp_path: Path) -> None:
    """A deletion that the user did not ask for is of high risk; one that was asked for is not."""
    policy = tmp_path / "risk.yaml"
    policy.write_text(SCORED.replace("tools: any, confidence: {below: 1.0}", "risk: high"))
    for words, permission in (("Any news?", "ask"), ("Delete note 12.", "allow")):
        transcript = tmp_path / "s.jsonl"
        transcript.write_text(json.dumps({"message": {"role": "user", "content": words}}))
        stdin = asked("delete_note", {"id": "12"}, transcript_path=str(transcript))
        output = json.loads(run_hook(stdin, "--policy", str(policy)).stdout)["hookSpecificOutput"]
        assert output["permissionDecision"] == permission


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    """The settings in docs/start/coding-agents.md are JSON, and its example asks."""
    page = (ROOT / "docs/start/coding-agents.md").read_text()
    commands = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    writes, tries = commands[:2]
    subprocess.run(writes, shell=True, cwd=tmp_path, check=True)
    settings = json.loads((tmp_path / ".claude" / "settings.json").read_text())
    [entry] = settings["hooks"]["PreToolUse"]
    assert entry["hooks"] == [{"type": "command", "command": "pinocchio hook"}]
    match = re.fullmatch(r"echo '(.*)' \| pinocchio hook", tries)
    assert match is not None
    answer = json.loads(run_hook(match[1].encode()).stdout)["hookSpecificOutput"]
    assert answer["permissionDecision"] == "ask"
    assert answer["permissionDecisionReason"] == "coding-agent: pushing and publishing"
