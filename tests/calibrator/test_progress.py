"""Progress of long work: lines on stderr if it is no terminal, with an honest time left."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from calibrator.commands.progress import Progress, duration_text


class Clock:
    """A clock that tests set forward."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_say_how_far_it_is_and_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines come after some seconds, then twice a minute, and stdout has none."""
    clock = Clock()
    with Progress("scoring", 1_000, is_terminal=False, clock=clock) as progress:
        for _ in range(10):
            progress.advance(100)
            clock.now += 8.0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "scoring: 200 of 1,000 (20%), 64 s left",
        "scoring: 600 of 1,000 (60%), 32 s left",
    ]


def test_kept_items_do_not_shorten_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Items that were there at the start do not count for the time left."""
    clock = Clock()
    with Progress("scoring", 1_000, is_terminal=False, clock=clock) as progress:
        progress.advance(800)
        clock.now = 10.0
        progress.advance(10)
    assert capsys.readouterr().err == "scoring: 810 of 1,000 (81%), 3 min left\n"


def on_a_terminal(command: list[str]) -> str:
    """Return a command's output on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # Linux raises it when the other end is closed
        while part := os.read(ours, 4_096):
            written += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """Work of a few seconds prints nothing."""
    with Progress("scoring", 10, is_terminal=False, clock=Clock()) as progress:
        for _ in range(10):
            progress.advance()
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar() -> None:
    """On a terminal there is a bar, with sentences above it."""
    code = (
        "from calibrator.commands.progress import Progress\n"
        "with Progress('scoring', 10) as progress:\n"
        "    progress.say('[a] sentence')\n"
        "    progress.advance(10)\n"
    )
    output = on_a_terminal([sys.executable, "-c", code])
    assert "[a] sentence" in output
    assert "scoring" in output
    assert "10/10" in output


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (59, "59 s"), (90, "2 min"), (7_200, "2.0 h")]
)
def test_durations(seconds: float, text: str) -> None:
    """Durations are given in seconds, minutes or hours."""
    assert duration_text(seconds) == text
