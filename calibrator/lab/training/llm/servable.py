"""Check that the layers for scoring compute a base model right, on a few tokens.

Training does not use those layers, so an unsuitable base would be found only when its checkpoint
is loaded, after hours.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from calibrator.errors import TrainingError
from calibrator.llm.layers.last_layer import LastLayer, read_at
from calibrator.llm.layers.replace import Norm, text_model_of

_TESTED: Final = ("qwen3_5", "qwen3_vl")  # the tests compare all layers of these
_TOKENS: Final = 12
_TOLERANCE: Final = 1e-3


def check_servable(model: Any) -> None:
    """Raise TrainingError for a base that could be trained, but not be served afterwards.

    Its last layer and its norms are computed as for scoring, and must give the numbers of
    transformers' own. Models whose type begins with `qwen3_5` or `qwen3_vl` pass unchecked, since
    the tests compare them. The model is unchanged afterwards.
    """
    kind = str(getattr(model.config, "model_type", "of an unknown kind"))
    if kind.startswith(_TESTED):
        return
    try:
        is_right = _is_last_layer_right(model) and _are_norms_right(text_model_of(model))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _refusal(kind, str(error)) from error
    if not is_right:
        raise _refusal(kind, "other numbers than transformers' own")


def _refusal(kind: str, why: str) -> TrainingError:
    """Return the error for a base of type `kind`, such as `llama`, with the reason."""
    return TrainingError(
        f"a base of the kind {kind!r} could be trained, but not be served: the layers for scoring "
        f"do not fit it ({why}). Known to fit are Qwen3.5, Qwen3-VL, Qwen3, Qwen2.5, Llama and "
        "SmolLM2"
    )


@torch.no_grad()
def _is_last_layer_right(model: Any) -> bool:
    """Return whether our last layer gives what the model's own gives, for the last of 12 tokens.

    The layer is replaced for one forward pass and then restored.
    """
    text_model = text_model_of(model)
    vocabulary = text_model.get_input_embeddings().weight
    ids = torch.arange(_TOKENS, device=vocabulary.device)[None] % len(vocabulary)
    own = text_model.layers[-1]
    before: Tensor = text_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
    text_model.layers[-1] = LastLayer(own)
    try:
        with read_at(torch.tensor([_TOKENS - 1], device=ids.device)):
            found = text_model(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        text_model.layers[-1] = own
    return found.shape[1] == 1 and _are_alike(before, found[:, 0])


@torch.no_grad()
def _are_norms_right(text_model: Any) -> bool:
    """Return whether our norms give what the last layer's two norms give, for -2 to 2."""
    layer = text_model.layers[-1]
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        states = torch.linspace(-2, 2, norm.weight.numel(), device=norm.weight.device)[None]
        if not _are_alike(norm(states), Norm(norm, is_for_matrices=False)(states)):
            return False
    return True


def _are_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal within 0.001, relative and absolute."""
    return torch.allclose(one.float(), other.float(), rtol=_TOLERANCE, atol=_TOLERANCE)
