"""Coordinate the processes that train together: one, or those that a launcher started.

The launcher is `torchrun` or `accelerate launch`. Each process has a part of every step's rows.
They exchange the adapter's gradients, summed once a step. DistributedDataParallel would do the
same, but requires every weight to have a gradient in every process, and rows without an image leave
the vision tower's without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from accelerate import PartialState
from torch import Tensor, distributed, nn

from calibrator.checkpoints.devices import choose_device
from calibrator.errors import TrainingError

T = TypeVar("T")


class Processes:
    """This process among the others; `device` is its own."""

    def __init__(self, device: str = "auto") -> None:
        """Join the launcher's processes, or be the only one, and choose the device.

        `device` is `auto`, `cpu` or a torch device such as `cuda:1`. Among several processes only
        `auto` and `cpu` are allowed, as each has a device of its own; others raise TrainingError.
        """
        has_gpu = device != "cpu" and torch.cuda.is_available()
        self._state = PartialState(cpu=not has_gpu)
        self.rank: int = self._state.process_index
        self.count: int = self._state.num_processes
        if self.count > 1 and device not in ("auto", "cpu"):
            raise TrainingError(f"each of {self.count} processes has a device; leave out {device}")
        self.device = self._state.device if self.count > 1 else choose_device(device)

    @property
    def is_first(self) -> bool:
        """Whether this process reports and writes for all."""
        return self.rank == 0

    def part_of(self, rows: Sequence[T]) -> list[T]:
        """Return this process's part of `rows`: every `count`-th, beginning with its rank."""
        return list(rows[self.rank :: self.count])

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each parameter's gradient by its sum over all processes, in place.

        A missing gradient counts as zero, and is set to zeros in a single process.
        """
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def gather(self, mine: Tensor, total: int) -> Tensor:
        """Return the results of all processes in the order of the rows, to each of them.

        `mine` (n, ..) are this process's results for its `part_of` of `total` rows. The result
        (total, ..) is on the CPU; with one process it is `mine` itself.
        """
        if self.count == 1:
            return mine
        found: list[Tensor] = [torch.empty(0)] * self.count
        distributed.all_gather_object(found, mine.cpu())
        whole = torch.empty(total, *mine.shape[1:], dtype=mine.dtype)
        for rank, part in enumerate(found):
            whole[rank :: self.count] = part
        return whole

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Run the context in the first process, and only then in the others.

        So they find what the first has downloaded.
        """
        with self._state.main_process_first():
            yield

    def close(self) -> None:
        """End the process group, if there is one, because torch complains otherwise."""
        if self.count > 1:
            self._state.destroy_process_group()
