"""Where torch computes, and in which numbers."""

from __future__ import annotations

import torch

from calibrator.errors import CheckpointError


def choose_device(name: str) -> torch.device:
    """`auto` is the first GPU where there is one; raises CheckpointError for what is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # so torch says that it has no CUDA
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"device {name!r} cannot be used here: {reason}") from error


def default_dtype(device: torch.device) -> torch.dtype:
    """bf16 on a GPU that has it (E06), fp16 on an older one, fp32 elsewhere."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
