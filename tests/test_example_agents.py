"""The example agents with gated tools, killed and restarted, in front of the demo upstream.

`agent.py` runs with the suite's openai client, `agents_sdk.py` with the OpenAI Agents SDK of
`.venv-clients` (`scripts/setup_clients`).
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calibrator import Item, Score
from proxy.upstreams.demo.answers import DemoRow, dump_json
from proxy.upstreams.demo.demo import rows
from tests.proxy.actions.test_actions import held_rows
from tests.running.live_proxy import (
    ROOT,
    LiveProxy,
    ProxyProcess,
    WordScorer,
    environment,
    free_port,
    run_cli,
    until,
)
from tests.running.warm_cli import Program, WarmProcess

FOLDER = ROOT / "examples" / "agents"
AGENTS_SDK = ROOT / ".venv-clients/newest/bin/python"
AGENTS = {
    "agent.py": Program(FOLDER / "agent.py", ("openai", "openai.resources.chat")),
    "agents_sdk.py": Program(FOLDER / "agents_sdk.py", ("agents",), str(AGENTS_SDK)),
}
RIGHT = "Make the bathroom 21.5 degrees warm."
WRONG = "On order 48213, please give the customer back just the shipping costs of 6.90 euros."
WARM = {"room": "bathroom", "celsius": 21.5}
REFUND = {"order_id": "48213", "amount": 69.0}


@contextmanager
def started(folder: Path, port: int) -> Iterator[ProxyProcess]:
    """Start the example's own configuration and policy, with a scorer that always returns 0.73."""
    text = (FOLDER / "proxy.yaml").read_text()
    text += f'calibrator: {{checkpoint: "fake:0.73"}}\nstore: sqlite:///{folder}/held.db\n'
    (folder / "policy.yaml").write_text((FOLDER / "policy.yaml").read_text())
    with ProxyProcess(folder, text, "--port", str(port)) as process:
        yield process


class Agent(WarmProcess):
    """A running agent and its output."""

    def __init__(self, program: str, folder: Path, question: str, **env: str) -> None:
        self._out, self._err = folder / "said", folder / "errors"
        self._was_read = 0
        with self._out.open("w") as stdout, self._err.open("w") as stderr:
            super().__init__(
                [question],
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=environment() | env,
                program=AGENTS[program],
            )

    def line(self) -> str:
        """Return the agent's next line, once printed, or the rest if the agent ends before."""
        until(lambda: "\n" in self._unread() or self.poll() is not None, within_s=60)
        line = self._unread().partition("\n")[0]
        self._was_read += len(line) + 1
        return line

    def end(self) -> tuple[str, str]:
        """Return the rest of the agent's output, and its errors."""
        self.wait(60)
        return self._unread(), self.errors()

    def errors(self) -> str:
        return self._err.read_text()

    def _unread(self) -> str:
        return self._out.read_text()[self._was_read :]


@dataclass
class Setting:
    """A user of a proxy with an own key, and the files of the user's agent."""

    program: str
    folder: Path  # of the agent
    proxy_folder: Path
    port: int

    @contextmanager
    def agent(self, question: str, **env: str) -> Iterator[Agent]:
        """Yield a running agent; it is killed if it has not ended by itself."""
        own = {
            "PINOCCHIO_URL": f"http://127.0.0.1:{self.port}/v1",
            "OPENAI_API_KEY": f"sk-{self.folder.name}",
            "AGENT_LEDGER": str(self.folder / "ledger.jsonl"),
            "AGENT_MEMORY": str(self.folder / "memory.json"),
            "AGENT_ASK_AGAIN_AFTER_S": "0.2",
            "PYTHONUNBUFFERED": "1",
        }
        agent = Agent(self.program, self.folder, question, **own | env)
        try:
            yield agent
        finally:
            agent.kill()
            agent.wait(20)

    def held(self, agent: Agent) -> str:
        """Return the review id that an agent waits for."""
        word, _, id = agent.line().partition(" ")
        assert word == "held:", agent.errors()
        return id.strip()

    def review(self, *arguments: str) -> str:
        """Run `pinocchio reviews ARGUMENTS` and return its output."""
        config = str(self.proxy_folder / "proxy.yaml")
        done = run_cli("reviews", *arguments, "--config", config)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, agent: Agent) -> str:
        """Wait for the agent to end and return the rest of its output."""
        out, err = agent.end()
        assert agent.returncode == 0, err
        return out.strip()

    def ledger(self) -> list[tuple[str, Any]]:
        """Return the tools that were run, with their arguments."""
        path = self.folder / "ledger.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(entry["tool"], entry["arguments"]) for entry in map(json.loads, lines)]


