"""Replace a loaded model's layers by ones that give the same numbers at less cost.

They are for scoring alone: adapters are merged before, and nothing is trained afterwards.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from calibrator.llm.layers.last_layer import use_last_layer
from calibrator.llm.layers.linear_attention import use_fast_linear_attention
from calibrator.llm.layers.norms import use_fused_norms


def text_model_of(model: Any) -> Any:
    """Return the part of a causal or image-text-to-text model that has the decoder's `layers`."""
    return getattr(model.model, "language_model", model.model)


def use_faster_layers(model: Any) -> None:
    """Replace in place all layers of a model that have a faster form; weights keep their names."""
    use_linear_patches(model)
    text_model = text_model_of(model)
    use_fast_linear_attention(text_model)
    vision = getattr(model.config, "vision_config", None)
    use_last_layer(text_model, len(getattr(vision, "deepstack_visual_indexes", ())))
    use_fused_norms(text_model)


class LinearPatches(nn.Module):
    """The first layer of a vision tower, from patches (P, channels * frames * area) to (P, width).

    Patches do not overlap, so transformers' three-dimensional convolution is a linear layer. As a
    convolution it takes seconds in bf16 on some GPUs.

    It has the convolution's own weights, under the names that they are saved by.
    """

    def __init__(self, convolution: nn.Conv3d) -> None:
        super().__init__()
        self.proj = convolution

    def forward(self, patches: Tensor) -> Tensor:
        """Return the embeddings (P, width) of patches (P, channels * frames * area)."""
        weight = self.proj.weight.flatten(1)
        return functional.linear(patches.to(weight.dtype), weight, self.proj.bias)


def use_linear_patches(model: Any) -> None:
    """Replace the vision tower's convolution of a model in place, if it has a fitting one."""
    visual = getattr(model.model, "visual", None)
    convolution = getattr(getattr(visual, "patch_embed", None), "proj", None)
    if isinstance(convolution, nn.Conv3d) and convolution.stride == convolution.kernel_size:
        visual.patch_embed = LinearPatches(convolution)  # type: ignore[union-attr]  # it has one
