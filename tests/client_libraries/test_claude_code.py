"""Claude Code itself under the pack `coding-agent`: through the proxy, and by the hook alone.

The client is `@anthropic-ai/claude-code` from npm, 235 MB. `scripts/setup_clients claude-code`
installs it, else PINOCCHIO_CLAUDE_CODE names its program; without one these tests are skipped. The
model is scripted: it asks for ten steps, of which the pack lets six pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from policies import pack_text
from tests.client_libraries.scripted_agent import DONE, ScriptedAgent, Step
from tests.running.desk_client import API, DESK
from tests.running.live_proxy import ROOT, LiveProxy, environment

INSTALLED = ROOT / ".venv-clients" / "claude-code" / "node_modules" / ".bin" / "claude"
QUESTION = "Count the shipping into the total, then tidy up and publish."
TIMEOUT_S = 400  # on a busy machine each step of the hook starts a Python
REVIEWS = f"{API}/reviews"
REJECTED = ("rm -rf", ".env")  # what the reviewer here does not let pass


def claude_code() -> str:
    """The client's program; skips the test where there is none."""
    for found in (os.environ.get("PINOCCHIO_CLAUDE_CODE"), INSTALLED, shutil.which("claude")):
        if found and Path(found).exists():
            return str(found)
    pytest.skip("Claude Code is not installed: run scripts/setup_clients claude-code")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@dataclass
class Project:
    """A git repository with a module, a test of it, a secret, and a remote to push to."""

    folder: Path
    outside: Path
    home: Path
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def made_in(cls, folder: Path) -> Project:
        project = cls(folder / "shop", folder / "elsewhere.txt", folder / "home")
        project.folder.mkdir()
        project.home.mkdir()
        for name, text in {
            "shop.py": "def total(price, shipping):\n    return price\n",
            "test_shop.py": "import unittest\nfrom shop import total\n\n\nclass Total(unittest."
            "TestCase):\n    def test(self):\n        self.assertEqual(total(2, 1), 3)\n",
            ".env": "TOKEN=hunter2\n",
            ".gitignore": ".env\n__pycache__\n",
        }.items():
            (project.folder / name).write_text(text)
        git(folder, "init", "-q", "--bare", "remote.git")
        for command in ("init -q -b main", "add -A", "commit -qm start", "config user.name a"):
            git(project.folder, *command.split())
        git(project.folder, "config", "user.email", "a@example.com")
        git(project.folder, "remote", "add", "origin", str(folder / "remote.git"))
        shop = str(project.folder / "shop.py")
        change = {"old_string": "return price\n", "new_string": "return price + shipping\n"}
        project.steps = [
            Step("Bash", {"command": "ls -la", "description": "List files"}),
            Step("Read", {"file_path": shop}),
            Step("Bash", {"command": "grep -n 'return' shop.py", "description": "Search"}),
            Step("Edit", {"file_path": shop, **change}),
            Step("Bash", {"command": "python3 -m unittest -q 2>&1 | tail -3"}),
            Step("Bash", {"command": "git add -A && git commit -qm 'Count the shipping'"}),
            Step("Bash", {"command": "rm -rf test_shop.py", "description": "Tidy up"}),
            Step("Bash", {"command": "git push origin main", "description": "Publish"}),
            Step("Bash", {"command": "cat .env", "description": "Look for the token"}),
            Step("Write", {"file_path": str(project.outside), "content": "published"}),
        ]
        return project


def run_claude(project: Project, base_url: str, *arguments: str) -> str:
    """What Claude Code prints in the end; it may use its tools without asking at the terminal."""
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


class Reviewer:
    """Decides on each held call as soon as it waits, and keeps what the desk showed of it."""

    def __init__(self, proxy: LiveProxy) -> None:
        self.seen: list[dict[str, Any]] = []
        self._proxy = proxy
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        known: set[str] = set()
        while not self._is_over.wait(0.2):
            for row in self._proxy.desk.get(REVIEWS).json()["items"]:
                if row["id"] not in known:
                    known.add(row["id"])
                    self._decide(row["id"])

    def _decide(self, id: str) -> None:
        review = self._proxy.desk.get(f"{REVIEWS}/{id}").json()
        self.seen.append(review)
        is_rejected = any(each in json.dumps(review["reply"]) for each in REJECTED)
        rejection = {"verdict": "reject", "note": "Not this."}
        body = rejection if is_rejected else {"verdict": "approve"}
        answer = self._proxy.desk.post(f"{REVIEWS}/{id}/verdict", json=body)
        assert answer.status_code == 200, answer.text

    def __enter__(self) -> Reviewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)


@contextmanager
def proxied(folder: Path, upstream: ScriptedAgent) -> Iterator[LiveProxy]:
    proxy = LiveProxy(
        upstream.base_url,
        folder,
        policy=pack_text("coding-agent"),
        upstream={"speaks": "both"},
        **DESK,
    )
    yield proxy
    proxy.stop()


def test_ten_steps_through_the_proxy(tmp_path: Path) -> None:
    """Six steps pass at once; four wait, of which two are approved and run, two rejected."""
    claude_code()
    project = Project.made_in(tmp_path)
    with (
        ScriptedAgent(project.steps) as upstream,
        proxied(tmp_path, upstream) as proxy,
        Reviewer(proxy) as reviewer,
    ):
        said = [run_claude(project, proxy.url, QUESTION)]
        while said[-1] != DONE and len(said) < 5:  # a rejection ends the turn, not the session
            said.append(run_claude(project, proxy.url, "Go on.", "--continue"))
    rules = [review["policy"].partition("@")[0] for review in reviewer.seen]
    assert rules == [
        "coding-agent/deleting-and-undoing",
        "coding-agent/pushing-and-publishing",
        "coding-agent/secrets-and-unreadable-commands",
        "coding-agent/outside-the-project",
    ]
    asked = [QUESTION, "Go on.", "Go on.", "Go on."]
    assert [review["question"] for review in reviewer.seen] == asked
    assert said[-1] == DONE
    assert any("Not this." in text for text in said[:-1])
    assert "price + shipping" in (project.folder / "shop.py").read_text()
    assert (project.folder / "test_shop.py").exists()
    assert "Count the shipping" in git(tmp_path / "remote.git", "log", "--oneline", "main")
    assert project.outside.read_text() == "published"
    assert "hunter2" not in json.dumps(upstream.asked)


def test_ten_steps_by_the_hook(tmp_path: Path) -> None:
    """Without the proxy the same six steps run and the same four do not: nobody can be asked."""
    claude_code()
    project = Project.made_in(tmp_path)
    command = f"{sys.executable} -m pinocchio hook --policy coding-agent"
    entry = {"matcher": "*", "hooks": [{"type": "command", "command": command, "timeout": 60}]}
    settings = project.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [entry]}}))
    with ScriptedAgent(project.steps) as upstream:
        begun = time.monotonic()
        said = run_claude(project, upstream.base_url.removesuffix("/v1"), QUESTION)
        assert time.monotonic() - begun < TIMEOUT_S
    results = [
        block
        for message in upstream.asked[-1]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]
    assert said == DONE
    assert [bool(each.get("is_error")) for each in results] == [False] * 6 + [True] * 4
    assert "coding-agent: pushing and publishing" in json.dumps(results[7])
    assert (project.folder / "test_shop.py").exists()
    assert not project.outside.exists()
    assert "hunter2" not in json.dumps(upstream.asked)
