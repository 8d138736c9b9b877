"""The pass of a single row on a GPU, recorded once for each length and then played back.

Such a pass is some thousand small kernels, and Python launches them more slowly than the GPU
computes them. A recording launches all at once. It stands for one length, so rows are padded to a
multiple of `STEP`; what it reads and writes stays in place, so one row is played at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import torch
from torch import Tensor

STEP: Final = 64  # tokens
MOST: Final = 2_048  # tokens: longer rows keep a GPU busy for longer than launching takes

log = logging.getLogger(__name__)

Pass = Callable[[Tensor, Tensor, Tensor], Tensor]  # of ids, positions and last place, to the state


@dataclass(frozen=True, slots=True)
class Recording:
    """What a played pass reads, and where it leaves the state (1, hidden)."""

    ids: Tensor  # (1, L)
    positions: Tensor  # (3, 1, L)
    last: Tensor  # (1,)
    state: Tensor
    play: Callable[[], None]


class Graphs:
    """Recordings of `act`, which computes one row's last state from its ids (1, L), its positions
    (3, 1, L) and the place of its last token (1,)."""

    def __init__(self, act: Pass, device: torch.device) -> None:
        self._act = act
        self._device = device
        self._recordings: dict[int, Recording] = {}
        self._has_failed = False
        self._lock = Lock()
        # recordings compute in the same memory, for one is played at a time
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def state(self, ids: Tensor, positions: Tensor | None) -> Tensor | None:
        """The last state (1, hidden) of one row; None for a row that is too long, and for all once
        a recording failed, for want of memory or because a GPU records no such kernel.

        `positions` of None are those of a model that counts them itself.
        """
        length = ids.shape[1]
        if length > MOST or self._has_failed:
            return None
        size = -(-length // STEP) * STEP
        with self._lock:
            if size not in self._recordings:
                try:
                    self._recordings[size] = self._recorded(size)
                except RuntimeError as error:  # torch.OutOfMemoryError is one
                    self._has_failed = True
                    self._recordings.clear()
                    log.warning("passes of single rows are not recorded: %s", error)
                    return None
            recording = self._recordings[size]
            recording.ids[:, :length] = ids
            if positions is not None:
                recording.positions[:, :, :length] = positions
            recording.last.fill_(length - 1)
            recording.play()
            return recording.state.clone()

    def _recorded(self, size: int) -> Recording:
        ids = torch.zeros((1, size), dtype=torch.long, device=self._device)
        positions = torch.zeros((3, 1, size), dtype=torch.long, device=self._device)
        last = torch.zeros(1, dtype=torch.long, device=self._device)
        state, play = record(lambda: self._act(ids, positions, last), self._pool)
        return Recording(ids, positions, last, state, play)


def record(act: Callable[[], Tensor], pool: Any) -> tuple[Tensor, Callable[[], None]]:
    """A CUDA graph of what `act` launches: its result, which each playing writes anew, and how to
    play it. `act` runs three times, because kernels are chosen in the first."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # it has no types
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            act()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):  # others may go on
        state = act()
    return state, graph.replay