def calls_upstream(proxy: ProxyProcess) -> int:
    """Return how many calls the demo model has had."""
    return len([line for line in proxy.lines() if line.get("upstream") == "demo"])


@pytest.fixture(params=AGENTS)
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    python = AGENTS[name].python
    assert Path(python).exists(), f"{python} is missing: run scripts/setup_clients"
    return name


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProxyProcess, Path]]:
    """Yield a proxy for all tests that need not stop it."""
    folder = tmp_path_factory.mktemp("proxy")
    with started(folder, free_port()) as proxy:
        yield proxy, folder


@pytest.fixture
def proxy(served: tuple[ProxyProcess, Path]) -> ProxyProcess:
    return served[0]


@pytest.fixture
def setting(served: tuple[ProxyProcess, Path], program: str, tmp_path: Path) -> Setting:
    running, folder = served
    return Setting(program, tmp_path, folder, int(running.base_url.split(":")[2].split("/")[0]))


def test_a_call_that_is_not_gated_runs_at_once(setting: Setting) -> None:
    """A call that is not gated runs at once, and the agent ends with its result."""
    with setting.agent(RIGHT) as agent:
        assert setting.answer(agent).startswith("answer: The tool answered: done")
    assert setting.ledger() == [("set_room_temperature", WARM)]


def test_a_held_call_runs_once_it_is_released(setting: Setting, proxy: ProxyProcess) -> None:
    """A held call is shown to a reviewer with its tool and runs after its release."""
    before = calls_upstream(proxy)
    with setting.agent(WRONG) as agent:
        id = setting.held(agent)
        assert setting.ledger() == []
        facts = json.loads(setting.review("show", id, "--json"))
        assert (facts["queue"], facts["state"]) == ("approvals", "open")
        assert [call["name"] for call in facts["calls"]] == ["refund_order"]
        setting.review("approve", id)
        assert setting.answer(agent).startswith("answer: The tool answered: done")
    assert calls_upstream(proxy) - before == 2  # the call, and the reply to its result
    assert setting.ledger() == [("refund_order", REFUND)]


def test_an_agent_asks_again_when_the_proxy_says(setting: Setting) -> None:
    """An agent without a pause of its own asks again only after `retry_after_s`."""
    with setting.agent(WRONG, AGENT_ASK_AGAIN_AFTER_S="") as agent:
        id = setting.held(agent)
        time.sleep(2)  # of `retry_after_s`, which is 5 s
    config = str(setting.proxy_folder / "proxy.yaml")
    explanation = run_cli("explain", id, "--config", config).stdout
    assert "waits for a reviewer" in explanation
    assert "asked again" not in explanation


def test_a_rejected_call_never_runs(setting: Setting) -> None:
    """An agent whose call is rejected prints why and goes on without it."""
    with setting.agent(WRONG) as agent:
        setting.review("reject", setting.held(agent), "--note", "ten times too much")
        out = setting.answer(agent).splitlines()
    assert out[0] == "rejected: ten times too much"
    assert [line for line in out if line.startswith("answer: ")]
    assert setting.ledger() == []


def test_an_agent_killed_while_it_waits_gets_the_same_call(
    setting: Setting, proxy: ProxyProcess
) -> None:
    """An agent that is killed and restarted waits for the same review, and the call runs once."""
    before = calls_upstream(proxy)
    with setting.agent(WRONG) as agent:
        id = setting.held(agent)
        agent.send_signal(signal.SIGKILL)
    with setting.agent(WRONG) as agent:
        assert setting.held(agent) == id
        setting.review("approve", id)
        setting.answer(agent)
    assert calls_upstream(proxy) - before == 2
    assert setting.ledger() == [("refund_order", REFUND)]


