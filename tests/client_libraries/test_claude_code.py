"""Claude Code itself with the pack `coding-agent`: through the proxy, and with the hook alone.

The client is `@anthropic-ai/claude-code` from npm, 235 MB. `scripts/setup_clients claude-code`
installs it, or PINOCCHIO_CLAUDE_CODE names its program; without one these tests are skipped. The
model is scripted: it asks for ten steps, of which the pack lets six pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.client_libraries.agent_project import (
    QUESTION,
    RULES,
    Project,
    Reviewer,
    git,
    proxied,
)
from tests.client_libraries.scripted_agent import DONE, ScriptedAgent
from tests.running.live_proxy import ROOT, environment

INSTALLED = ROOT / ".venv-clients" / "claude-code" / "node_modules" / ".bin" / "claude"
TIMEOUT_S = 400  # on a busy machine, the hook starts a Python process at each step


def claude_code() -> str:
    """Return the path of Claude Code; skip the test if it is not installed."""
    for found in (os.environ.get("PINOCCHIO_CLAUDE_CODE"), INSTALLED, shutil.which("claude")):
        if found and Path(found).exists():
            return str(found)
    pytest.skip("Claude Code is not installed: run scripts/setup_clients claude-code")


def run_claude(project: Project, base_url: str, *arguments: str) -> str:
    """Run Claude Code, which may use its tools without asking; return its final answer."""
    tools = ["--allowedTools", "Bash,Read,Edit,Write"]
    quiet = {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "sk-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HOME": str(project.home),
    }
    kept = {k: v for k, v in environment().items() if not k.startswith(("CLAUDE", "ANTHROPIC"))}
    done = subprocess.run(
        [claude_code(), "-p", *arguments, "--output-format", "json", *tools],
        cwd=project.folder,
        env=kept | quiet,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["result"])


def test_ten_steps_through_the_proxy(tmp_path: Path) -> None:
    """Six steps pass at once; four wait, of which two are approved and run, two are rejected."""
    claude_code()
    project = Project.made_in(tmp_path)
    with (
        ScriptedAgent(project.steps) as upstream,
        proxied(tmp_path, upstream) as proxy,
        Reviewer(proxy) as reviewer,
    ):
        answers = [run_claude(project, proxy.url, QUESTION)]
        while (
            answers[-1] != DONE and len(answers) < 5
        ):  # a rejection ends the turn, not the session
            answers.append(run_claude(project, proxy.url, "Go on.", "--continue"))
    rules = [review["policy"].partition("@")[0] for review in reviewer.seen]
    assert rules == RULES
    questions = [QUESTION, "Go on.", "Go on.", "Go on."]
    assert [review["question"] for review in reviewer.seen] == questions
    assert answers[-1] == DONE
    assert any("Not this." in text for text in answers[:-1])
    assert "price + shipping" in (project.folder / "shop.py").read_text()
    assert (project.folder / "test_shop.py").exists()
    assert "Count the shipping" in git(tmp_path / "remote.git", "log", "--oneline", "main")
    assert project.outside.read_text() == "published"
    assert "hunter2" not in json.dumps(upstream.asked)


def test_ten_steps_by_the_hook(tmp_path: Path) -> None:
    """Without the proxy the same six steps run and the same four do not, as nobody can decide."""
    claude_code()
    project = Project.made_in(tmp_path)
    command = f"{sys.executable} -m pinocchio hook --policy coding-agent"
    entry = {"matcher": "*", "hooks": [{"type": "command", "command": command, "timeout": 60}]}
    settings = project.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [entry]}}))
    with ScriptedAgent(project.steps) as upstream:
        begun = time.monotonic()
        answer = run_claude(project, upstream.base_url.removesuffix("/v1"), QUESTION)
        assert time.monotonic() - begun < TIMEOUT_S
    results = [
        block
        for message in upstream.asked[-1]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]
    assert answer == DONE
    assert [bool(each.get("is_error")) for each in results] == [False] * 6 + [True] * 4
    assert "coding-agent: pushing and publishing" in json.dumps(results[7])
    assert (project.folder / "test_shop.py").exists()
    assert not project.outside.exists()
    assert "hunter2" not in json.dumps(upstream.asked)
