"""A proxy with several workers: `pinocchio serve` as a person starts it, and clients of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.running.live_proxy import ProxyProcess, until

TOKEN = "an-admin-token-that-nobody-guesses"
CONFIG = """
upstreams: {{any: {{base_url: "{url}", api_key: sk-x}}}}
models: [{{match: "*", upstream: any}}]
calibrator: {{checkpoint: "{checkpoint}"}}
policies: {policy}
store: {store}
limits: {{drain_s: {drain_s}, grace_s: 10}}
admin: {{port: 0, token: {token}}}
workers: {workers}
{more}
"""


class Workers:
    """The workers of one proxy."""

    def __init__(
        self,
        folder: Path,
        upstream_url: str,
        *,
        policy: str = "observe",
        workers: str = "2",
        drain_s: float = 0,
        store: str = "",
        checkpoint: str = "fake:0.7",
        more: str = "",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        if policy != "observe":
            (folder / "policy.yaml").write_text(policy)
            policy = "policy.yaml"
        config = CONFIG.format(
            url=upstream_url,
            policy=policy,
            store=store or f"sqlite:///{folder}/store.db",
            token=TOKEN,
            workers=workers,
            checkpoint=checkpoint,
            drain_s=drain_s,
            more=more,
        )
        self.process = ProxyProcess(folder, config)
        self.root = self.process.base_url.removesuffix("/v1")
        self._clients: list[httpx.Client] = []

    @property
    def path(self) -> Path:
        return self.folder / "proxy.yaml"

    def readyz(self) -> dict[str, Any]:
        readiness: dict[str, Any] = httpx.get(f"{self.root}/readyz", trust_env=False).json()
        return readiness

    def client(self, worker: int) -> httpx.Client:
        """Return a client whose connection belongs to this worker for as long as it is kept."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            limits = httpx.Limits(max_connections=1)
            client = httpx.Client(
                base_url=self.root,
                trust_env=False,
                timeout=20,
                limits=limits,
                headers={"authorization": "Bearer sk-client"},
            )
            self._clients.append(client)
            if client.get("/readyz").json()["worker"] == worker:
                return client
        raise AssertionError(f"worker {worker} takes no connection")

    def both(self) -> tuple[httpx.Client, httpx.Client]:
        return self.client(0), self.client(1)

    @property
    def desk(self) -> httpx.Client:
        found = re.search(r"review desk (\S+)", self.process.stdout())
        assert found is not None
        client = httpx.Client(
            base_url=found[1],
            trust_env=False,
            timeout=20,
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        self._clients.append(client)
        return client

    def pids(self) -> list[int]:
        """Return the pids of the supervisor's children, in the order of their start."""
        return children_of(self.process.pid)

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.process.__exit__()


def children_of(pid: int) -> list[int]:
    """Return the pids of the running children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def running(folder: Path, upstream_url: str, **options: Any) -> Iterator[Workers]:
    """Yield a proxy with several workers; check that none outlives the block."""
    workers = Workers(folder, upstream_url, **options)
    try:
        yield workers
    finally:
        pids = workers.pids()
        workers.stop()
        until(lambda: not any(map(is_alive, pids)))


def kill(pid: int) -> None:
    os.kill(pid, 9)
