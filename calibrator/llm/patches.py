"""The first layer of the vision tower as a matrix product.

Patches do not overlap, so transformers' three-dimensional convolution is a linear layer; as a
convolution it takes seconds in bf16 on some GPUs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class LinearPatches(nn.Module):
    """Patches (P, channels * frames * area) to embeddings (P, width), as the convolution does."""

    def __init__(self, convolution: nn.Conv3d) -> None:
        super().__init__()
        self.weight = nn.Parameter(convolution.weight.detach().flatten(1), requires_grad=False)
        bias = convolution.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, patches: Tensor) -> Tensor:
        return functional.linear(patches.to(self.weight.dtype), self.weight, self.bias)


def use_linear_patches(model: Any) -> None:
    """Replaces the convolution of a model that has one; for scoring: adapters do not know it."""
    visual = getattr(model.model, "visual", None)
    convolution = getattr(getattr(visual, "patch_embed", None), "proj", None)
    if isinstance(convolution, nn.Conv3d) and convolution.stride == convolution.kernel_size:
        visual.patch_embed = LinearPatches(convolution)  # type: ignore[union-attr]  # it has one
