"""Replace a loaded model's layers by ones that give the same numbers at less cost.

They are for scoring alone: adapters are merged before, and nothing is trained afterwards.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from calibrator.llm.layers.last_layer import use_last_layer
from calibrator.llm.layers.linear_attention import use_fast_linear_attention

PASSES_ON: Final = "cpu"  # where separate passes cost less than the kernel


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


class Norm(nn.Module):
    """A root mean square norm with the weights of transformers', under their saved name.

    On a GPU it is one kernel, in the dtype that matrices read. As transformers writes them, a norm
    is six passes over the states in fp32, and each of the two to four matrices after it casts the
    result once more.

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
