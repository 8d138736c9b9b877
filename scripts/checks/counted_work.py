"""A counter of the event loop's work for a request, which depends on no clock or machine.

Each frame belongs to the room of the step that it works for: its own file's, or, for files that
serve several steps (bytes, JSON, libraries), its caller's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

ROOT: Final = str(Path(__file__).parents[2]) + "/"
OTHER: Final = "other"  # work of the event loop and the server
ROOMS: Final = (
    ("listener", ("proxy/http/listener/",)),
    ("gate", ("proxy/gate/", "proxy/routes/admission.py", "proxy/app.py")),
    ("gate", ("proxy/generations/generation.py", "proxy/routes/routes.py")),
    ("request", ("proxy/exchange/request.py", "proxy/holds/")),
    ("request", ("proxy/completions/flow.py:parse_request",)),
    ("upstream", ("proxy/upstreams/", "proxy/http/pool/", "proxy/completions/call_upstream.py")),
    ("upstream", ("proxy/completions/sending/live_stream.py", "proxy/exchange/answer.py")),
    ("scoring", ("proxy/scoring/", "calibrator/", "proxy/completions/job.py:Job.score")),
    ("scoring", ("proxy/completions/job.py:Job._score",)),
    ("decision", ("policies/", "proxy/learning/", "proxy/completions/decide.py")),
    ("decision", ("proxy/completions/apply.py", "proxy/exchange/outcome.py")),
    ("decision", ("proxy/completions/job.py:Job.decide", "proxy/completions/job.py:Job.outcome")),
    ("record", ("proxy/store/", "proxy/completions/recording.py", "proxy/exchange/exchange.py")),
    ("record", ("proxy/observe/metrics.py", "proxy/observe/series.py")),
    ("telemetry", ("proxy/observe/",)),
    ("flow", ("proxy/completions/",)),
)
"""The rooms of a request with their places, specific places before general ones."""
NAMES: Final = (*dict.fromkeys(name for name, _ in ROOMS), OTHER)


@dataclass
class Work:
    """The counts, by code and its room."""

    bytecodes: Counter[tuple[str, CodeType]] = field(default_factory=Counter)
    calls: Counter[tuple[str, CodeType]] = field(default_factory=Counter)

    def by_room(self, counts: Counter[tuple[str, CodeType]], requests: int) -> dict[str, float]:
        """Return the counts of each room of `NAMES`, divided by the number of requests.

        `counts` is `bytecodes` or `calls`; a room without any has 0.
        """
        found = dict.fromkeys(NAMES, 0.0)
        for (room, _), count in counts.items():
            found[room] += count / requests
        return found


class CountedWork:
    """A tracer of the thread `watched` inside `counting`, if it began inside `tracing`."""

    def __init__(self) -> None:
        self.watched: int | None = None
        self.work = Work()
        self._is_counting = False
        self._places: dict[CodeType, str | None] = {}

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace the threads that begin inside the block, so that one of them can be watched.

        The earlier trace function is set again afterwards.
        """
        before = threading.gettrace()
        threading.settrace(self.trace)
        try:
            yield
        finally:
            threading.settrace(before)  # type: ignore[arg-type]

    @contextmanager
    def counting(self) -> Iterator[Work]:
        """Count the work of the watched thread inside the block, from zero; yield the counts."""
        self.work, self._is_counting = Work(), True
        try:
            yield self.work
        finally:
            self._is_counting = False

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count the call of a new frame, and return the function that counts its bytecodes.

        Return None, so that the frame is not traced, outside `counting` and on other threads than
        `watched`. Python calls this for each call.
        """
        if not self._is_counting or threading.get_ident() != self.watched:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        at = self._room_of(frame), frame.f_code
        self.work.calls[at] += 1
        return self._counter(at)

    def _counter(self, at: tuple[str, CodeType]) -> Callable[[FrameType, str, Any], Any]:
        """Return a trace function that counts bytecodes under `at`, a room and its code."""
        bytecodes = self.work.bytecodes

        def count(frame: FrameType, event: str, __: Any) -> Any:
            """Count a bytecode; Python calls this for each event of a traced frame."""
            if event == "opcode":
                bytecodes[at] += 1
            return count

        return count

    def _room_of(self, frame: FrameType) -> str:
        """Return the room of the innermost frame whose code has one, or `other`."""
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code not in self._places:
                self._places[code] = _place_of(code)
            if (room := self._places[code]) is not None:
                return room
            at = at.f_back
        return OTHER


def _place_of(code: CodeType) -> str | None:
    """Return the first room of `ROOMS` that lists the code's file or function.

    The result is None for code outside this project or in no room.
    """
    name = code.co_filename
    if not name.startswith(ROOT):
        return None
    place = f"{name[len(ROOT) :]}:{code.co_qualname}"
    for room, begins in ROOMS:
        if place.startswith(begins):
            return room
    return None
