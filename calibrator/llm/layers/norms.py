"""Compute root mean square norms in one kernel on a GPU, in the dtype that matrices read.

As transformers writes them, a norm is six passes over the states in fp32, and each of the two to
four matrices after it casts the result once more.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

PASSES_ON: Final = "cpu"  # where separate passes cost less than the kernel


class Norm(nn.Module):
    """A norm with the weights of transformers', under the name that they are saved by.

    `is_for_matrices` says that only matrices read the result; it is then in autocast's dtype.
    """

    def __init__(self, norm: Any, *, is_for_matrices: bool) -> None:
        """Take the weight and the epsilon of transformers' norm."""
        super().__init__()
        self.weight: nn.Parameter = norm.weight
        has_offset = hasattr(norm, "eps")  # Qwen3.5 has it; Qwen3-VL has variance_epsilon
        self.offset = 1.0 if has_offset else 0.0
        self.eps: float = norm.eps if has_offset else norm.variance_epsilon
        self.is_for_matrices = is_for_matrices

    def forward(self, states: Tensor) -> Tensor:
        """Return states after RMS norm, computed in fp32, in the next layer's dtype."""
        kind = states.device.type
        is_cast = self.is_for_matrices and torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if is_cast else states.dtype
        weight = self.weight.float() + self.offset
        states = states.float()
        if kind == PASSES_ON:
            squares = states.pow(2).mean(-1, keepdim=True)
            return (states * torch.rsqrt(squares + self.eps) * weight).to(dtype)
        with torch.autocast(kind, enabled=False):
            return functional.rms_norm(states, weight.shape, weight, self.eps).to(dtype)


def use_fused_norms(text_model: Any) -> None:
    """Replace in place the norms of all layers, and those of queries and keys, if there are any."""
    for layer in text_model.layers:
        for name in ("input_layernorm", "post_attention_layernorm"):
            setattr(layer, name, Norm(getattr(layer, name), is_for_matrices=True))
        if (attention := getattr(layer, "self_attn", None)) is not None:
            for name in ("q_norm", "k_norm"):
                if not hasattr(attention, name):  # Llama has none
                    continue
                setattr(attention, name, Norm(getattr(attention, name), is_for_matrices=False))
