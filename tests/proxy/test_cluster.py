"""Three proxies, two scorers and PostgreSQL, each killed in turn: nothing may be lost."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty

import httpx
import pytest

from tests.running.databases import execute
from tests.running.killing import KEY, REVIEW_ID, TOOL, Killed
from tests.running.live_proxy import ROOT, ProxyProcess, environment, free_port, question, until
from tests.running.postgres import PostgresServer
from tests.running.warm_cli import WarmProcess
from tests.servers.faulty_upstream import FaultyUpstream

PROXIES, SCORERS, CLIENTS = 3, 2, 6
TOKEN = "an-admin-token-that-nobody-guesses"
PAUSE_S = 0.2  # pause before a client tries again, shorter than any client library's
HOLD = """
version: 1
name: hold
on_score_error: hold
rules: [{name: sure, when: {confidence: {at_least: 0.9}}, then: deliver}]
default: {hold: {expires: 1h}}
"""
CONFIG = """
upstreams: {{faulty: {{base_url: "{upstream}"}}}}
models: [{{match: "*", upstream: faulty}}]
calibrator: {{checkpoint: "fake:0.1", engine: {{kind: scorer, base_url: "{scorer}"}}}}
policies: ../hold.yaml
store: "{store}"
admin: {{port: 0, token: {token}}}
"""


class Scorer:
    """`pinocchio serve --scorer-only`, on a port that stays the same."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.port = folder, free_port()
        (folder / "scorer.yaml").write_text('calibrator: {checkpoint: "fake:0.1"}\n')
        self.start()

    def start(self) -> None:
        path = str(self._folder / "scorer.yaml")
        command = ["serve", "--scorer-only", "--config", path, "--port", str(self.port)]
        with (self._folder / "log").open("a") as log:
            self._process = WarmProcess(
                command, stdout=log, stderr=log, cwd=ROOT, env=environment()
            )
        until(self._answers, within_s=60)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)


class Proxy:
    """One of the proxies; each time it starts again, it has other ports."""

    def __init__(self, folder: Path, config: str) -> None:
        folder.mkdir()
        self._folder, self._config = folder, config
        self.start()

    def start(self) -> None:
        self._process = ProxyProcess(self._folder, self._config)
        self.base_url = self._process.base_url
        found = re.search(r"review desk (\S+)", self._process.stdout())
        assert found is not None
        self.desk_url = found[1]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)


