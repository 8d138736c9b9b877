"""Compute the last layer only where the model is read: at one position of each row.

All its tokens are needed for keys and values; queries, the output and the MLP are needed at the
last one alone. It works for attention layers of Qwen3.5 (whose queries include a gate), Qwen3-VL
and Llama.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LAST: ContextVar[Tensor | None] = ContextVar("last", default=None)  # separate for each thread


@contextmanager
def read_at(last: Tensor) -> Iterator[None]:
    """Make last layers return (B, 1, width) within the context: row b's state at `last[b]`.

    `last` is (B,), and the batch is padded on the right.
    """
    token = _LAST.set(last)
    try:
        yield
    finally:
        _LAST.reset(token)


class LastLayer(nn.Module):
    """A decoder layer of full attention with the weights of transformers' layer, under its names.

    Outside of `read_at` it computes all positions, as transformers does.
    """

    def __init__(self, layer: Any) -> None:
        """Take the parts of transformers' decoder layer."""
        super().__init__()
        self.input_layernorm: nn.Module = layer.input_layernorm
        self.self_attn: Any = layer.self_attn
        self.has_norms = hasattr(layer.self_attn, "q_norm")  # for queries and keys; Llama has none
        self.post_attention_layernorm: nn.Module = layer.post_attention_layernorm
        self.mlp: nn.Module = layer.mlp

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        past_key_values: Any = None,
        **others: Any,
    ) -> Tensor:
        """Return states (B, L, width) after this layer, or (B, 1, width) within `read_at`.

        A cache in `past_key_values` is extended.
        """
        normed = self.input_layernorm(hidden_states)
        if (last := _LAST.get()) is None:
            found, _ = self.self_attn(
                normed,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                **others,
            )
        else:
            found = self._attend(normed, position_embeddings, past_key_values, last)
            hidden_states = _select_last(hidden_states, last)
        hidden_states = hidden_states + found
        after: Tensor = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + after

    def _attend(
        self, normed: Tensor, turns: tuple[Tensor, Tensor], cache: Any, last: Tensor
    ) -> Tensor:
        """Return the attention's output (B, 1, width) at the places `last`; update the cache.

        `normed` (B, L, width) are the states, `turns` cosines and sines of the positions.
        """
        attention = self.self_attn
        size = attention.head_dim
        keys = attention.k_proj(normed).unflatten(-1, (-1, size))
        if self.has_norms:
            keys = attention.k_norm(keys)
        keys = keys.transpose(1, 2)
        values = attention.v_proj(normed).unflatten(-1, (-1, size)).transpose(1, 2)
        keys = _rotate(keys, *turns)
        if cache is not None:
            keys, values = cache.update(keys, values, attention.layer_idx)
        projected = attention.q_proj(_select_last(normed, last))
        is_gated = projected.shape[-1] == 2 * attention.o_proj.in_features
        projected = projected.unflatten(-1, (-1, size * (1 + is_gated)))
        query = projected[..., :size]
        if self.has_norms:
            query = attention.q_norm(query)
        query = query.transpose(1, 2)
        before = keys.shape[2] - normed.shape[1]
        is_seen = torch.arange(keys.shape[2], device=last.device) <= (before + last)[:, None]
        found = functional.scaled_dot_product_attention(
            _rotate(query, *(_select_last(each, last) for each in turns)).to(keys.dtype),
            keys,
            values.to(keys.dtype),
            attn_mask=is_seen[:, None, None],
            scale=attention.scaling,
            enable_gqa=True,
        )
        found = found.transpose(1, 2)
        if is_gated:
            found = found * projected[..., size:].sigmoid()
        out: Tensor = attention.o_proj(found.flatten(2))
        return out


def _select_last(states: Tensor, last: Tensor) -> Tensor:
    """Return each row's state at its position `last` (B,): (B, L, D) to (B, 1, D)."""
    return states[torch.arange(len(states), device=states.device), last][:, None]


def _rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return states (B, H, L, D) with rotary positions applied to the first R of D numbers.

    Number i is turned with number i + R/2; the other D - R stay. `cosine` and `sine` are (B, L, R).
    """
    width = cosine.shape[-1]
    cosine, sine = cosine[:, None], sine[:, None]
    turned, rest = states[..., :width], states[..., width:]
    left, right = turned.chunk(2, dim=-1)
    turned = turned * cosine + torch.cat([-right, left], dim=-1) * sine
    return torch.cat([turned, rest], dim=-1)


def use_last_layer(text_model: Any, deepstack: int = 0) -> None:
    """Replace the last layer of a text model in place if it is an attention layer.

    `deepstack` is the number of first layers that add vision features at all positions; nothing is
    replaced if the last layer is one of them.
    """
    layers: nn.ModuleList = text_model.layers
    if len(layers) > deepstack and hasattr(layers[-1], "self_attn"):
        layers[-1] = LastLayer(layers[-1])
