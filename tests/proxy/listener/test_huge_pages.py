"""Small pages become huge ones where that costs nobody memory."""

from __future__ import annotations

import json
import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy import huge_pages
from proxy.huge_pages import HUGE_PAGE, HUGE_PAGES, join_pages
from tests.running.live_proxy import ROOT, environment, until

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
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    own, child = found.stdout.splitlines()
    joined, huge_kb, more_kb = map(int, own.split())
    assert joined > 10
    assert huge_kb >= joined * HUGE_PAGE // 1_024 * 0.9
    assert more_kb < joined * HUGE_PAGE // 1_024 * 0.25
    assert int(child) < joined / 2, "what a child shares with its parent was copied"


def test_a_proxy_that_is_ready_has_joined_pages(tmp_path: Path) -> None:
    if not _can_join():
        pytest.skip("this kernel joins no pages")
    store = f"sqlite:///{tmp_path}/record.db"
    config = {
        "upstreams": {"demo": {"demo": True}},
        "models": [{"match": "*", "upstream": "demo"}],
        "calibrator": {"checkpoint": "fake:0.5"},
        "store": store,
    }
    path, said = tmp_path / "proxy.yaml", tmp_path / "stderr"
    path.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pinocchio", "serve", "--config", str(path), "--port", "0"]
    env = environment() | {"PINOCCHIO_LOG_LEVEL": "debug"}
    with (
        said.open("w") as stderr,
        subprocess.Popen(command, stdout=stderr, stderr=stderr, cwd=ROOT, env=env) as proxy,
    ):
        try:
            until(lambda: "pages_joined" in said.read_text(encoding="utf-8"), 60)
            kept = Path(f"/proc/{proxy.pid}/smaps_rollup").read_text(encoding="ascii")
        finally:
            proxy.terminate()
    [line] = [each for each in said.read_text().splitlines() if "pages_joined" in each]
    assert (told := json.loads(line))["megabytes"] == 2 * told["count"] > 10
    [huge] = [each for each in kept.splitlines() if each.startswith("AnonHugePages:")]
    assert int(huge.split()[1]) > 10_000


def test_nothing_is_said_where_nothing_was_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = [3, 0]
    monkeypatch.setattr(huge_pages, "AGAIN_S", 0.0)
    monkeypatch.setattr(huge_pages, "join_pages", lambda: joined.pop(0))
    with capture_logs() as lines:
        huge_pages.join_pages_by_and_by()
        until(lambda: not joined)
    assert [(line["event"], line["count"]) for line in lines] == [("pages_joined", 3)]


@pytest.mark.parametrize("said", ["always madvise [never]\n", None])
def test_nothing_is_joined_where_it_is_turned_off_or_unknown(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enabled"
    if said is not None:
        path.write_text(said, encoding="ascii")
    monkeypatch.setattr(huge_pages, "HUGE_PAGES", path)
    assert join_pages() == 0
