"""A thread that checks four times a second whether the configuration's files or keys have changed.

A check reads the times of a few files. Notifications of the file system would have to cover whole
folders, because editors and mounted configurations replace files. The database lies in the same
folder by default and writes there all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from proxy.http.wire.worker_threads import Worker

EVERY_S = 0.25

FileState = tuple[int, int, int]
"""A file's time of modification (ns), its size (bytes) and its inode."""


class ConfigWatch:
    """A watch that calls `on_change` once files have changed and then kept still for one turn.

    `files` lists the files, `every_turn` is called at the end of every turn, four times a second.
    `on_change` and `every_turn` are called on the watch's thread and may not raise.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        on_change: Callable[[], None],
        every_turn: Callable[[], None],
    ) -> None:
        """Create the watch without starting its thread."""
        self._files = files
        self._on_change = on_change
        self._every_turn = every_turn
        self._is_requested = False
        self._used: dict[Path, FileState] = {}  # how the files looked when they were read
        self._before: dict[Path, FileState] = {}
        self._worker = Worker("watch", self.turn, every_s=EVERY_S)

    def start(self) -> None:
        """Remember the files as they look now, and start the thread."""
        self.begin()
        self._worker.start()

    def begin(self) -> None:
        """Remember the files as they look now; the caller then calls `turn` itself."""
        self._used = self._before = self._look()

    def ask(self) -> None:
        """Treat the files as changed at the next turn; signal handlers may call this."""
        self._is_requested = True

    def stop(self) -> None:
        """Stop the thread."""
        self._worker.close()

    def turn(self) -> None:
        """Check the files once: call `on_change` if they have changed, then always `every_turn`.

        A change counts once the files look the same in two turns, or at once after `ask`. A file
        that is seen for the first time counts as unchanged.
        """
        states, now = self._used, self._look()
        # a file that the watch sees for the first time has just been read
        has_changed = any(states.setdefault(path, state) != state for path, state in now.items())
        if self._is_requested or (has_changed and now == self._before):
            self._is_requested = False
            states.update(now)
            self._on_change()
            self._used = self._look() | states  # other files may matter from now on
        self._before = now
        self._every_turn()

    def _look(self) -> dict[Path, FileState]:
        """Return how each file looks now, by its path."""
        return {path: file_state(path) for path in self._files()}


def file_state(path: Path) -> FileState:
    """Return a file's time of modification (ns), size (bytes) and inode, zeros if unreadable.

    They differ once it is changed, replaced or created.
    """
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
