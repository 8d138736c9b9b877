"""Compute the first layer of the vision tower as a matrix product.

Patches do not overlap, so transformers' three-dimensional convolution is a linear layer. As a
convolution it takes seconds in bf16 on some GPUs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class LinearPatches(nn.Module):
    """A layer from patches (P, channels * frames * area) to embeddings (P, width).

    It has the convolution's own weights, under the names that they are saved by.
    """

    def __init__(self, convolution: nn.Conv3d) -> None:
        super().__init__()
        self.proj = convolution

    def forward(self, patches: Tensor) -> Tensor:
        weight = self.proj.weight.flatten(1)
        return functional.linear(patches.to(weight.dtype), weight, self.proj.bias)


def use_linear_patches(model: Any) -> None:
    """Replace the convolution of a model that has one."""
    visual = getattr(model.model, "visual", None)
    convolution = getattr(getattr(visual, "patch_embed", None), "proj", None)
    if isinstance(convolution, nn.Conv3d) and convolution.stride == convolution.kernel_size:
        visual.patch_embed = LinearPatches(convolution)  # type: ignore[union-attr]  # it has one
