"""Small pages become huge ones where that costs nobody memory."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import huge_pages
from proxy.huge_pages import HUGE_PAGE, HUGE_PAGES, join_pages

PROGRAM = """
import os
from proxy.huge_pages import join_pages
def huge():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
kept = [str(number) * 20 for number in range(500_000)]
before, joined, after = huge(), join_pages(), huge()
print(joined, after["AnonHugePages:"] - before["AnonHugePages:"], after["Rss:"] - before["Rss:"])
if os.fork() == 0:
    print(join_pages(), flush=True)
    os._exit(0)
os.wait()
"""


def _can_join() -> bool:
    """Whether this machine joins pages when asked: Linux 6.1, where its owner has not said no."""
    if not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(encoding="ascii"):
        return False
    major, minor = map(int, platform.release().split(".")[:2])
    if (major, minor) < (6, 1) or not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    with open("/proc/self/pagemap", "rb", buffering=0) as entries:
        entries.seek(id(entries) // mmap.PAGESIZE * 8)
        return bool(int.from_bytes(entries.read(8), sys.byteorder) >> 56 & 1)


def test_what_is_ours_alone_is_joined_and_takes_no_more_memory() -> None:
    if not _can_join():
        pytest.skip("this kernel joins no pages")
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    own, child = found.stdout.splitlines()
    joined, huge_kb, more_kb = map(int, own.split())
    assert joined > 10
    assert huge_kb >= joined * HUGE_PAGE // 1_024 * 0.9
    assert more_kb < joined * HUGE_PAGE // 1_024 * 0.25
    assert int(child) < joined / 2, "what a child shares with its parent was copied"


@pytest.mark.parametrize("said", ["always madvise [never]\n", None])
def test_nothing_is_joined_where_it_is_turned_off_or_unknown(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enabled"
    if said is not None:
        path.write_text(said, encoding="ascii")
    monkeypatch.setattr(huge_pages, "HUGE_PAGES", path)
    assert join_pages() == 0
