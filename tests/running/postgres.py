"""A real PostgreSQL server for tests, on loopback, in a folder of its own.

It refuses to run as root, so root starts it as another user. Each test gets a database of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path

import psycopg

from tests.running.live_proxy import free_port

USER, PASSWORD = "pinocchio", "s3cret-canary"
USERS = ("postgres", "nobody")  # users as which root starts it
WITHIN_S = 60
FAST = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off"),
    *("wal_level=minimal", "max_wal_senders=0"),
)
MEMORY, LEAST_MEMORY = Path("/dev/shm"), 2 * 2**30
MISSING = "PostgreSQL is not installed; scripts/setup test says how (initdb, postgres)"


class PostgresServer:
    """A server in a context; what it commits survives a loss of power if it `is_durable`.

    If not, its files are in memory where there is room: a new database is 8 MB of them.
    """

    def __init__(self, *, is_durable: bool = False) -> None:
        self._options = () if is_durable else FAST
        self.is_in_memory = not is_durable and _has_memory()
        self._numbers = count(1)

    def __enter__(self) -> PostgresServer:
        place = MEMORY if self.is_in_memory else None
        self._folder = Path(tempfile.mkdtemp(prefix="pinocchio-pg-", dir=place))
        self._user = _other_user(self._folder) if os.geteuid() == 0 else None
        try:
            self._make()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """Cut all connections and stop; what is stored stays for `start_again`."""
        process: subprocess.Popen[bytes] | None = self.__dict__.pop("_process", None)
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(WITHIN_S)

    @property
    def pid(self) -> int:
        """Return the id of the server's first process, the parent of all others."""
        return self._process.pid

    def start_again(self) -> None:
        """Start the server again on the same port."""
        self._start(self.port)

    def kill(self) -> None:
        """Kill the server at once; after `start_again`, what was committed is still there."""
        process = self.__dict__.pop("_process")
        process.kill()
        process.wait(WITHIN_S)

    def new_database(self, like: str | None = None) -> str:
        """Return the URL of an empty database, or of a copy of one that nobody is connected to."""
        name, template = f"db{next(self._numbers)}", (like or "template1").rpartition("/")[2]
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            # From 15 on, all of it would go through the log otherwise, at twice the CPU.
            how = " STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}{how}".encode())
        return self._url(name)

    def drop(self, url: str) -> None:
        """Drop a database, even if clients are connected to it."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            name = url.rpartition("/")[2]
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [_program("initdb"), "-D", str(self._folder / "data"), "-U", USER, "--no-sync"]
        command += ["--encoding=UTF8", "--locale=C", "-A", "scram-sha-256", "--pwfile"]
        done = subprocess.run(
            [*command, str(password)],
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self._folder,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, done.stderr

    def _start(self, port: int | None = None) -> None:
        self.port = port or free_port()
        options = [*self._options, "listen_addresses=127.0.0.1"]
        options.append(f"unix_socket_directories={self._folder}")
        command = [_program("postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *command,
                    *(word for option in options for word in ("-c", option)),
                ],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
            )
        deadline = time.monotonic() + WITHIN_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True


def _has_memory() -> bool:
    """Whether this machine has a file system in memory, with room in it."""
    try:
        return shutil.disk_usage(MEMORY).free > LEAST_MEMORY
    except OSError:
        return False


def _other_user(folder: Path) -> int:
    """Give the folder to a user that is not root."""
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next(known[name] for name in USERS if name in known)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return entry.pw_uid


def _program(name: str) -> str:
    """Find a program of PostgreSQL; Debian keeps them outside of PATH."""
    beside = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *beside]))
    assert found is not None, MISSING
    return found
