"""Whether an optional library is installed, asked before the work that needs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from calibrator.errors import MissingExtraError

DEVICES: Final = Path("/dev")
GPU_FILES: Final = ("nvidia[0-9]*", "kfd", "dxg")  # of NVIDIA's driver, AMD's, and WSL's
OF_TORCH: Final = ("torch", "transformers", "peft")
IMPORT_S: Final = 60.0  # that torch may take
PAPERS_MODEL: Final = "KevinDavidHayes/pinocchio-0.8b"
ON_A_GPU: Final = (
    f"`calibrator: {{checkpoint: {PAPERS_MODEL}}}` scores with the paper's model on it"
)


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return find_spec(module) is not None


def check_installed(module: str, package: str, extra: str) -> None:
    """Before the work: raises MissingExtraError where a module that it comes to is missing."""
    if not is_installed(module):
        raise MissingExtraError(package, extra)


def has_gpu_and_torch(devices: Path = DEVICES) -> bool:
    """Return whether the driver of a GPU and the extra `torch` are here, without importing it."""
    has_driver = any(any(devices.glob(pattern)) for pattern in GPU_FILES)
    return has_driver and all(map(is_installed, OF_TORCH))


def torch_sees_gpu() -> bool:
    """Ask torch in a process of its own whether it can compute on a GPU; takes seconds."""
    asked = "import torch; print(torch.cuda.is_available())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, timeout=IMPORT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == b"True"


def check_scikit_learn() -> None:
    """Raises MissingExtraError without scikit-learn, by which the small parts are fitted."""
    check_installed("sklearn", "scikit-learn", "train")
