"""Checks for optional libraries, made before the work that needs them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from calibrator.errors import MissingExtraError

DEVICES: Final = Path("/dev")
GPU_FILES: Final = ("nvidia[0-9]*", "kfd", "dxg")  # files of NVIDIA's, AMD's and WSL's drivers
OF_TORCH: Final = ("torch", "transformers", "peft")
IMPORT_S: Final = 60.0  # seconds that the import of torch may take
PAPERS_MODEL: Final = "KevinDavidHayes/pinocchio-0.8b"
ON_A_GPU: Final = (
    f"`calibrator: {{checkpoint: {PAPERS_MODEL}}}` scores with the paper's model on it"
)


def is_installed(module: str) -> bool:
    """Return whether a library such as `torch` can be imported, without importing it."""
    return find_spec(module) is not None


def check_installed(module: str, package: str, extra: str) -> None:
    """Raise MissingExtraError if `module` is missing, which comes in `package` with `extra`."""
    if not is_installed(module):
        raise MissingExtraError(package, extra)


def has_gpu_and_torch(devices: Path = DEVICES) -> bool:
    """Return whether a GPU's driver is in `devices` and the extra `torch` is installed.

    Neither torch is imported nor the GPU used.
    """
    has_driver = any(any(devices.glob(pattern)) for pattern in GPU_FILES)
    return has_driver and all(map(is_installed, OF_TORCH))


def torch_sees_gpu() -> bool:
    """Return whether torch can compute on a GPU, asked in a separate process; takes seconds.

    False also if torch is missing or its import takes more than a minute.
    """
    program = "import torch; print(torch.cuda.is_available())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=IMPORT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == b"True"


def check_scikit_learn() -> None:
    """Raise MissingExtraError if scikit-learn, by which small models are fitted, is missing."""
    check_installed("sklearn", "scikit-learn", "train")
