"""Run AdamW over bf16 weights with fp32 copies, and keep a running average of them.

The forward and backward pass use bf16 weights, which avoids autocast's casts at every step. The
optimizer works on fp32 copies, because steps of 1e-4 vanish in bf16. The running average of the
copies (Polyak and Juditsky, 1992) is shipped: at a constant learning rate it is about as good as
the same weights after a decay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class AveragedAdam:
    """An optimizer for the parameters of `model` that require a gradient.

    `averaging` is the share that the average keeps at each step. In the first steps it keeps less,
    so that the beginning is forgotten.
    """

    def __init__(
        self, model: nn.Module, weight_decay: float, gradient_norm: float, averaging: float
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.copies = [p.detach().float().clone() for p in self.parameters]
        self.average = [copy.clone() for copy in self.copies]
        self.gradient_norm, self.averaging, self.steps = gradient_norm, averaging, 0
        self.adam = torch.optim.AdamW(self.copies, weight_decay=weight_decay, fused=True)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step along the gradients, then clear them."""
        for copy, parameter in zip(self.copies, self.parameters, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.copies, self.gradient_norm)
        self.adam.param_groups[0]["lr"] = rate
        self.adam.step()
        self.steps += 1
        keep = min(self.averaging, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.average, self.copies, 1 - keep)
        self._show(self.copies)

    @torch.no_grad()
    def _show(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the model the averaged weights within the context."""
        self._show(self.average)
        try:
            yield
        finally:
            self._show(self.copies)

    def state(self) -> dict[str, Any]:
        return {
            "adam": self.adam.state_dict(),
            "copies": self.copies,
            "average": self.average,
            "steps": self.steps,
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state["adam"])
        self.steps = state["steps"]
        for mine, saved in ((self.copies, state["copies"]), (self.average, state["average"])):
            for target, value in zip(mine, saved, strict=True):
                target.copy_(value)
        self._show(self.copies)
