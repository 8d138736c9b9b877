"""`pinocchio`, or a program, in a process of its own whose imports are done before it begins.

A server imports what they need once in a session, and forks for every command. That is a real
process with its own arguments, folder, environment, files and exit status, and starts a second
sooner than a new interpreter. Tests of imports and installations start an interpreter themselves.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 120
RUN = "--run"
SHARED = "PINOCCHIO_TEST_COMMANDS"  # the socket of the server that all workers of a run share
OPEN = ExitStack()  # until a process ends
READ_ONCE = "calibrator.embedded.calibrator"
PRELOADED = (
    "alembic.command",
    READ_ONCE,
    "calibrator.lab.judging.evaluation.advice",
    "calibrator.recalibration.study",
    "calibrator.lab.judging.sensitivity.measure",
    "fastapi",
    "httptools",
    "jinja2",
    "numpy",
    "pinocchio.commands",
    "pinocchio.options",
    "proxy.app",
    "proxy.commands.app",
    "proxy.commands.starting.serve",
    "proxy.desk.listening",
    "proxy.learning.tuning",
    "proxy.startup.startup",
    "proxy.upstreams.demo.demo",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)


@dataclass(frozen=True)
class Program:
    """A file with code, its slow imports, and the interpreter that has them."""

    file: Path | None = None  # the command `pinocchio` where there is none
    imports: tuple[str, ...] = PRELOADED
    python: str = sys.executable


PINOCCHIO = Program()


class WarmProcess:
    """A command that runs: what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        cwd: Path,
        env: Mapping[str, str],
        program: Program = PINOCCHIO,
        server: str = "",
    ) -> None:
        """Start the command; `server` is the socket of a server that runs already."""
        self._connection = _connected(server or begin_server(program))
        files = [f if isinstance(f, int) else f.fileno() for f in (stdout, stderr)]
        command = {"arguments": [*arguments], "cwd": str(cwd), "env": {**env}}
        command["file"] = str(program.file) if program.file else None
        text = json.dumps(command).encode()
        socket.send_fds(self._connection, [len(text).to_bytes(4, "big")], files)
        self._connection.sendall(text)
        self._answers = self._connection.makefile("rb")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._take_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status; raise TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("pinocchio", timeout or 0.0)
            self._take_status()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is not known yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _take_status(self) -> None:
        self.returncode = int(self._answers.readline())
        self._answers.close()
        self._connection.close()


def run_warm(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    program: Program = PINOCCHIO,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raise TimeoutExpired after killing it."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = WarmProcess(
            arguments, stdout=stdout, stderr=stderr, cwd=cwd, env=env, program=program
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        written = []
        for file in (stdout, stderr):
            file.seek(0)
            written.append(file.read().decode())
    return subprocess.CompletedProcess([*arguments], status, *written)


def shell_command() -> str:
    """Return the command that scripts run for `pinocchio`: `run_warm` with the shell's files."""
    return f"{sys.executable} -m tests.running.warm_cli {begin_server()} {RUN}"


def _run_in_shell(server: str, arguments: Sequence[str]) -> int:
    process = WarmProcess(
        arguments, stdout=1, stderr=2, cwd=Path.cwd(), env=os.environ, server=server
    )
    return process.wait()


def share_server() -> None:
    """Start the server of `pinocchio` and announce it to every process that is started later."""
    os.environ[SHARED] = begin_server()


def begin_server(program: Program = PINOCCHIO) -> str:
    """Return the socket of a server for this program.

    That is the shared one, or one that this process starts now and stops when it ends.
    """
    if program == PINOCCHIO and SHARED in os.environ:
        return os.environ[SHARED]
    return _begun(program.python, program.imports)


@cache
def _begun(python: str, imports: tuple[str, ...]) -> str:
    path = str(Path(tempfile.mkdtemp(prefix="warm")) / "socket")
    server = subprocess.Popen(
        [python, "-m", "tests.running.warm_cli", path, *imports],
        stdin=subprocess.PIPE,  # its end tells the server that this process is gone
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    atexit.register(_stop, server)
    return path


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and wait for its end; else Python warns of a running process."""
    server.kill()
    server.communicate()


def _connected(path: str) -> socket.socket:
    """Return a connection to a server, once it has imported what commands need."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            assert time.monotonic() < deadline, "the server of commands does not begin"
            time.sleep(0.02)
        else:
            return connection


# --- the server -------------------------------------------------------------------------------


def serve(path: str, imports: Sequence[str]) -> dict[str, Any]:
    """Fork for every command that arrives; return in the process that is to run one."""
    if tuple(imports) == PRELOADED:
        from pinocchio.__main__ import _import_structlog

        _import_structlog()
    for name in imports:
        import_module(name)
    if READ_ONCE in imports:
        _read_checkpoint_once()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a command's own parent waits for it
    gc.collect()
    gc.freeze()  # otherwise a collection would copy every page
    while True:
        readable, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in readable:
            os._exit(0)
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _begin(connection)
        connection.close()


def _read_checkpoint_once() -> None:
    """Let commands that load the shipped calibrator find it already read."""
    from tests.sharing.checkpoint import read_once, shipped

    shipped()
    OPEN.enter_context(read_once())


def _begin(connection: socket.socket) -> dict[str, Any]:
    """Fork once more: one process becomes the command, the other waits for its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(connection, 4, 2)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        connection.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    connection.close()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    command: dict[str, Any] = json.loads(text)
    return command


def run(command: Mapping[str, Any]) -> NoReturn:
    """Become the command, as `python -m pinocchio` or `python FILE` would."""
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    is_unbuffered = bool(command["env"].get("PYTHONUNBUFFERED"))
    sys.stdin = _text(0, "rb")
    sys.stdout = _text(1, "wb", write_through=is_unbuffered)
    sys.stderr = _text(2, "wb", write_through=True, errors="backslashreplace")
    random.seed()
    file: str | None = command["file"]
    sys.argv = [file or "pinocchio", *command["arguments"]]
    sys.modules.pop("pinocchio.__main__", None)
    status = 0
    try:
        if file:
            sys.path[0] = str(Path(file).parent)
            runpy.run_path(file, run_name="__main__")
        else:
            runpy.run_module("pinocchio", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    _end(status)


def _text(file: int, mode: str, **options: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(file, mode), encoding="utf-8", **options)


def _end(status: int) -> NoReturn:
    """Exit as an interpreter does, but without tearing down the modules, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[2] == RUN:
        sys.exit(_run_in_shell(sys.argv[1], sys.argv[3:]))
    run(serve(sys.argv[1], sys.argv[2:]))
