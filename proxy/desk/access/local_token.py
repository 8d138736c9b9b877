"""A token by which commands of the same user open the desk of a running proxy on this machine.

Where no admin token is configured, a proxy makes one for as long as it runs, in a file that only
its user can read: `~/.cache/pinocchio/desk/PORT`. That user can read the store as well.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER_VARIABLE: Final = "PINOCCHIO_CACHE"  # the same as for cached scores
_MOST_BYTES: Final = 1_000


def write_local_token(port: int) -> tuple[str, Path] | None:
    """Make a token for the desk on this port, and return (token, its new file).

    None where no file can be kept, or on Windows. A file left there is replaced.
    """
    token, path = secrets.token_urlsafe(32), _path_of(port)
    if os.name != "posix":
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # the file of a proxy that was killed
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token)
    return token, path


def local_token(port: int) -> str | None:
    """Return the token that this user's proxy made for its desk on this port, or None.

    A file of another user, or that others can read, is ignored.
    """
    with suppress(OSError, ValueError, RuntimeError):
        path = _path_of(port)
        stat = path.lstat()
        if stat.st_uid == os.geteuid() and not stat.st_mode & 0o077:
            with path.open(encoding="ascii") as file:
                return file.read(_MOST_BYTES).strip() or None
    return None


def _path_of(port: int) -> Path:
    """Return the token's file for a port, in `PINOCCHIO_CACHE` or the user's cache folder."""
    if folder := os.environ.get(_FOLDER_VARIABLE):
        return Path(folder).expanduser() / "desk" / str(port)
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache_folder / "pinocchio" / "desk" / str(port)
