"""Codex's requests, as its sources write them, are scored and gated with the pack `coding-agent`.

Codex itself is not run. It uses HTTP once its WebSocket was refused
(`tests/proxy/optional/websockets/test_websocket_refusal.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies import pack_text
from tests.running.desk_client import API, DESK
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import EVENTS, FaultyUpstream, Received, Response

Json = dict[str, Any]
WAITS = "reply: wait, wait: 10m, otherwise: refusal"
AROUND = (
    "<environment_context>\n  <cwd>/srv/app</cwd>\n  <shell>bash</shell>\n</environment_context>"
)
SHELL: Json = {
    "type": "function",
    "name": "shell",
    "strict": False,
    "parameters": {"type": "object", "properties": {"command": {"type": "array"}}},
}
PATCH: Json = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}


def text(role: str, content: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": content}]}


REQUEST: Json = {
    "model": "gpt-6-sol",
    "instructions": "You are Codex, based on GPT-6. You are running as a coding agent in a CLI.",
    "input": [
        text("developer", "<permissions instructions>workspace-write</permissions instructions>"),
        text("user", "# AGENTS.md instructions for /srv/app\n\nRun the tests with pytest."),
        text("user", AROUND),
        text("user", "Run the tests and publish."),
    ],
    "tools": [SHELL, PATCH],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199a213",
}


class ScriptedResponses(FaultyUpstream):
    """Answers each request with the items that are set."""

    items: tuple[Json, ...] = ()

    def respond(self, request: Received) -> Response:
        response = {"id": "resp_1", "object": "response", "model": "gpt-6-sol", "output": []}
        events: list[Json] = [
            {"type": "codex.rate_limits", "rate_limits": {"primary": {"used_percent": 12.0}}},
            {"type": "response.created", "response": response | {"status": "in_progress"}},
        ]
        for index, item in enumerate(self.items):
            begun = {**item, "arguments": ""} if "arguments" in item else item
            events.append({"type": "response.output_item.added", "output_index": index} | {
                "item": begun
            })  # fmt: skip
            events.append({"type": "response.output_item.done", "output_index": index} | {
                "item": item
            })  # fmt: skip
        whole = response | {"status": "completed", "output": [*self.items]}
        events.append({"type": "response.completed", "response": whole})
        for number, event in enumerate(events):
            event["sequence_number"] = number
        parts = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
        return Response(parts, headers=EVENTS)


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedResponses]:
    with ScriptedResponses() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(
    upstream: ScriptedResponses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    folder: Path = tmp_path_factory.mktemp("proxy")
    policy = pack_text("coding-agent").replace(WAITS, "reply: refusal")
    proxy = LiveProxy(upstream.base_url, folder, policy=policy, **DESK)
    yield proxy
    proxy.stop()


def shell(*command: str) -> Json:
    arguments = json.dumps({"command": command, "workdir": "/srv/app"})
    return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell"} | {
        "arguments": arguments,
        "status": "completed",
    }


def patch(path: str) -> Json:
    update = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"
    return {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2"} | {
        "name": "apply_patch",
        "input": update,
        "status": "completed",
    }


def answer(proxy: LiveProxy, upstream: ScriptedResponses, *items: Json) -> Json:
    """Return the response in the last event that Codex gets, with the proxy's member."""
    upstream.items = items
    session = {"prompt_cache_key": json.dumps(items)}  # or an earlier held reply is found again
    reply = proxy.http.post("/v1/responses", json=REQUEST | session)
    assert reply.status_code == 200, reply.text
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
    [last] = [event for event in events if event["type"] == "response.completed"]
    response: Json = last["response"]
    return response


@pytest.mark.parametrize(
    "call",
    [shell("bash", "-lc", "pytest -q 2>&1 | tail -5"), patch("src/shop.py")],
    ids=["shell", "patch"],
)
def test_a_step_inside_the_project_passes_with_its_number(
    proxy: LiveProxy, upstream: ScriptedResponses, call: Json
) -> None:
    """Rate limits and commentary do not matter: the call is scored and delivered unchanged."""
    content = [{"type": "output_text", "text": "I will look first.", "annotations": []}]
    commentary = {"type": "message", "role": "assistant", "phase": "commentary", "content": content}
    last = answer(proxy, upstream, commentary, call)
    assert last["output"] == [commentary, call]
    assert (last["pinocchio"]["status"], last["pinocchio"]["action"]) == ("scored", "deliver")


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (shell("git", "push", "origin", "main"), "pushing-and-publishing"),
        (shell("bash", "-lc", "cat ~/.ssh/id_rsa"), "secrets-and-unreadable-commands"),
        (patch("/etc/hosts"), "outside-the-project"),
    ],
    ids=["push", "secret", "patch"],
)
def test_a_step_out_of_the_project_waits(
    proxy: LiveProxy, upstream: ScriptedResponses, call: Json, rule: str
) -> None:
    """The agent gets a message in place of the call, and the desk shows the user's words."""
    last = answer(proxy, upstream, call)
    [message] = last["output"]
    assert message["type"] == "message"
    rows = proxy.desk.get(f"{API}/reviews").json()["items"]
    [row] = [row for row in rows if row["policy"].startswith(f"coding-agent/{rule}@")]
    assert row["question"] == "Run the tests and publish."