class Cluster(Killed):
    """Clients that each ask one proxy and move to the next one when that is gone, and a reviewer
    who decides at any desk that answers.

    `broken` counts lost connections, by client and kill.
    """

    def __init__(self, postgres: PostgresServer, upstream: str, folder: Path, seed: int) -> None:
        url = postgres.new_database()
        super().__init__(url, upstream, folder, seed)
        (folder / "hold.yaml").write_text(HOLD)
        self.url = url
        self.scorers = [Scorer(folder / f"scorer{number}") for number in range(SCORERS)]
        self.proxies = []
        for number in range(PROXIES):
            scorer = f"http://127.0.0.1:{self.scorers[number % SCORERS].port}"
            config = CONFIG.format(upstream=upstream, scorer=scorer, store=url, token=TOKEN)
            self.proxies.append(Proxy(folder / f"proxy{number}", config))
        self._postgres = postgres
        self.broken: Counter[tuple[int, int]] = Counter()
        self.kills = 0
        self._is_over = threading.Event()

    @contextmanager
    def under_load(self) -> Iterator[None]:
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            done = [pool.submit(self._go_on, number) for number in range(CLIENTS)]
            done.append(pool.submit(self._review_all))
            try:
                yield
            finally:
                self._is_over.set()
            for each in done:
                each.result()

    def die(self, kill: Callable[[], None], start: Callable[[], None]) -> None:
        """Kill one part, and start it again after a while."""
        time.sleep(self._random.uniform(0.2, 0.6))
        self.kills += 1
        kill()
        time.sleep(self._random.uniform(0.1, 0.5))
        start()
        before = self._seen()
        until(lambda: self._seen() > before, within_s=30)  # it works again

    def _seen(self) -> int:
        return len(self.told)

    def close(self) -> None:
        for part in (*self.proxies, *self.scorers):
            part.kill()

    # --- clients and the reviewer -----------------------------------------------------------------

    def _go_on(self, client: int) -> None:
        at = client % PROXIES
        with httpx.Client(trust_env=False, timeout=20, headers=KEY) as http:
            while not self._is_over.is_set():
                text = f"{next(self._numbers)} p=0.1"
                is_reviewed, is_done = int(text.split()[0]) % 2 == 0, False
                while not is_done and not self._is_over.is_set():
                    try:
                        is_done = self._answered(http, self.proxies[at].base_url, text)
                        is_done = is_done or (not is_reviewed and bool(self.told[text]))
                    except httpx.TransportError:
                        self.broken[client, self.kills] += 1
                        at = (at + 1) % PROXIES
                        time.sleep(PAUSE_S)

    def _answered(self, http: httpx.Client, base_url: str, text: str) -> bool:
        """Return whether the reply was handed out."""
        body = question(text, "tools", tools=[TOOL])
        reply = http.post(f"{base_url}/chat/completions", json=body)
        if reply.status_code == 503:  # no store: nothing was held, and the client gets that error
            assert reply.json()["error"]["code"] == "store_unavailable", reply.text
            time.sleep(PAUSE_S)
            return False
        id = reply.headers[REVIEW_ID]
        if reply.status_code == 200:
            self.handed[text].add(id)
            return True
        assert reply.status_code == 422, reply.text
        if id not in self.told[text] and int(text.split()[0]) % 2 == 0:
            self._to_review.put(id)
        self.told[text].add(id)
        time.sleep(0.02)
        return False

    def _review_all(self) -> None:
        with httpx.Client(
            trust_env=False, timeout=20, headers={"authorization": f"Bearer {TOKEN}"}
        ) as http:
            while not self._is_over.is_set():
                try:
                    id = self._to_review.get(timeout=0.05)
                except Empty:
                    continue
                while not self._is_over.is_set() and not self._approved(http, id):
                    time.sleep(PAUSE_S)

    def _approved(self, http: httpx.Client, id: str) -> bool:
        desk = self._random.choice(self.proxies).desk_url
        verdict = {"verdict": "approve", "correct": True}
        try:
            reply = http.post(f"{desk}/pinocchio/v1/reviews/{id}/verdict", json=verdict)
        except httpx.TransportError:
            return False
        if reply.status_code == 200:
            self.is_released.add(id)
        else:
            assert reply.status_code == 503, reply.text
        return reply.status_code == 200

    # --- afterwards -------------------------------------------------------------------------------

    def lost_verdicts(self) -> set[str]:
        """Return the confirmed verdicts whose reply has no label."""
        query = (
            "SELECT held_replies.id FROM held_replies "
            "JOIN verdicts ON verdicts.request_id = held_replies.request_id"
        )
        return self.is_released - {id for (id,) in execute(self.url, query)}

    def twice(self) -> list[str]:
        """Return the requests whose reply went out under two ids, or is not marked so."""
        return self._twice({row["id"]: row for row in self._rows()})

    def lost(self) -> list[str]:
        return self._lost({row["id"]: row for row in self._rows()})


@pytest.mark.parametrize(
    ("proxies", "scorers", "rounds"),
    [(1, 1, 1), pytest.param(PROXIES, SCORERS, 3, marks=pytest.mark.slow)],
    ids=["one of each", "each, three times"],
)
def test_parts_that_die_lose_nothing(
    upstream: FaultyUpstream, tmp_path: Path, proxies: int, scorers: int, rounds: int
) -> None:
    """When parts die, no held reply and no verdict is lost, nothing is released
    twice, and a client loses at most the one connection to the part that died.
    """
    with PostgresServer(is_durable=True) as postgres:
        cluster = Cluster(postgres, upstream.base_url, tmp_path, seed=rounds)
        try:
            with cluster.under_load():
                until(lambda: len(cluster.told) > CLIENTS, within_s=30)
                for _ in range(rounds):
                    for proxy in cluster.proxies[:proxies]:
                        cluster.die(proxy.kill, proxy.start)
                    for scorer in cluster.scorers[:scorers]:
                        cluster.die(scorer.kill, scorer.start)
                    cluster.die(postgres.kill, postgres.start_again)
                    until(lambda: cluster.handed, within_s=30)
            print(
                f"{cluster.kills} kills: {len(cluster.told)} requests held, "
                f"{len(cluster.is_released)} released, {len(cluster.handed)} handed out, "
                f"{sum(cluster.broken.values())} connections lost"
            )
            assert cluster.lost() == []
            assert cluster.lost_verdicts() == set()
            assert cluster.twice() == []
            assert cluster.handed
            assert max(cluster.broken.values(), default=0) <= 1, cluster.broken
        finally:
            cluster.close()
