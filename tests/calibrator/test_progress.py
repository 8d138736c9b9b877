"""Progress of long work: lines where nobody sees a bar, with an honest time left."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from calibrator.commands.progress import Progress, duration_text


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_say_how_far_it_is_and_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line comes after seconds, the next ones twice a minute; stdout stays clean."""
    clock = Clock()
    with Progress("scoring", 1_000, is_terminal=False, clock=clock) as progress:
        for _ in range(10):
            progress.advance(100)
            clock.now += 8.0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "scoring: 200 of 1,000 (20%), 64 s left",
        "scoring: 600 of 1,000 (60%), 32 s left",
    ]


def test_what_was_kept_makes_nothing_look_fast(capsys: pytest.CaptureFixture[str]) -> None:
    """800 of 1,000 that were there at once say nothing about the 200 others."""
    clock = Clock()
    with Progress("scoring", 1_000, is_terminal=False, clock=clock) as progress:
        progress.advance(800)
        clock.now = 10.0
        progress.advance(10)
    assert capsys.readouterr().err == "scoring: 810 of 1,000 (81%), 3 min left\n"


def on_a_terminal(command: list[str]) -> str:
    """Return what a command writes to its own terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # Linux's way to say that the other end is closed
        while part := os.read(ours, 4_096):
            written += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """What takes less than a few seconds needs no line."""
    with Progress("scoring", 10, is_terminal=False, clock=Clock()) as progress:
        for _ in range(10):
            progress.advance()
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar() -> None:
    """There the bar says it, and sentences stand above it as they are."""
    code = (
        "from calibrator.commands.progress import Progress\n"
        "with Progress('scoring', 10) as progress:\n"
        "    progress.say('[a] sentence')\n"
        "    progress.advance(10)\n"
    )
    told = on_a_terminal([sys.executable, "-c", code])
    assert "[a] sentence" in told
    assert "scoring" in told
    assert "10/10" in told


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (59, "59 s"), (90, "2 min"), (7_200, "2.0 h")]
)
def test_durations(seconds: float, text: str) -> None:
    """As people say them."""
    assert duration_text(seconds) == text