@pytest.mark.parametrize("program", ["agent.py"])
def test_an_agent_that_crashes_with_the_call_in_its_hand_gets_it_again(
    setting: Setting, proxy: ProxyProcess
) -> None:
    """An agent that crashes in its tool asks again and gets the released call again."""
    before = calls_upstream(proxy)
    with setting.agent(WRONG, AGENT_LEDGER="/no/such/folder/ledger.jsonl") as agent:
        setting.review("approve", setting.held(agent))
        _, err = agent.end()
        assert "FileNotFoundError" in err  # it failed inside its tool
    (setting.folder / "memory.json").unlink()
    with setting.agent(WRONG) as agent:
        setting.answer(agent)
    assert calls_upstream(proxy) - before == 2
    assert setting.ledger() == [("refund_order", REFUND)]


def test_a_release_outlives_the_proxy(program: str, tmp_path: Path) -> None:
    """A held call runs once although the proxy restarts while the agent waits."""
    setting = Setting(program, tmp_path, tmp_path, free_port())
    with ExitStack() as running:
        with started(tmp_path, setting.port):
            agent = running.enter_context(setting.agent(WRONG))
            id = setting.held(agent)
        setting.review("approve", id)
        with started(tmp_path, setting.port) as proxy:
            setting.answer(agent)
            assert calls_upstream(proxy) == 1  # the reply to the result
    assert setting.ledger() == [("refund_order", REFUND)]


def test_a_release_outlives_a_reload(program: str, tmp_path: Path) -> None:
    """A held call runs once although the policy changes while the agent waits."""
    setting = Setting(program, tmp_path, tmp_path, free_port())
    with started(tmp_path, setting.port) as proxy, setting.agent(WRONG) as agent:
        id = setting.held(agent)
        policy = tmp_path / "policy.yaml"
        policy.write_text(policy.read_text() + "costs: {deliver: 1}\n")
        until(lambda: any(line["generation"] == 2 for line in proxy.lines()), within_s=30)
        setting.review("approve", id)
        setting.answer(agent)
        assert calls_upstream(proxy) == 2
    assert setting.ledger() == [("refund_order", REFUND)]


def test_a_call_is_released_once(setting: Setting) -> None:
    """An agent that asks the same question later is held again: an approval is for one call."""
    with setting.agent(WRONG) as agent:
        id = setting.held(agent)
        setting.review("approve", id)
        setting.answer(agent)
    (setting.folder / "memory.json").unlink(missing_ok=True)
    with sqlite3.connect(setting.proxy_folder / "held.db") as database:
        database.execute("UPDATE held_replies SET taken_at = taken_at - 61 WHERE id = ?", (id,))
    database.close()
    with setting.agent(WRONG) as agent:
        assert setting.held(agent) != id
    assert setting.ledger() == [("refund_order", REFUND)]


# Right and wrong calls of the demo, with a calibrator that knows which are right


@dataclass
class KnowingScorer(WordScorer):
    """A scorer that is sure of the demo's right calls and of text, unsure of its wrong calls."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [Score(value, value) for value in map(self._confidence, items)]

    def _confidence(self, item: Item) -> float:
        return 0.05 if any(_is_that(row, item) for row in WRONG_CALLS) else 0.97


def _is_that(row: DemoRow, item: Item) -> bool:
    values = [dump_json(value) for call in row.calls for value in call["arguments"].values()]
    names = [call["name"] for call in row.calls]
    return row.question in item.question and all(word in item.answer for word in names + values)


WRONG_CALLS = [row for row in rows() if row.calls and not row.correct]
FIRST_CALLS = [row for row in rows() if row.calls and row.id.endswith("/0")]


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    policy = (ROOT / "policies/packs/agent-tools.yaml").read_text()
    proxy = LiveProxy(
        "http://127.0.0.1:9/v1",
        tmp_path_factory.mktemp("knowing"),
        policy=policy,
        scorer=KnowingScorer(),
    )
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("row", FIRST_CALLS, ids=lambda row: row.question_id)
def test_right_calls_pass_and_wrong_ones_wait(knowing: LiveProxy, row: DemoRow) -> None:
    """With a perfect calibrator the pack for agents holds each wrong call and no other."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": row.question}],
        "tools": list(row.tools),
    }
    response = knowing.http.post("/v1/chat/completions", json=body)
    if row.correct:
        calls = response.json()["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in calls] == [c["name"] for c in row.calls]
    else:
        assert response.json()["error"]["code"] == "held_for_review"
        id = response.headers["x-pinocchio-review-id"]
        until(lambda: [held for held in held_rows(knowing) if held["id"] == id])
