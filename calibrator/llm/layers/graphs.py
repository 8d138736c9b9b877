"""Record the pass of a single row on a GPU once for each length, and replay it.

Such a pass is about a thousand small kernels, and Python launches them more slowly than the GPU
computes them. A recording launches all at once. It has one fixed length, so rows are padded to a
multiple of `STEP`. Its inputs and outputs have fixed addresses, so one row is replayed at a time.
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
MOST: Final = 2_048  # tokens; computing longer rows takes longer than launching

log = logging.getLogger(__name__)

Pass = Callable[[Tensor, Tensor, Tensor], Tensor]  # from ids, positions and last place to a state


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """The inputs of a recorded pass, its output state (1, hidden), and a function to replay it."""

    ids: Tensor  # (1, L)
    positions: Tensor  # (3, 1, L)
    last: Tensor  # (1,)
    state: Tensor
    play: Callable[[], None]


class Graphs:
    """The recordings of a pass, one for each padded length.

    `act` computes one row's last state from its ids (1, L), its positions (3, 1, L) and the place
    of its last token (1,).
    """

    def __init__(self, act: Pass, device: torch.device) -> None:
        """Begin without recordings; their memory is shared."""
        self._act = act
        self._device = device
        self._recordings: dict[int, RecordedPass] = {}
        self._has_failed = False
        self._lock = Lock()
        # recordings share their memory, because one is replayed at a time
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def state(self, ids: Tensor, positions: Tensor | None) -> Tensor | None:
        """Return the last state (1, hidden) of a row by a replayed pass, recorded when needed.

        `ids` are (1, L), `positions` (3, 1, L) or None for a model that counts them itself. None
        for a row of more than `MOST` tokens, and for all rows once a recording failed, for lack of
        memory or because the GPU cannot record a kernel.
        """
        length = ids.shape[1]
        if length > MOST or self._has_failed:
            return None
        size = -(-length // STEP) * STEP
        with self._lock:
            if size not in self._recordings:
                try:
                    self._recordings[size] = self._record(size)
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

    def _record(self, size: int) -> RecordedPass:
        """Return a recording of the pass for rows padded to `size` tokens."""
        ids = torch.zeros((1, size), dtype=torch.long, device=self._device)
        positions = torch.zeros((3, 1, size), dtype=torch.long, device=self._device)
        last = torch.zeros(1, dtype=torch.long, device=self._device)
        state, play = record(lambda: self._act(ids, positions, last), self._pool)
        return RecordedPass(ids, positions, last, state, play)


def record(act: Callable[[], Tensor], pool: Any) -> tuple[Tensor, Callable[[], None]]:
    """Record a CUDA graph of what `act` launches; return its result and a function to replay.

    Each replay overwrites the result. `act` runs three times, because kernels are chosen in the
    first. `pool` is the graphs' memory.
    """
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # it has no types
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            act()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):  # other threads may run
        state = act()
    return state, graph.replay
