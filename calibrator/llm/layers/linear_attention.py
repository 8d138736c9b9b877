"""Compute Qwen3.5's layers of linear attention in matrix products, with torch's own kernels only.

transformers' plain torch is written to be read: on a CPU its depthwise convolution takes 25 times
as long as in the tokens' own layout, and its delta rule six times as long as `delta_rule`. On a GPU
flash-linear-attention has kernels for both, but choosing and compiling them takes a minute.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

from calibrator.llm.layers.delta_rule import gated_delta_rule


class GatedDeltaNet(Qwen3_5GatedDeltaNet):
    """transformers' layer with its weights, for scoring; with gradients on it runs the original."""

    def forward(
        self,
        hidden_states: Tensor,
        cache_params: Any = None,
        attention_mask: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Return hidden states (B, L, width) after this layer, and update the cache."""
        if torch.is_grad_enabled():
            after: Tensor = super().forward(
                hidden_states, cache_params, attention_mask=attention_mask, **others
            )
            return after
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[:, :, None]
        mixed = self._convolve(self.in_proj_qkv(hidden_states), cache_params)
        sizes = [self.key_dim, self.key_dim, self.value_dim]
        query, key, value = torch.split(mixed, sizes, dim=-1)
        rate = functional.softplus(self.in_proj_a(hidden_states).float() + self.dt_bias.float())
        strength = self.in_proj_b(hidden_states).float().sigmoid()
        before = None
        if cache_params is not None:
            before = cache_params.get_recurrent_state(self.layer_idx, state_idx=0)
        with torch.autocast(hidden_states.device.type, enabled=False):
            found, state = gated_delta_rule(
                query.view(*query.shape[:2], -1, self.head_k_dim),
                key.view(*key.shape[:2], -1, self.head_k_dim),
                value.view(*value.shape[:2], -1, self.head_v_dim),
                -self.A_log.float().exp() * rate,
                strength,
                before,
            )
        if cache_params is not None:
            cache_params.update_recurrent_state(state, self.layer_idx)
        gate = self.in_proj_z(hidden_states).unflatten(-1, (-1, self.head_v_dim))
        out: Tensor = self.out_proj(self.norm(found, gate).flatten(2))
        return out

    def _convolve(self, projected: Tensor, cache: Any) -> Tensor:
        """Compute the convolution of (B, L, channels) along L, after the cached earlier tokens.

        The cache is updated.
        """
        weight = self.conv1d.weight
        size = weight.shape[-1]
        before = None if cache is None else cache.get_conv_state(self.layer_idx, state_idx=0)
        if before is None:
            before = projected.new_zeros(len(projected), len(weight), size)
        whole = torch.cat([before.mT[:, 1:].to(projected.dtype), projected], dim=1)
        if cache is not None:
            cache.update_conv_state(whole[:, -size:].mT, self.layer_idx, conv_kernel_size=size)
        # an image of height 1 with innermost channels, which is convolved fast
        image = whole.mT.unsqueeze(2)
        found = functional.conv2d(image, weight.unsqueeze(2), groups=len(weight))
        return functional.silu(found, inplace=True).squeeze(2).mT


def use_fast_linear_attention(text_model: Any) -> None:
    """Replace such layers of a text model; weights and their names stay."""
    for layer in text_model.layers:
        if isinstance(linear := getattr(layer, "linear_attn", None), Qwen3_5GatedDeltaNet):
            linear.__class__ = GatedDeltaNet
