"""A Ray cluster of two machines, simulated by two sets of processes; a test can kill the second."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import warnings
from contextlib import suppress
from typing import Any

import httpx

from tests.running.live_proxy import ROOT, free_port, until

OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # otherwise one is written into the home folder
    "RAY_AUTH_MODE": "token",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),  # for all workers
    # A lost machine is noticed after 2 s instead of 10.
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
STORE_BYTES = 80 * 2**20
# Set before any test imports Ray, which reads them once.
os.environ.update({name: value for name, value in OURS.items() if name.startswith("RAY_")})


class RayCluster:
    """Two nodes of one core each; a context that ends all its processes."""

    def __init__(self) -> None:
        self.second: Any = None
        self.serve_port = free_port()  # Ray Serve keeps the port that it got first

    def __enter__(self) -> RayCluster:
        os.environ.update(OURS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own modules use what they deprecate
            from ray.cluster_utils import Cluster
        self._cluster = Cluster()
        try:
            self._add(include_dashboard=True, dashboard_port=free_port())
            self.restore_second()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def dashboard(self) -> str:
        """Return the URL to which `serve deploy` sends."""
        return f"http://{self._cluster.webui_url}"

    def replicas(self) -> list[str]:
        """Return the states of all replicas of Ray Serve; empty until every application runs."""
        headers = {"authorization": f"Bearer {OURS['RAY_AUTH_TOKEN']}"}
        reply = httpx.get(f"{self.dashboard}/api/serve/applications/", headers=headers, timeout=10)
        applications = reply.json()["applications"].values()
        if any(application["status"] != "RUNNING" for application in applications):
            return []
        return [
            replica["state"]
            for application in applications
            for deployment in application["deployments"].values()
            for replica in deployment["replicas"]
        ]

    def _add(self, **options: Any) -> Any:
        return self._cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, **options)

    def restore_second(self) -> None:
        """Add the second machine again if a test has removed it."""
        if self.second is None:
            self.second = self._add()

    def workers_of_second(self, title: str) -> list[int]:
        """Return the processes of the second machine whose title begins with this text."""
        return _workers(self.second, title)

    def workers(self, title: str) -> list[int]:
        """Return the processes of all machines whose title begins with this text."""
        return [pid for node in self._cluster.list_all_nodes() for pid in _workers(node, title)]

    def lose_second(self) -> None:
        """Send SIGKILL to every process of the second machine, as if its plug were pulled."""
        lost = _workers(self.second)
        self._cluster.remove_node(self.second, allow_graceful=False)
        self.second = None
        for pid in lost:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not set(lost) & {pid for pid, _, _ in _processes()})


def _workers(node: Any, title: str = "") -> list[int]:
    (raylet,) = node.all_processes["raylet"]
    parent = raylet.process.pid
    return [pid for pid, of, name in _processes() if of == parent and name.startswith(title)]


def _processes() -> list[tuple[int, int, str]]:
    """Return each living process with its parent and its title."""
    listed = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,stat=,args="], text=True)
    lines = [line.split(maxsplit=3) for line in listed.splitlines()]
    return [(int(pid), int(of), name) for pid, of, state, name in lines if state[0] != "Z"]
