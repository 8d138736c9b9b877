"""The peers of the benchmark, each in an environment of its own below one scratch folder.

An environment with the wanted versions is reused. A peer that cannot be installed here is left out,
with a sentence that says why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

PYTHON_PEERS: Final[Mapping[str, str]] = {
    "litellm": "litellm[proxy]==1.106.2",  # 1.82.7 and 1.82.8 were compromised releases
    "sglang-router": "sglang-router==0.3.2",
}
NODE_PEER: Final = {"@portkey-ai/gateway": "1.15.2"}
# With the newer version that the gateway would install, every stream fails on Node 20.
NODE_OVERRIDES: Final = {"@hono/node-server": "1.13.8"}
DEBIAN_PEER: Final = "nginx"
PINS: Final[Mapping[str, str]] = {
    **PYTHON_PEERS,
    "portkey": " ".join(f"{n}@{v}" for n, v in {**NODE_PEER, **NODE_OVERRIDES}.items()),
}

# The gateway would listen on all interfaces and has no setting for it.
LOOPBACK_JS: Final = """\
const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port, host: "127.0.0.1" }, rest.at(-1));
};
"""
INSTALL_S: Final = 1_200


class MissingPeerError(RuntimeError):
    """A peer that cannot be installed here; its text is a sentence."""


def install(name: str, folder: Path) -> Path:
    """Return the environment of the peer called `name`, installed below `folder` where needed.

    It is a folder; for nginx it is the program's path. Raises MissingPeerError.
    """
    if name == "nginx":
        return _nginx()
    home = folder / name
    stamp = home / ".installed"
    if stamp.is_file() and stamp.read_text() == PINS[name]:
        return home
    print(f"installing {PINS[name]} into {home} ...", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (folder / ".gitignore").write_text("*\n")
    installer: Callable[[Path], None] = _portkey
    if name in PYTHON_PEERS:
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(home / "bin/python"), "-m", "pip", "install", "-qq", PYTHON_PEERS[name]])
    else:
        installer(home)
    stamp.write_text(PINS[name])
    return home


def _portkey(home: Path) -> None:
    """Install the gateway and a script that binds it to loopback, by npm.

    Raises MissingPeerError if npm is missing or fails.
    """
    if shutil.which("npm") is None:
        raise MissingPeerError("there is no npm")
    package = {"private": True, "dependencies": NODE_PEER, "overrides": NODE_OVERRIDES}
    (home / "package.json").write_text(json.dumps(package))
    (home / "loopback.cjs").write_text(LOOPBACK_JS)
    _run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(home)])


def _nginx() -> Path:
    """Return the path of nginx; as root, install it by apt-get where it is missing.

    Raises MissingPeerError where it cannot be had.
    """
    found = _nginx_path()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing Debian's nginx ...", file=sys.stderr, flush=True)
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", DEBIAN_PEER])
        found = _nginx_path()
    if found is None:
        raise MissingPeerError("it is not installed, and only root with apt-get can change that")
    return Path(found)


def _nginx_path() -> str | None:
    """Return the path of the installed nginx, or None."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _run(command: list[str]) -> None:
    """Run a command. Raises MissingPeerError if it fails, is missing or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            env={**os.environ, "RUNLEVEL": "1"},  # Debian would start nginx as a service
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPeerError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise MissingPeerError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-500:]}")
