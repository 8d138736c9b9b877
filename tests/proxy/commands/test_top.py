"""`pinocchio top` on a running proxy: printed once, and in a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proxy.commands.app import cli
from proxy.commands.top import Change, DeskSnapshot
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, HOLD, TOKEN, desk_url, make_key
from tests.running.live_proxy import LiveProxy, environment, free_port, run_cli
from tests.servers.faulty_upstream import FaultyUpstream


def top(url: str, token: str = TOKEN, every: float = 0.2) -> Result:
    environment = {"PINOCCHIO_ADMIN_TOKEN": token, "COLUMNS": "140"}
    arguments = ["top", "--once", "--every", str(every), "--url", url]
    return CliRunner().invoke(cli, arguments, env=environment)


@contextmanager
def asking_on(proxy: LiveProxy) -> Iterator[None]:
    """Keep a client asking within this context."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(0.05):
            proxy.ask("p=0.9 again")

    thread = threading.Thread(target=ask)
    thread.start()
    yield
    is_over.set()
    thread.join()


def row(picture: str, *begins: str) -> list[str]:
    """Return the cells of the first line that has these cells in sequence."""
    for line in picture.splitlines():
        if found := re.search(r"\s{2,}".join(map(re.escape, begins)), line):
            return re.split(r"\s{2,}", line[found.start() :].strip())
    raise AssertionError(f"no {begins} in\n{picture}")


def test_one_picture_has_all_of_it(start_proxy: StartProxy) -> None:
    """One picture has requests, times, confidences, decisions, holds and errors."""
    proxy = start_proxy(policy=HOLD.replace("desk", "seen"), **DESK)
    proxy.ask("p=0.2 first\x1b[2J\nof them")
    proxy.ask("p=0.9")
    proxy.ask("?", "status-500")
    with asking_on(proxy):
        done = top(desk_url(proxy), every=1.0)
    assert done.exit_code == 0, done.stderr
    picture = done.stdout
    assert "generation 1" in picture
    assert "words@1" in picture
    a_second, so_far = row(picture, "chat", "faulty", "2xx")[3:5]
    assert float(a_second) > 0
    assert int(so_far) > 2
    assert row(picture, "chat", "faulty", "5xx")[3:5] == ["0.0", "1"]
    assert re.fullmatch(r"[\d.]+ ms", row(picture, "upstream's")[1])
    assert re.search(r"Confidence  \d+ replies, mean 0\.\d\d\n.*█", picture)
    assert float(row(picture, "seen/default", "hold", "enforce")[3]) > 0
    assert int(row(picture, "seniors", "hold")[2]) >= 2
    assert row(picture, "0.2000", "seniors", "ok")[3] == r"p=0.2 first\x1b[2J of them"
    assert row(picture, "no number: skipped upstream_status")[1:] == ["0", "1"]


def test_without_a_terminal_it_ends_by_itself(start_proxy: StartProxy) -> None:
    """In a pipe one picture is printed, as with `--once`."""
    proxy = start_proxy(policy=HOLD.replace("desk", "seen"), **DESK)
    arguments = ["top", "--every", "0.1", "--url", desk_url(proxy)]
    done = run_cli(*arguments, PINOCCHIO_ADMIN_TOKEN=TOKEN, COLUMNS="140")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("generation 1") == 1


def test_a_desk_that_gives_nothing_is_told(start_proxy: StartProxy) -> None:
    """No server, a wrong token, a reviewer's key and another server each give their own error."""
    proxy = start_proxy(policy=HOLD.replace("desk", "told"), **DESK)
    nobody = top(f"http://127.0.0.1:{free_port()}")
    assert nobody.exit_code == 1
    assert "no review desk answers at http://127.0.0.1" in nobody.stderr
    for token in ("wrong", make_key(proxy, "reviewer", "ann")):
        refused = top(desk_url(proxy), token=token)
        assert refused.exit_code == 1
        assert "set admin.token, or PINOCCHIO_ADMIN_TOKEN" in refused.stderr
    other = top(proxy.url)
    assert other.exit_code == 1
    assert "is no review desk" in other.stderr


def test_a_configuration_without_a_desk_has_nothing_to_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration without a desk gives an error that says why there is nothing to watch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proxy.yaml").write_text("admin: false\n")
    done = CliRunner().invoke(cli, ["top", "--once"])
    assert done.exit_code == 2
    assert "admin: false in the configuration" in done.stderr


def sight(at: float, **counts: float) -> DeskSnapshot:
    """Return a counter of requests by surface, and a histogram of four numbers."""
    requests = {frozenset({("surface", name)}): count for name, count in counts.items()}
    buckets = {
        frozenset({("le", le)}): count
        for le, count in (("1.0", 2 * at), ("2.0", 3 * at), ("+Inf", 4 * at))
    }
    return DeskSnapshot(at, {"requests": requests, "times_bucket": buckets})


def test_changes_are_what_came_since() -> None:
    """A counter that is lower than before has restarted, so all of it is new."""
    change = Change(sight(1, chat=5, models=7), sight(3, chat=9, models=2, embeddings=1))
    assert change.by("requests", "surface") == {("chat",): 4, ("models",): 2, ("embeddings",): 1}
    assert change.by("requests") == {(): 7}
    assert change.seconds == 2


def test_quantiles_lie_inside_their_bucket() -> None:
    """Quantiles are interpolated inside a bucket as Prometheus does, or are the last bound."""
    change = Change(sight(1), sight(3))
    assert change.buckets("times") == [(1.0, 4), (2.0, 2), (float("inf"), 2)]
    assert change.quantile("times", 0.25) == 0.5
    assert change.quantile("times", 0.5) == 1.0
    assert change.quantile("times", 0.625) == 1.5
    assert change.quantile("times", 0.99) == 2.0
    assert Change(sight(1), sight(1)).quantile("times", 0.5) is None


class Terminal:
    """`pinocchio top` in a terminal; `seen` is what it wrote to it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pinocchio", "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment() | {"PINOCCHIO_ADMIN_TOKEN": TOKEN, "TERM": "xterm", "COLUMNS": "140"},
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text: str, within_s: float = 30) -> None:
        end, start = time.monotonic() + within_s, len(self.seen)
        while text not in self.seen[start:]:
            assert time.monotonic() < end, f"no {text!r} in {self.seen[start:][-3_000:]!r}"
            if select.select([self._ours], [], [], 0.5)[0]:
                self.seen += os.read(self._ours, 65_536).decode(errors="replace")

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        status = self._process.wait(20)
        os.close(self._ours)
        return status


def test_a_terminal_is_kept_up_to_date(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Figures are refreshed, a proxy that is away for a
    while is asked again, and Ctrl-C ends it with status 0.
    """
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, **DESK)
    terminal = Terminal(tmp_path, "--url", desk_url(proxy), "--every", "0.2")
    try:
        terminal.wait_for("no reply has got one yet")
        proxy.ask("p=0.3 is this it?")
        terminal.wait_for("is this it?")
        proxy.stop()
        terminal.wait_for("asking on")
    finally:
        status = terminal.interrupt()
        proxy.stop()
    assert status == 0
