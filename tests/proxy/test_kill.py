"""A proxy that is killed under load loses no held reply and hands none out twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running.killing import Killed
from tests.servers.faulty_upstream import FaultyUpstream

MORE = 20  # lives at most, for a reply to be handed out


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_instant(
    upstream: FaultyUpstream, store_url: str, tmp_path: Path, times: int
) -> None:
    """No reply is lost that a client was told about, none is released twice, no row is half
    written; what was handed out was marked so before. On a busy machine nothing may have been
    handed out after `times` lives: then some more."""
    killed = Killed(store_url, upstream.base_url, tmp_path, seed=times)
    lives = 0
    while lives < times or (not killed.handed and lives < times + MORE):
        killed.live_and_die()
        lives += 1
    assert killed.problems() == []
    print(f"killed {lives} times: {len(killed.told)} held, {len(killed.handed)} handed out")
    assert 0 < len(killed.handed) < len(killed.told)
