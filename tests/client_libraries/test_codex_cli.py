"""Codex itself with the pack `coding-agent`, through the proxy.

The client is `@openai/codex` from npm, 424 MB. `scripts/setup_clients codex` installs it, or
PINOCCHIO_CODEX names its program; without one these tests are skipped. The model is scripted: it
asks for ten steps, of which the pack lets six pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
from tests.client_libraries.scripted_agent import DONE, ScriptedResponsesAgent
from tests.running.live_proxy import ROOT, environment

INSTALLED = ROOT / ".venv-clients" / "codex" / "node_modules" / ".bin" / "codex"
TIMEOUT_S = 200
CONFIG = """
model = "gpt-5.5"
model_provider = "pinocchio"

[model_providers.pinocchio]
name = "Pinocchio"
base_url = "{base_url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
supports_websockets = {sockets}
"""


def codex() -> str:
    """Return the path of Codex; skip the test if it is not installed."""
    for found in (os.environ.get("PINOCCHIO_CODEX"), INSTALLED, shutil.which("codex")):
        if found and Path(found).exists():
            return str(found)
    pytest.skip("Codex is not installed: run scripts/setup_clients codex")


def run_codex(
    project: Project, base_url: str, *arguments: str, sockets: bool, more: str = ""
) -> str:
    """Run Codex without its own sandbox and approvals; return its final message."""
    home = project.home / ".codex"
    home.mkdir(exist_ok=True)
    config = CONFIG.format(base_url=base_url, sockets=str(sockets).lower())
    (home / "config.toml").write_text(config + more)
    kept = {k: v for k, v in environment().items() if not k.startswith(("CODEX", "OPENAI"))}
    kept |= {"PYTHONPATH": str(ROOT)}
    own = {"CODEX_HOME": str(home), "HOME": str(project.home), "OPENAI_API_KEY": "sk-test"}
    done = subprocess.run(
        [codex(), "exec", "-s", "danger-full-access", "--json", *arguments],
        cwd=project.folder,
        env=kept | own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return str([item["text"] for item in items if item["type"] == "agent_message"][-1])


@pytest.mark.parametrize("sockets", [False, True], ids=["http", "websocket first"])
def test_ten_steps_of_codex_through_the_proxy(tmp_path: Path, sockets: bool) -> None:
    """Six steps pass at once; four wait, of which two are approved and run, two are rejected."""
    codex()
    project = Project.made_in(tmp_path)
    with (
        ScriptedResponsesAgent(project.steps_of_codex()) as upstream,
        proxied(tmp_path, upstream) as proxy,
        Reviewer(proxy) as reviewer,
    ):
        answers = [run_codex(project, proxy.url, QUESTION, sockets=sockets)]
        while (
            answers[-1] != DONE and len(answers) < 5
        ):  # a rejection ends the turn, not the session
            more = ("resume", "--last", "Go on.")
            answers.append(run_codex(project, proxy.url, *more, sockets=sockets))
    assert [review["policy"].partition("@")[0] for review in reviewer.seen] == RULES
    questions = [QUESTION, "Go on.", "Go on.", "Go on."]
    assert [review["question"] for review in reviewer.seen] == questions
    assert answers[-1] == DONE
    assert "price + shipping" in (project.folder / "shop.py").read_text()
    assert (project.folder / "test_shop.py").exists()
    assert "Count the shipping" in git(tmp_path / "remote.git", "log", "--oneline", "main")
    assert project.outside.read_text() == "published\n"
    assert "hunter2" not in json.dumps(upstream.asked)


def test_ten_steps_of_codex_by_the_hook(tmp_path: Path) -> None:
    """Without the proxy the same six steps run and the same four are denied."""
    codex()
    project = Project.made_in(tmp_path)
    command = f"{sys.executable} -m pinocchio hook --ask deny"
    with ScriptedResponsesAgent(project.steps_of_codex()) as upstream:
        hooked = "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = 'command'\n"
        answer = run_codex(
            project,
            upstream.base_url.removesuffix("/v1"),
            "--dangerously-bypass-hook-trust",
            QUESTION,
            sockets=False,
            more=f"{hooked}command = '{command}'\n",
        )
    assert answer == DONE
    results = [item for item in upstream.asked[-1]["input"] if item["type"].endswith("_output")]
    held = ["coding-agent: " in json.dumps(item["output"]) for item in results]
    assert held == [False] * 6 + [True] * 4
    assert "coding-agent: pushing and publishing" in json.dumps(results[7])
    assert "Count the shipping" in git(project.folder, "log", "--oneline")
    assert (project.folder / "test_shop.py").exists()
    assert not project.outside.exists()
    assert "hunter2" not in json.dumps(upstream.asked)
