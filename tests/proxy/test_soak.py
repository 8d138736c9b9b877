"""Mixed traffic with faults, for a long time: bounded memory, no lost hold, no error of ours.

    SOAK_MINUTES=30 scripts/test -m slow -n 0 -s tests/proxy/test_soak.py

Without the variable it takes two minutes. From ten minutes on, the proxy's bounded memories (10,000
streams' results, 10,000 openings of conversations) are full before the time begins, since filling
them is no leak. Traffic is replies, streams, calls, long conversations, large
replies, holds that are decided, polls, clients that leave, and an upstream that fails, hangs up,
breaks off and answers garbage.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

import httpx
import pytest

from tests.running.desk_client import TOKEN
from tests.running.live_proxy import ProxyProcess, question
from tests.servers.faulty_upstream import FaultyUpstream

MINUTES = float(os.environ.get("SOAK_MINUTES", "2"))
PAUSE_S = float(os.environ.get("SOAK_PAUSE_S", "0.002"))  # of each client, between requests
CLIENTS = 6
MOST_GROWTH = 1.03  # growth of the last third of the time over the first
WARM_UP_S = 20.0  # caches fill, and the allocator finds its size
FULL = 10_000 if MINUTES >= 10 else 0  # streams until the proxy remembers no more of them
POLICY = """
version: 1
name: soak
rules:
  - {name: unsure calls, when: {tools: ["*"]}, then: {hold: {queue: calls, reply: error}}}
  - {name: odd, when: {model: "say held*"}, then: {hold: {queue: odd}}}
