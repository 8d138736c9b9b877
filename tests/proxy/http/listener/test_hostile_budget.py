"""What a hostile client or upstream may cost other clients: a short `scripts/bench hostile`.

The budget is 50 ms and 100 MB; here the machine is shared with other tests, so that latency is
compared by the proxy's own CPU time and with a margin, and memory as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
BENCHES = ROOT / "scripts" / "benches"
ATTACKS = ["bombs", "upstream: calls"]  # one of a client and one of an upstream
FURTHER = ["slow heads", "connections", "slow bodies", "odd bodies"]
MOST_MB = 100.0
MOST_OWN_MS = 300.0  # other work on the machine counts in it


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Return the cost of each selected attack, by its name."""
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] for item in items]
    places = (BENCHES, BENCHES / "peers", BENCHES / "hostile")
    command = [sys.executable, str(BENCHES / "hostile" / "bench_hostile.py"), "--json"]
    done = subprocess.run(
        [*command, "--rounds", "1", "--seconds", "1", "--only", *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["attacks"]}


@pytest.mark.parametrize(
    "name", [*ATTACKS, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)]
)
def test_an_attack_costs_the_others_little(measured: dict[str, dict[str, Any]], name: str) -> None:
    found = measured[name]
    print(json.dumps(found))
    _, _, more_mb = found["peak_mb"]
    _, _, more_ms = found["own"]
    assert found["failed"] == 0
    assert more_mb < MOST_MB
    assert more_ms < MOST_OWN_MS
