"""Many streams at once: the memory that each takes, and that all of them end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.running.live_proxy import ProxyProcess, members_in, question
from tests.servers.faulty_upstream import FaultyUpstream

MOST_KB = 150  # kB of each stream
CALLS = """
version: 1
name: p
rules: [{name: c, when: {tools: ["*"]}, then: {hold: {queue: q}}}]
default: deliver
"""
PARTS = 50  # streams that begin at a time


def memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def streams_of(proxy: ProxyProcess, upstream: FaultyUpstream, count: int) -> float:
    """Return how many kB each of the waiting streams takes; then let all of them end."""
    body = json.dumps(question("p=0.7 " + "x" * 1_500, "gated", stream=True)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )

    async def begin() -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(head.encode() + body)
        return await reader.readuntil(b"data:"), reader, writer

    warm = [await begin() for _ in range(20)]
    before = memory_kb(proxy.pid)
    streams = []
    for _ in range(count // PARTS):
        streams += await asyncio.gather(*(begin() for _ in range(PARTS)))
    await asyncio.sleep(0.5)
    each = (memory_kb(proxy.pid) - before) / len(streams)
    for request in upstream.requests:
        request.proceed()
    for begun, reader, writer in (*warm, *streams):
        whole = begun + await reader.read()
        writer.close()
        assert members_in(whole)[0]["confidence"] == 0.7
    return each


@pytest.mark.parametrize(
    "count", [200, pytest.param(1_000, marks=pytest.mark.slow)], ids=["some", "a thousand"]
)
@pytest.mark.parametrize("policy", ["observe", "policy.yaml"])
def test_what_a_stream_takes(
    tmp_path: Path, upstream: FaultyUpstream, policy: str, count: int
) -> None:
    """Each of many waiting streams takes at most `MOST_KB` of memory."""
    (tmp_path / "policy.yaml").write_text(CALLS)
    config = (
        f"upstreams: {{any: {{base_url: '{upstream.base_url}', api_key: sk-x}}}}\n"
        "models: [{match: '*', upstream: any}]\ncalibrator: {checkpoint: 'fake:0.7'}\n"
        f"policies: {policy}\nstore: sqlite:///{tmp_path}/store.db\nadmin: {{port: 0}}\n"
        "limits: {stream_wait_ms: 20000}\n"  # so that all end at once, on a busy machine
    )
    with ProxyProcess(tmp_path, config) as proxy:
        each = asyncio.run(streams_of(proxy, upstream, count))
    print(f"{each:.0f} kB for each of {count} streams, policy {policy}")
    assert each < MOST_KB
