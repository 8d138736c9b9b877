"""Replace a loaded model's layers by ones that give the same numbers at less cost.

They are for scoring alone: adapters are merged before, and nothing is trained afterwards.

Qwen3.5's layers of linear attention are computed in matrix products, with torch's own kernels only.
transformers' plain torch is written to be read: on a CPU its depthwise convolution takes 25 times
as long as in the tokens' own layout, and its delta rule six times as long as `gated_delta_rule`. On
a GPU flash-linear-attention has kernels for both, but choosing and compiling them takes a minute.

In the gated delta rule each head keeps a matrix S. A token with key k, query q, value v, write
strength beta and log decay g first fades S, then corrects it where S maps k to another value than
v, and then reads it:

    S <- exp(g) S,    S <- S + k (beta (v - k S)),    out = q S

Tokens are processed in chunks: within one, all corrections follow from a triangular system, and S
is carried from chunk to chunk (Yang et al. 2025, Gated Delta Networks, arXiv 2412.06464, section
3.3). Decays below exp(-40), which change no digit, are zero: smaller ones would become denormal
numbers, which a CPU multiplies many times slower.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

from calibrator.llm.layers.last_layer import use_last_layer

CHUNK: Final = 32  # tokens; measured on a CPU, 64 and 128 cost more
GPU_CHUNK: Final = 64  # on an H100 5 % more scores a second than with 32, 28 % more than with 16
FORGOTTEN: Final = -40.0  # log decay
EPSILON: Final = 1e-6  # added to the squares of keys and queries, as in transformers

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


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return outputs (B, L, H, V), fp32, and the state (B, H, K, V) after the last token.

    `query` and `key` are (B, L, G, K), of any length each; G divides H, and a group serves H / G
    consecutive heads. `value` is (B, L, H, V), `decay` (in log) and `beta` are (B, L, H). `state`
    is the one to continue from; None is zero. There are no gradients.
    """
    batch, length, heads, width = value.shape
    size = CHUNK if value.device.type == "cpu" else GPU_CHUNK
    repeats = heads // key.shape[2]
    scale = key.shape[3] ** -0.5
    queries = _chunks(_unit(query, repeats, scale), size)
    keys = _chunks(_unit(key, repeats, 1.0), size)
    values, strength = _chunks(value, size), _chunks(beta.unsqueeze(-1), size)
    # (B * H, N, C): each token's decay since its chunk's start
    faded = _chunks(decay.unsqueeze(-1), size).squeeze(-1).cumsum(-1)
    between = _decay(faded.unsqueeze(-1) - faded.unsqueeze(-2)).tril_()  # (B * H, N, C, C)
    weights = (queries @ keys.mT).mul_(between)
    system = (keys @ keys.mT).mul_(between).mul_(strength)
    # the systems of all chunks are solved together
    identity = torch.eye(size, device=value.device)
    solved = torch.linalg.solve_triangular(system, identity, upper=False, unitriangular=True)
    solved.mul_(strength.mT)
    written = keys * _decay(faded[..., -1:] - faded).unsqueeze(-1)  # faded to the chunk's end
    since = _decay(faded).unsqueeze(-1)
    queries.mul_(since)
    keys.mul_(since)
    end = since[:, :, -1:]
    if state is None:
        carried = values.new_zeros(batch * heads, key.shape[3], width)
    else:
        carried = state.float().flatten(0, 1).clone()
    for at in range(values.shape[1]):
        news = torch.baddbmm(values[:, at], keys[:, at], carried, alpha=-1)
        fixed = torch.bmm(solved[:, at], news)
        read = torch.bmm(queries[:, at], carried)
        values[:, at] = read.baddbmm_(weights[:, at], fixed)  # the values are not needed any more
        carried.mul_(end[:, at]).baddbmm_(written[:, at].mT, fixed)
    out = values.view(batch, heads, -1, width)[:, :, :length].transpose(1, 2)
    return out, carried.view(batch, heads, -1, width)


def _unit(x: Tensor, repeats: int, scale: float) -> Tensor:
    """Return vectors (B, L, G, K) of the length `scale`, in fp32, as (B, L, G * repeats, K)."""
    x = x.float()
    x = x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPSILON).mul_(scale)
    return x.repeat_interleave(repeats, dim=2) if repeats > 1 else x


def _chunks(x: Tensor, size: int) -> Tensor:
    """Return x (B, L, H, ..) copied to (B * H, N, C, ..), fp32; zeros fill the last chunk.

    C is `size`, and N the number of chunks.
    """
    batch, length, heads, *rest = x.shape
    count = -(-length // size)
    shape = (batch, heads, count * size, *rest)
    found = torch.zeros(shape, dtype=torch.float32, device=x.device)
    found[:, :, :length] = x.transpose(1, 2)
    return found.view(batch * heads, count, size, *rest)


def _decay(log: Tensor) -> Tensor:
    """Apply exp to a tensor in place and return it; values below `FORGOTTEN` become zero."""
    return functional.threshold(log, FORGOTTEN, -torch.inf, inplace=True).exp_()


class GatedDeltaNet(Qwen3_5GatedDeltaNet):
    """transformers' layer with its weights, for scoring; with gradients on it runs the original."""

    def forward(
        self,
        hidden_states: Tensor,
        cache_params: Any = None,
        attention_mask: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Return hidden states (B, L, width) after this layer, and update the cache in place.

        With gradients on, transformers' own layer computes them.
        """
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
        """Return the convolution of (B, L, channels) along L, after the cached earlier tokens.

        The cache is updated in place.
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
    """Replace layers of linear attention of a text model in place; weights and names stay."""
    for layer in text_model.layers:
        if isinstance(linear := getattr(layer, "linear_attn", None), Qwen3_5GatedDeltaNet):
            linear.__class__ = GatedDeltaNet
