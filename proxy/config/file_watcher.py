"""A thread that looks, four times a second, at the files of the configuration and at the keys.

Looking means asking for the times of a few files. Notifications of the file system would have to
be for whole folders, because editors and mounted configurations replace files: the database, which
lies beside them by default, writes there all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from proxy.wire.worker_threads import Worker

EVERY_S = 0.25

Sight = tuple[int, int, int]
"""What changes when a file does: its time, size and inode."""


class Watch:
    """Calls `on_change` once files have changed and then stayed as they are for one turn.

    Both functions are called on the thread of the watch, and may not raise.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        on_change: Callable[[], None],
        every_turn: Callable[[], None],
    ) -> None:
        self._files = files
        self._on_change = on_change
        self._every_turn = every_turn
        self._is_asked = False
        self._used: dict[Path, Sight] = {}  # how the files looked when they were read
        self._before: dict[Path, Sight] = {}
        self._worker = Worker("watch", self.turn, every_s=EVERY_S)

    def start(self) -> None:
        self.begin()
        self._worker.start()

    def begin(self) -> None:
        """Takes the files as they are for what is in use; then somebody else calls `turn`."""
        self._used = self._before = self._look()

    def ask(self) -> None:
        """As if a file had changed; may be called by the handler of a signal."""
        self._is_asked = True

    def stop(self) -> None:
        self._worker.close()

    def turn(self) -> None:
        """Looks once."""
        used, now = self._used, self._look()
        # a file that is new here was read now
        has_changed = any(used.setdefault(path, sight) != sight for path, sight in now.items())
        if self._is_asked or (has_changed and now == self._before):
            self._is_asked = False
            used.update(now)
            self._on_change()
            self._used = self._look() | used  # other files may matter from now on
        self._before = now
        self._every_turn()

    def _look(self) -> dict[Path, Sight]:
        return {path: sight_of(path) for path in self._files()}


def sight_of(path: Path) -> Sight:
    """Another one when a file is changed, replaced or there for the first time."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
