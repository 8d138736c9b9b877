"""Rows that come through a pipe are read like those of the file, with their line numbers."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from calibrator import open_lines
from tests.running.live_proxy import ROOT, environment

COMMANDS: dict[str, Sequence[str]] = {
    "certify": ("certify", "{rows}", "--max-error", "0.1", "--json"),
    "evaluate": ("evaluate", "{rows}", "--scores", "{scores}", "--json"),
    "advise": ("advise", "{rows}", "--scores", "{scores}", "--json"),
    "recalibrate": ("recalibrate", "{rows}", "--scores", "{scores}", "--json"),
    "labels": ("labels", "{rows}", "--json"),
    "score": ("score", "{rows}", "--calibrator", "fake:0.5"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write 600 rows of 128 bytes; the first 100, which a lost buffer would remove, are wrong."""
    folder = tmp_path_factory.mktemp("rows")
    rows, scores = [], []
    for number in range(600):
        row = {"id": str(number), "question": f"q{number:03}", "response": "r"}
        row |= {"correct": int(number >= 100), "confidence": 0.9}
        rows.append(json.dumps(row).ljust(127) + "\n")
        score = {"id": str(number), "confidence": 0.3 + number / 1_000, "calibrator": "c@1"}
        scores.append(json.dumps(score) + "\n")
    found = {"rows": folder / "rows.jsonl", "scores": folder / "scores.jsonl"}
    found["rows"].write_text("".join(rows))
    found["scores"].write_text("".join(scores))
    return found


def outcome_of(command: Sequence[str], places: dict[str, str]) -> tuple[int, str]:
    """Return the exit status and the output of a command in a shell, with file names masked."""
    line = " ".join(each.format(**places) for each in command)
    done = subprocess.run(
        ["bash", "-c", f"pinocchio {line}"],
        env={**environment(), "PYTHONPATH": str(ROOT), "PATH": _path()},
        cwd=Path(places["folder"]),
        capture_output=True,
        text=True,
        timeout=300,
    )
    output = re.sub(r"/dev/(fd/\d+|stdin)|\S*(rows|scores)\.jsonl", "FILE", done.stdout)
    assert "Warning" not in done.stderr, done.stderr
    return done.returncode, re.sub(r'"\w*_s": [\d.]+', "", output)


def _path() -> str:
    return os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_gives_what_the_file_gives(
    files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """A pipe gives the same output and exit status as the file, packed or not."""
    command, folder = COMMANDS[name], {"folder": str(tmp_path)}
    of_file = outcome_of(command, folder | {key: str(path) for key, path in files.items()})
    piped = {key: f"<(cat {path})" for key, path in files.items()}
    assert outcome_of(command, folder | piped) == of_file
    packed = {key: f"<(gzip -c {path})" for key, path in files.items()}
    assert outcome_of(command, folder | packed) == of_file
    if name == "certify":
        assert of_file[0] == 3  # 100 of 600 rows are wrong
        assert '"labels": 600' in of_file[1]


def test_standard_input_gives_all_rows(files: dict[str, Path], tmp_path: Path) -> None:
    """All rows of standard input are read, as `/dev/stdin` or by redirection."""
    command = COMMANDS["certify"]
    for stdin in (f"{{rows}} < {files['rows']}", f"{{rows}} < <(cat {files['rows']})"):
        line = [word.replace("{rows}", "/dev/stdin") for word in command]
        line.append(stdin.replace("{rows}", ""))
        code, output = outcome_of(line, {"folder": str(tmp_path)})
        assert (code, '"labels": 600' in output) == (3, True)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8_191, 8_192, 8_193, 1_000_000])
@pytest.mark.parametrize("is_packed", [True, False])
def test_no_byte_of_a_fifo_is_lost(tmp_path: Path, size: int, is_packed: bool) -> None:
    """No byte of a FIFO is lost, in pieces of any size, packed or not."""
    fifo, whole = tmp_path / "fifo", bytes(65 + number % 26 for number in range(size))
    os.mkfifo(fifo)

    def write() -> None:
        data = gzip.compress(whole) if is_packed else whole
        with fifo.open("wb", buffering=0) as stream:
            for at in (0, 1):
                stream.write(data[at : at + 1])
            stream.write(data[2:])

    writer = threading.Thread(target=write)
    writer.start()
    with open_lines(fifo) as stream:
        assert stream.read() == whole
    writer.join()


def test_a_pipe_is_not_read_twice_in_silence() -> None:
    """Opening a pipe a second time is an error, as it would be empty."""
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    os.close(writing)
    path = Path(f"/dev/fd/{reading}")
    with open_lines(path) as stream:
        assert stream.read() == b"{}\n"
    with pytest.raises(OSError, match="a pipe can be read once"):
        open_lines(path)
    os.close(reading)


@pytest.mark.parametrize(
    "command",
    [
        ("filter", "{pipe}", "--keep", "0.5", "-o", "kept.jsonl"),
        ("pairs", "{pipe}", "-o", "pairs.jsonl"),
        ("evaluate", "{rows}", "--scores", "{scores}", "--traffic", "{pipe}", "--json"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("kind", ["named", "unnamed"])
def test_commands_that_read_rows_twice_refuse_a_pipe(
    files: dict[str, Path], tmp_path: Path, command: Sequence[str], kind: str
) -> None:
    """A command that reads its rows twice refuses a pipe."""
    os.mkfifo(tmp_path / "fifo")
    pipe = str(tmp_path / "fifo") if kind == "named" else f"<(cat {files['rows']})"
    places = {"folder": str(tmp_path), "pipe": pipe} | {k: str(v) for k, v in files.items()}
    line = " ".join(each.format(**places) for each in command)
    done = subprocess.run(
        ["bash", "-c", f"pinocchio {line}"],
        env={**environment(), "PYTHONPATH": str(ROOT), "PATH": _path()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "is a pipe, and the rows are read 2 times" in done.stderr) == (2, True)
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("pipe", ["fifo", "/dev/stdin"])
@pytest.mark.parametrize("command", ["labels", "evaluate --calibrator fake:0.5"])
def test_a_pipe_that_is_named_twice_is_refused(
    files: dict[str, Path], tmp_path: Path, command: str, pipe: str
) -> None:
    """A pipe that is named twice is refused; nobody would write to it a second time."""
    os.mkfifo(tmp_path / "fifo")
    done = subprocess.run(
        ["bash", "-c", f"cat {files['rows']} | pinocchio {command} {pipe} {pipe}"],
        env={**environment(), "PYTHONPATH": str(ROOT), "PATH": _path()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "is a pipe, and the rows are read 2 times" in done.stderr) == (2, True)


def test_two_rows_give_no_warning(tmp_path: Path) -> None:
    """Two rows give no warning of a library."""
    lines = [{"question": f"q{n}", "response": "r", "correct": n % 2} for n in range(2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    command = ("certify", "rows.jsonl", "--max-error", "0.2", "--calibrator", "embedded")
    assert outcome_of(command, {"folder": str(tmp_path)})[0] == 3
