"""Serve a language model as a scorer: prompts, images, the forward pass."""

__all__ = [
    "batches",
    "calibrator",
    "loading",
    "model",
    "pixels",
    "probe",
    "prompts",
    "released_api",
    "token_prompts",
]
