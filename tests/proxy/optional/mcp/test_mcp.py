"""`pinocchio mcp` with the official SDK's client over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.running.desk_client import DESK, HOLD, desk_url, held_id, make_key
from tests.running.live_proxy import ROOT, LiveProxy, environment, run_cli

mcp = pytest.importorskip("mcp")
from mcp import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

Json = dict[str, Any]
QUESTION = "What is the capital of France?"
RULES = "Guarantee: 10 years on frames, 2 years on all other parts."
READ_S = 60.0  # it starts in two seconds on an idle machine


@pytest.fixture(scope="module", name="folder")
def folder_with_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "proxy.yaml").write_text("calibrator: {checkpoint: 'fake:0.73'}\n")
    return folder


@asynccontextmanager
async def connected(folder: Path, *options: str, **env: str) -> Any:
    """Yield a client of a server in its own process, as a desktop app starts it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pinocchio", "mcp", "--config", str(folder / "proxy.yaml"), *options],
        env=environment() | env,
        cwd=str(ROOT),
    )
    with (folder / "stderr").open("w") as errors:
        transport = stdio_client(server, errlog=errors)
        async with Client(transport, read_timeout_seconds=READ_S) as client:
            yield client


async def call(client: Any, name: str, /, **arguments: Any) -> Any:
    """Return the structured answer of a tool; fail if it reports an error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    found = result.structured_content
    return found["result"] if set(found) == {"result"} else found


async def refused(client: Any, name: str, /, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text


async def tools_of(client: Any) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def test_without_a_key_there_are_scores_and_no_desk(folder: Path) -> None:
    """Without a key there are scores and no desk; a reply alone has no number."""

    async def run() -> None:
        async with connected(folder) as client:
            assert await tools_of(client) == {"score_reply", "score_call"}
            answer = await call(client, "score_reply", reply="Paris", question=QUESTION)
            scored = {"confidence": 0.73, "calibrator": "fake:0.73"}
            known = {"act": "answer", "needs_facts": False, "familiar": True}
            assert answer == scored | known | {"basis": ["likeness"]}
            messages = [{"role": "user", "content": QUESTION}]
            arguments = {"city": "Paris"}
            answer = await call(
                client, "score_call", tool="lookup", arguments=arguments, messages=messages
            )
            assert answer["confidence"] == 0.73
            assert "a reply alone" in await refused(client, "score_reply", reply="Paris")
            assert "more than" in await refused(
                client, "score_reply", reply="p" * 1_000_001, question=QUESTION
            )

    asyncio.run(run())
    log = (folder / "stderr").read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [(line["event"], line["tool"], line.get("confidence")) for line in lines] == [
        ("mcp", "score_reply", 0.73),
        ("mcp", "score_call", 0.73),
        ("mcp_refused", "score_reply", None),
        ("mcp_refused", "score_reply", None),
    ]
    assert "Paris" not in log


def test_a_score_says_what_it_is_based_on(tmp_path: Path) -> None:
    """The shipped calibrator gives a reply that contradicts its rules a low number and why."""
    (tmp_path / "proxy.yaml").write_text("{}\n")
    rules = {"role": "system", "content": RULES}
    messages = [rules, {"role": "user", "content": "How long is the guarantee on frames?"}]

    async def run() -> Json:
        async with connected(tmp_path) as client:
            reply = "The guarantee on frames is 25 years."
            found: Json = await call(client, "score_reply", reply=reply, messages=messages)
            return found

    answer = asyncio.run(run())
    assert answer["confidence"] < 0.5
    assert (answer["basis"], answer["support"] < 0.5) == (["context"], True)
    assert answer["unsupported"][0]["words"] == ["25"]
    assert "25" in answer["because"][0]


def test_a_reviewer_lists_the_queue_and_decides(folder: Path, start_proxy: StartProxy) -> None:
    """A reviewer lists the queue and decides once: a second decision is
    refused with the first's name, and the record names the key's owner.
    """
    proxy: LiveProxy = start_proxy(policy=HOLD.replace("desk", "mcp"), **DESK)
    first, second = held_id(proxy, "p=0.1"), held_id(proxy, "p=0.2")
    env = {"PINOCCHIO_REVIEWER_KEY": make_key(proxy, "reviewer", "alice")}

    async def run() -> None:
        async with connected(folder, "--desk", desk_url(proxy), **env) as client:
            assert {"list_queue", "read_review", "decide"} < await tools_of(client)
            listed = await call(client, "list_queue", queue="seniors")
            assert [each["id"] for each in listed] == [first, second]
            assert (await call(client, "read_review", id=first))["confidence"] == 0.1
            decision = await call(client, "decide", id=first, verdict="approve", correct=True)
            assert (decision["state"], decision["decided_by"]) == ("released", "alice")
            decision = await call(client, "decide", id=second, verdict="reject", note="wrong city")
            assert decision["state"] == "rejected"
            assert "alice" in await refused(client, "decide", id=first, verdict="reject")
            assert "no id" in await refused(client, "decide", id="../keys", verdict="approve")
            assert await call(client, "list_queue") == []

    asyncio.run(run())


def test_wrong_key_and_no_desk_are_errors(folder: Path, start_proxy: StartProxy) -> None:
    """A wrong key and a missing desk give sentences that a model can pass on."""
    from proxy.optional.mcp.desk import DeskClient, DeskError

    proxy = start_proxy(policy=HOLD.replace("desk", "mcp"), **DESK)
    for url, words in ((desk_url(proxy), "key"), ("http://127.0.0.1:9", "no review desk answers")):
        with closing(DeskClient(url, "wrong")) as desk, pytest.raises(DeskError, match=words):
            desk.queue(None, 5)


def test_an_engine_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text("calibrator: {engine: {kind: scorer, base_url: 'http://127.0.0.1:9'}}\n")
    done = run_cli("mcp", "--config", str(path))
    assert done.returncode == 2
    assert "scores in its own process" in done.stderr
