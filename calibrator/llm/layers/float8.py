"""Multiply linear layers in float8, for large models on GPUs that have it.

Weights are float8_e4m3fn with a scale for each output. Activations are rounded to it at run time
with a scale for each token, so that no neighbour in a batch affects how a token is rounded. Gates
of linear attention, the head, embeddings and the vision tower stay unchanged. A GPU of compute
capability 8.9 multiplies float8 itself. Elsewhere the same arithmetic runs in fp32, which is for
tests and comparisons and gains nothing.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import torch
from torch import Tensor, nn

from calibrator.llm.layers.norms import Norm

DTYPE: Final = torch.float8_e4m3fn
MOST: Final = torch.finfo(DTYPE).max
LEAST_SCALE: Final = 1e-12  # for rows of zeros
CAPABILITY: Final = (8, 9)
MULTIPLE: Final = 16  # widths must be a multiple of it
LEFT: Final = ("in_proj_a", "in_proj_b")  # decay and strength of linear attention; they stay exact

log = logging.getLogger(__name__)


class Float8Linear(nn.Module):
    """A linear layer with its weight rounded to float8; no gradients."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scale = rounded(linear.weight.detach())
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)  # (out, in)
        self.register_buffer("scale", scale.T.contiguous())  # (1, out)
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        """Map states (.., in) to (.., out), in the dtype that a linear layer would return."""
        kind = states.device.type
        is_cast = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if is_cast else states.dtype
        values, scale = rounded(states.flatten(0, -2))
        if has_float8(states.device) and self.weight.dtype == DTYPE:
            found = torch._scaled_mm(
                values, self.weight.T, scale_a=scale, scale_b=self.scale, out_dtype=torch.bfloat16
            )
        else:
            with torch.autocast(kind, enabled=False):
                found = (values.float() @ self.weight.float().T) * scale * self.scale
        if self.bias is not None:
            found = found + self.bias
        return found.to(dtype).view(*states.shape[:-1], self.out_features)


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows (N, D) to float8 (N, D), and return them with their scales (N, 1) in fp32."""
    rows = rows.float()
    scale = (rows.abs().amax(dim=-1, keepdim=True) / MOST).clamp_(min=LEAST_SCALE)
    return (rows / scale).to(DTYPE), scale


def has_float8(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= CAPABILITY


def use_float8(text_model: Any) -> None:
    """Replace linear layers of a text model, and warn if its device has no float8.

    The model must be on the device where it will run.
    """
    for layer in text_model.layers:
        for part in [each for each in layer.modules() if not isinstance(each, nn.Linear)]:
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear) and name not in LEFT and _fits(child):
                    setattr(part, name, Float8Linear(child))
    for norm in [each for each in text_model.modules() if isinstance(each, Norm)]:
        norm.is_for_matrices = False  # keeps fp32, so that values are rounded only once
    device = next(text_model.parameters()).device
    if not has_float8(device):
        log.warning("float8 is computed the long way on %s, which is slower than without", device)


def _fits(linear: nn.Linear) -> bool:
    return linear.in_features % MULTIPLE == 0 and linear.out_features % MULTIPLE == 0
