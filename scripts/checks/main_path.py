"""Print the files of `proxy/` that one completion passes: python -m scripts.checks.main_path

This runs a proxy and an upstream on loopback, and traces the fifth request, whole and streamed:
from the client's socket to upstream's, and from there back to the client. The main path consists of
the files whose frames wait for one another, or hand the completion to a socket. Helpers that are
called and return at once are listed with `--all`. With `--most OUT BACK`, the exit status is 1
where the main path of either has more files than that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.running.live_proxy import LiveProxy  # noqa: E402
from tests.servers.faulty_upstream import FaultyUpstream  # noqa: E402

ROOM = str(ROOT / "proxy") + "/"
WARM_UP = 4  # requests before the traced one
TO_UPSTREAM = ("upstreams/pool/connection.py", "start")  # writes a request
TO_CLIENT = ("listener/http_cycle.py", "write_whole")  # writes a whole reply
FROM_SOCKETS = ("data_received", "on_headers_complete")


class Way:
    """The frames of one direction, in the order in which they were entered."""

    def __init__(self) -> None:
        self._calls: dict[FrameType, int] = {}
        self._passed: dict[str, None] = {}

    def note(self, frame: FrameType) -> None:
        self._calls[frame] = self._calls.get(frame, 0) + 1
        if frame.f_code.co_name in FROM_SOCKETS:
            self._passed[place_of(frame)] = None

    def note_stack(self, frame: FrameType | None) -> None:
        """Note the files of frames that hand over to a socket, the outermost first."""
        stack = []
        while frame is not None:
            stack.append(place_of(frame))
            frame = frame.f_back
        self._passed |= dict.fromkeys(place for place in reversed(stack) if place)

    def files(self, *, has_helpers: bool) -> list[str]:
        """Return the files of frames that were resumed after waiting, or that handed over."""
        waited = {place_of(f): None for f, n in self._calls.items() if n > 1 or has_helpers}
        return [*(self._passed | waited)]


class Trace:
    """One request; a profile function for the thread of the event loop."""

    def __init__(self) -> None:
        self.out, self.back = Way(), Way()
        self._now: Way | None = None
        self.thread: int | None = None  # the event loop's; another thread writes the record

    def begin(self) -> None:
        self.out, self.back = Way(), Way()
        self._now = self.out

    def end(self) -> None:
        self._now = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self._now is None or threading.get_ident() != self.thread:
            return
        if event not in ("call", "return") or not (place := place_of(frame)):
            return
        at = place, frame.f_code.co_name
        if event == "call":
            self._now.note(frame)
        if event == "call" and at == TO_CLIENT:
            self._now.note_stack(frame)
        elif event == "return" and at == TO_UPSTREAM:
            self._now.note_stack(frame)
            self._now = self.back


def place_of(frame: FrameType) -> str:
    """Return the file, from `proxy/` on, or "" for other code."""
    name = frame.f_code.co_filename
    return name[len(ROOM) :] if name.startswith(ROOM) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, nargs=2, metavar=("OUT", "BACK"))
    parser.add_argument("--all", action="store_true", help="list helpers too")
    options = parser.parse_args()
    trace = Trace()
    threading.setprofile(trace)
    found = {}
    with tempfile.TemporaryDirectory() as folder, FaultyUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, Path(folder))
        threading.setprofile(None)  # type: ignore[arg-type]
        trace.thread = proxy._thread.ident
        try:
            for is_stream in (False, True):
                for _ in range(WARM_UP):
                    proxy.ask(stream=is_stream)
                trace.begin()
                proxy.ask(stream=is_stream)
                trace.end()
                ways = {"out": trace.out, "back": trace.back}
                found[is_stream] = [len(way.files(has_helpers=False)) for way in ways.values()]
                for name, way in ways.items():
                    files = way.files(has_helpers=options.all)
                    print(f"{'streamed' if is_stream else 'whole'}, {name}: {len(files)} files")
                    print(*(f"    {place}" for place in files), sep="\n")
        finally:
            proxy.stop()
    most = options.most or [max(each) for each in zip(*found.values(), strict=True)]
    return int(any(n > m for each in found.values() for n, m in zip(each, most, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
