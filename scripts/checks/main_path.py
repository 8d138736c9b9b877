"""Print the files that one scored completion passes.

python -m scripts.checks.main_path [--most OUT BACK] [--most-run FILES]

This runs a proxy with the embedded calibrator and an upstream on loopback, and traces the fifth
request, whole and streamed: from the client's socket to upstream's, and from there back to the
client. The main path consists of the files of `proxy/` whose frames wait for one another, or hand
the completion to a socket; they are counted with a fake scorer. Then come all files of all packages
of which a function runs, on the event loop and on the scorer's thread, until the client has its
reply.

With `--most OUT BACK`, the exit status is 1 where the main path of either has more files than that;
with `--most-run FILES`, where more files run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator import Scorer, load_scorer  # noqa: E402
from tests.running.live_proxy import LiveProxy  # noqa: E402
from tests.servers.faulty_upstream import FaultyUpstream  # noqa: E402

ROOM = str(ROOT / "proxy") + "/"
PACKAGES = tuple(str(ROOT / name) + "/" for name in ("proxy", "policies", "calibrator"))
SCORER = "calibrator/batching.py"  # a thread that runs it is the scorer's
WARM_UP = 4  # requests before the traced one
TO_UPSTREAM = ("http/pool/connection.py", "start")  # writes a request
TO_CLIENT = ("http/listener/http_cycle.py", "write_whole")  # writes a whole reply
FROM_SOCKETS = ("data_received", "on_headers_complete")


class Way:
    """The frames of one direction, in the order in which they were entered."""

    def __init__(self) -> None:
        self._calls: dict[FrameType, int] = {}
        self._passed: dict[str, None] = {}

    def note(self, frame: FrameType) -> None:
        """Count an entry or resumption of the frame; note its file if it reads from a socket."""
        self._calls[frame] = self._calls.get(frame, 0) + 1
        if frame.f_code.co_name in FROM_SOCKETS:
            self._passed[place_of(frame)] = None

    def note_stack(self, frame: FrameType | None) -> None:
        """Note the files of a frame that hands over to a socket and of its callers.

        The outermost comes first.
        """
        stack = []
        while frame is not None:
            stack.append(place_of(frame))
            frame = frame.f_back
        self._passed |= dict.fromkeys(place for place in reversed(stack) if place)

    def files(self) -> list[str]:
        """Return the files of `proxy/` that handed over, and those whose frames were resumed.

        Each is there once.
        """
        waited = {place_of(frame): None for frame, count in self._calls.items() if count > 1}
        return [*(self._passed | waited)]


class Trace:
    """One request; a profile function for all threads of the proxy."""

    def __init__(self) -> None:
        self.out, self.back = Way(), Way()
        self._now: Way | None = None
        self.thread: int | None = None  # the event loop's
        self._run: dict[int, set[str]] = {}  # by thread, the files that ran

    def begin(self) -> None:
        """Forget what was traced, and trace from now on."""
        self.out, self.back = Way(), Way()
        self._run = {}
        self._now = self.out

    def end(self) -> None:
        """Stop tracing."""
        self._now = None

    def run(self) -> list[str]:
        """Return all files that ran on the event loop and the scorer's thread, as sorted paths.

        Another thread writes the record; its files do not count.
        """
        found: set[str] = set()
        for thread, files in self._run.items():
            if thread == self.thread or SCORER in files:
                found |= files
        return sorted(found)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note the frame; Python calls this for each call and return, on every thread.

        Does nothing before `begin` or after `end`. The way changes from `out` to `back` when the
        request was written to upstream.
        """
        if self._now is None:
            return
        thread, name = threading.get_ident(), frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGES):
            self._run.setdefault(thread, set()).add(name[len(str(ROOT)) + 1 :])
        if thread != self.thread:
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
    """Return the frame's file below `proxy/`, such as `app.py`; "" for other code."""
    name = frame.f_code.co_filename
    return name[len(ROOM) :] if name.startswith(ROOM) else ""


def main() -> int:
    """Print the files of each way and all that run; return 1 if these exceed the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, nargs=2, metavar=("OUT", "BACK"))
    parser.add_argument("--most-run", type=int, metavar="FILES")
    options = parser.parse_args()
    found, run = {}, {}
    for is_stream, trace in traced(None):
        kind = "streamed" if is_stream else "whole"
        ways = {"out": trace.out, "back": trace.back}
        found[is_stream] = [len(way.files()) for way in ways.values()]
        for name, way in ways.items():
            show(f"{kind}, {name}", way.files())
    for is_stream, trace in traced(load_scorer("embedded")):
        run[is_stream] = trace.run()
        show(f"{'streamed' if is_stream else 'whole'}, all that run", run[is_stream])
    most = options.most or [max(each) for each in zip(*found.values(), strict=True)]
    is_long = any(n > m for each in found.values() for n, m in zip(each, most, strict=True))
    most_run = options.most_run
    is_wide = most_run is not None and any(len(files) > most_run for files in run.values())
    return int(is_long or is_wide)


def traced(scorer: Scorer | None) -> Iterator[tuple[bool, Trace]]:
    """Yield (whether it is streamed, its trace) for a whole reply, then for a streamed one.

    A proxy and an upstream run meanwhile, and are warmed up before. Without a scorer a quick fake
    scores. The same trace object is yielded twice, so read it before going on.
    """
    trace = Trace()
    threading.setprofile(trace)
    with tempfile.TemporaryDirectory() as folder, FaultyUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, Path(folder), scorer=scorer)
        threading.setprofile(None)
        trace.thread = proxy._thread.ident
        try:
            for is_stream in (False, True):
                for _ in range(WARM_UP):
                    proxy.ask(stream=is_stream)
                trace.begin()
                proxy.ask(stream=is_stream)
                trace.end()
                yield is_stream, trace
        finally:
            proxy.stop()


def show(title: str, files: list[str]) -> None:
    """Print the title with the number of files, and the files, one a line."""
    print(f"{title}: {len(files)} files")
    print(*(f"    {place}" for place in files), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
