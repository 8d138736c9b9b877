"""Runs of agents stop in one process, are decided at the desk, and end in another process.

The examples of `examples/desk_approvals` run in real processes with the real frameworks. Of ten
calls, the proxy is unsure of five; the tools write into a file what is shipped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import StartProxy
from tests.node.runner import run_node
from tests.running.desk_client import DESK, decide, make_key
from tests.running.live_proxy import ROOT, Json, LiveProxy, environment
from tests.running.warm_cli import Program, run_warm

NODE = ROOT / "tests/node"
PYTHON = ROOT / ".venv-clients/newest/bin/python"
IMPORTED = (  # imports take seconds: done once for all programs, each of which runs at least twice
    *("agents", "langchain.agents", "langchain_openai", "pydantic_ai.models.openai"),
    *("openai.resources.chat", "openai.resources.responses"),
    *("pinocchio.langchain", "pinocchio.openai_agents", "pinocchio.pydantic_ai"),
)
WATCH = "version: 1\nname: runs\nmode: shadow\ndefault: deliver\n"
TIMEOUT_S = 120  # imports alone take many seconds on a busy machine
WAITING, DONE = "waiting for a reviewer", "All are shipped. p=0.92"
VERDICTS: dict[int, Json] = {
    6: {"verdict": "approve", "correct": True},
    7: {"verdict": "edit", "content": {"arguments": {"parcel": 70}}},
    8: {"verdict": "reject", "note": "this one is not ours"},
    9: {"verdict": "approve"},
    10: {"verdict": "approve"},
}
SHIPPED = {1, 2, 3, 4, 5, 6, 70, 9, 10}
RUNS = {
    "langgraph_run.py": SHIPPED,
    "agents_sdk_run.py": SHIPPED - {70},  # it cannot edit: the model is asked for a new call
    "pydantic_ai_run.py": SHIPPED,
    "desk_run.mjs": SHIPPED - {70},
}


OF_TWO = {"langgraph_run.py", "desk_run.mjs"}  # runs whose calls need two people


class _Shipper(BaseHTTPRequestHandler):
    """Ships parcels 1 to 5 with a high confidence and 6 to 10 with a low one, then ends."""

    asked: list[Json]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        results = [each for each in body["messages"] if each["role"] == "tool"]
        message: Json = {"role": "assistant", "content": DONE}
        if len(results) < 10:
            first, sure = len(results) + 1, "0.95" if len(results) < 5 else "0.2"
            calls = [_call(number) for number in range(first, first + 5)]
            message = {"role": "assistant", "content": f"p={sure}", "tool_calls": calls}
        reason = "stop" if len(results) >= 10 else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body_sent = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body_sent)))
        self.end_headers()
        self.wfile.write(body_sent)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _call(number: int) -> Json:
    function = {"name": "ship", "arguments": json.dumps({"parcel": number})}
    return {"id": f"call_{number}", "type": "function", "function": function}


@pytest.fixture
def shipper() -> Iterator[tuple[str, list[Json]]]:
    """Yield the URL of a model that ships parcels, and the requests that it received."""
    requests: list[Json] = []
    handler = type("Shipper", (_Shipper,), {"asked": requests})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", requests
    server.shutdown()
    server.server_close()


def run(program: str, folder: Path, url: str) -> str:
    """Return what an example prints when it runs in its own process from beginning to end."""
    env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-client", "MODEL": "shipper"}
    env["APPROVALS"] = "2" if program in OF_TWO else "1"
    if program.endswith(".mjs"):
        done = run_node(NODE, program, str(folder), **env)
    else:
        file = ROOT / "examples/desk_approvals" / program
        done = run_warm(
            [str(folder)],
            cwd=ROOT,
            env=environment() | env | {"PYTHONPATH": str(ROOT)},
            timeout_s=TIMEOUT_S,
            program=Program(file, IMPORTED, str(PYTHON)),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def decided(proxy: LiveProxy, id: str, number: int, program: str) -> None:
    """Decide as planned; where two people have to approve, bob does so after the admin."""
    verdict = VERDICTS[number]
    review = decide(proxy, id, **verdict).json()
    if program in OF_TWO and verdict["verdict"] != "reject":
        bob = make_key(proxy, "reviewer", "bob")
        approval = {"verdict": "approve", "revision": review["revision"]}
        assert review["state"] == decide(proxy, id, **approval).json()["state"] == "open"
        review = decide(proxy, id, bob, **approval).json()
    assert review["state"] in ("released", "rejected")


@pytest.mark.parametrize("program", RUNS)
def test_a_run_ends_in_another_process_as_the_desk_decided(
    program: str, start_proxy: StartProxy, shipper: tuple[str, list[Json]], tmp_path: Path
) -> None:
    """Sure calls run at once, the others wait with their confidence; nothing is shipped twice."""
    url, requests = shipper
    proxy = start_proxy(
        policy=WATCH.replace("runs", program.partition("_")[0]), upstream={"base_url": url}, **DESK
    )
    folder = tmp_path / "run"
    shipped = folder / "shipped.txt"
    assert run(program, folder, proxy.base_url) == WAITING
    assert sorted(map(int, shipped.read_text().split())) == [1, 2, 3, 4, 5]
    reviews = proxy.desk.get("/pinocchio/v1/reviews").json()["items"]
    waiting = {each["calls"][0]["arguments"]["parcel"]: each for each in reviews}
    assert sorted(waiting) == sorted(VERDICTS)
    assert {each["confidence"] for each in reviews} == {0.2}
    review = proxy.desk.get(f"/pinocchio/v1/reviews/{waiting[6]['id']}").json()
    assert [turn["role"] for turn in review["conversation"]].count("tool") == 5
    for number in list(VERDICTS)[:4]:
        decided(proxy, waiting[number]["id"], number, program)
    if program == "agents_sdk_run.py":  # the same for all, but a process takes seconds
        assert run(program, folder, proxy.base_url) == WAITING, "the tenth is open"
        assert len(shipped.read_text().split()) == 5
    decided(proxy, waiting[10]["id"], 10, program)
    assert run(program, folder, proxy.base_url) == DONE
    found = [int(line) for line in shipped.read_text().split()]
    assert sorted(found) == sorted(RUNS[program])
    assert len(proxy.desk.get("/pinocchio/v1/reviews").json()["items"]) == 0
    assert len(requests) == 3, "no question was asked twice"
    results = [each["content"] for each in requests[-1]["messages"] if each["role"] == "tool"]
    assert any("this one is not ours" in str(each) for each in results)
