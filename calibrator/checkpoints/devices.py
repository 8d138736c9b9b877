"""The device and number format of torch."""

from __future__ import annotations

import torch

from calibrator.errors import CheckpointError


def choose_device(name: str) -> torch.device:
    """Return the torch device of a name; `auto` is the first GPU, or the CPU without one.

    Raises CheckpointError for a device that is missing.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch raises both where it has no CUDA
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"device {name!r} cannot be used here: {reason}") from error


def default_dtype(device: torch.device) -> torch.dtype:
    """Return bf16 for a GPU that supports it (E06), fp16 for an older GPU, else fp32."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
