"""A proxy that is killed under load loses no held reply and hands none out twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faulty_upstream import FaultyUpstream
from tests.killing import Killed


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_instant(
    upstream: FaultyUpstream, store_url: str, tmp_path: Path, times: int
) -> None:
    """No reply is lost that a client was told about, none is released twice, no row is half
    written; what was handed out was marked so before."""
    killed = Killed(store_url, upstream.base_url, tmp_path, seed=times)
    for _ in range(times):
        killed.live_and_die()
    assert killed.problems() == []
    print(f"killed {times} times: {len(killed.told)} held, {len(killed.handed)} handed out")
    assert 0 < len(killed.handed) < len(killed.told)