default: deliver
"""
CONFIG = """
upstreams: {{any: {{base_url: "{url}", api_key: sk-x, timeout_s: 15}}}}
models: [{{match: "*", upstream: any}}]
calibrator: {{checkpoint: embedded, threads: 1}}
policies: policy.yaml
store: sqlite:///{folder}/store.db
limits: {{grace_s: 2}}
admin: {{port: 0, token: {token}}}
"""
TOOL = {"type": "function", "function": {"name": "send_money", "parameters": {}}}
FAILING = ("status-500", "status-429", "hang-up", "not-http", "cut", "broken-json", "html")
OF_UPSTREAM = {422, 429, 500, 502, 504}  # 422: a policy cannot read the reply


class Traffic:
    """What clients do, and what resulted."""

    def __init__(self, proxy: ProxyProcess, seed: int = 20261124) -> None:
        self.outcomes: Counter[str] = Counter()
        self.streams = 0
        self.is_warm = False
        self.held: set[str] = set()
        self.wrong: list[str] = []
        self._proxy, self._seed = proxy, seed
        self._url = f"{proxy.base_url}/chat/completions"
        self._is_over = threading.Event()
        self._lock = threading.Lock()

    def stop(self) -> None:
        self._is_over.set()

    def go_on(self, number: int) -> None:
        chance = random.Random(self._seed + number)
        with httpx.Client(trust_env=False, timeout=20) as client:
            while not self._is_over.is_set():
                self._ask(client, chance)
                time.sleep(PAUSE_S if self.is_warm else 0)

    def _ask(self, client: httpx.Client, chance: random.Random) -> None:
        text = f"{chance.random()} " + "and so on, " * chance.randrange(1, 60)
        kind = chance.choices(
            ["plain", "stream", "calls", "held", "large", "long", "failing", "leaving"],
            [30, 30, 6, 4, 2, 6, 12, 4],
        )[0]
        asked: dict[str, Any] = question(text, stream=kind == "stream" or chance.random() < 0.2)
        if kind == "calls":
            asked |= {"model": "tools", "tools": [TOOL]}
        elif kind == "held":
            asked["model"] = f"say held {text}"
        elif kind == "large":
            asked["model"] = "large"
        elif kind == "long":
            turn = {"role": "user", "content": text}
            asked["messages"] = [turn, {"role": "assistant", "content": "yes"}] * 40 + [turn]
        elif kind == "failing":
            asked["model"] = chance.choice(FAILING)
        elif kind == "leaving":
            self._leave(client, asked | {"model": "slow"})
            return
        self._note(kind, client.post(self._url, json=asked))

    def _leave(self, client: httpx.Client, asked: dict[str, Any]) -> None:
        try:
            client.post(self._url, json=asked, timeout=0.05)
        except httpx.TransportError:
            self.outcomes["left"] += 1

    def _note(self, kind: str, reply: httpx.Response) -> None:
        with self._lock:
            self.outcomes[f"{kind} {reply.status_code}"] += 1
            self.streams += "event-stream" in reply.headers.get("content-type", "")
            if (id := reply.headers.get("x-pinocchio-review-id")) is not None:
                self.held.add(id)
            is_ours = reply.headers.get("x-pinocchio-error") == "true"
            allowed = OF_UPSTREAM if kind == "failing" else {422} if id is not None else set()
            if reply.status_code >= 400 and reply.status_code not in allowed:
                self.wrong.append(f"{kind}: {reply.status_code} {reply.text[:200]}")
            if is_ours and reply.status_code == 500:
                self.wrong.append(f"{kind}: {reply.text[:200]}")


class Reviewer:
    """Decides on some of the held replies."""

    def __init__(self, proxy: ProxyProcess) -> None:
        found = re.search(r"review desk (\S+)", proxy.stdout())
        assert found is not None
        headers = {"authorization": f"Bearer {TOKEN}"}
        self._desk = httpx.Client(base_url=found[1], headers=headers, trust_env=False, timeout=20)
        self.decided: dict[str, str] = {}

    def decide(self) -> None:
        page = self._desk.get("/pinocchio/v1/reviews", params={"limit": 5}).json()
        for each in page["items"]:
            verdict = random.choice(["approve", "reject"])
            answer = self._desk.post(
                f"/pinocchio/v1/reviews/{each['id']}/verdict", json={"verdict": verdict}
            )
            if answer.status_code == 200:
                self.decided[each["id"]] = {"approve": "released", "reject": "rejected"}[verdict]

    def close(self) -> None:
        self._desk.close()


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(each for each in lines if each.startswith("VmRSS")).split()[1]) / 1_024


@pytest.mark.slow
def test_a_long_time_of_mixed_traffic(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """Memory stays bounded, no hold is lost, and every error is upstream's or intended."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    config = CONFIG.format(url=upstream.base_url, folder=tmp_path, token=TOKEN)
    samples: list[float] = []
    with ProxyProcess(tmp_path, config) as proxy, ThreadPoolExecutor(CLIENTS) as pool:
        traffic, reviewer = Traffic(proxy), Reviewer(proxy)
        working = [pool.submit(traffic.go_on, number) for number in range(CLIENTS)]
        try:
            began = ends = time.monotonic()
            while (not traffic.is_warm or time.monotonic() < ends) and not traffic.wrong:
                time.sleep(1)
                reviewer.decide()
                upstream.forget()  # its memory is not the proxy's
                if traffic.is_warm:
                    samples.append(memory_mb(proxy.pid))
                elif traffic.streams >= FULL and time.monotonic() > began + WARM_UP_S:
                    traffic.is_warm, ends = True, time.monotonic() + MINUTES * 60
        finally:
            traffic.stop()
            for each in working:
                each.result(60)
            reviewer.close()
    assert traffic.wrong == []
    third = len(samples) // 3
    first, last = mean(samples[:third]), mean(samples[-third:])
    total = sum(traffic.outcomes.values())
    print(f"{total:,} requests in {MINUTES:g} minutes, {len(traffic.held):,} held, ", end="")
    print(f"{len(reviewer.decided):,} decided; {first:.1f} MB in the first third, {last:.1f} after")
    print(dict(sorted(traffic.outcomes.items())))
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        states = dict(store.execute("select id, state from held_replies").fetchall())
    assert traffic.held <= states.keys()
    assert {id: states[id] for id in reviewer.decided} == reviewer.decided
    assert last <= first * MOST_GROWTH
