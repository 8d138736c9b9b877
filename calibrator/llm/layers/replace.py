"""Replace a loaded model's layers by ones that give the same numbers at less cost.

They are for scoring alone: adapters are merged before, and nothing is trained afterwards.
"""

from __future__ import annotations

from typing import Any

from calibrator.llm.layers.last_layer import use_last_layer
from calibrator.llm.layers.linear_attention import use_fast_linear_attention
from calibrator.llm.layers.norms import use_fused_norms
from calibrator.llm.layers.patches import use_linear_patches


def text_model_of(model: Any) -> Any:
    """Return the part of a causal or image-text-to-text model that has the decoder's layers."""
    return getattr(model.model, "language_model", model.model)


def use_faster_layers(model: Any) -> None:
    """Replace all layers that have a faster form; weights keep their names."""
    use_linear_patches(model)
    text_model = text_model_of(model)
    use_fast_linear_attention(text_model)
    vision = getattr(model.config, "vision_config", None)
    use_last_layer(text_model, len(getattr(vision, "deepstack_visual_indexes", ())))
    use_fused_norms(text_model)
