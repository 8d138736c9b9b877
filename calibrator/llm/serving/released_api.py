"""Accept the keyword arguments of the authors' own package, so that its calls work here too (G05).

Pinocchio(adapter=.., base_model=.., device_map=.., torch_dtype=.., use_placeholder_image=..)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import CheckpointError
from calibrator.llm.serving.calibrator import LlmCalibrator, load_llm

ADAPTER: Final = "KevinDavidHayes/pinocchio-0.8b"
DTYPES: Final = ("float32", "bfloat16", "float16")


def load_released(
    adapter: str | None = None,
    base_model: str | None = None,
    device_map: Any = None,
    torch_dtype: Any = None,
    use_placeholder_image: bool = True,
) -> LlmCalibrator:
    """Load an adapter, by default the released one, on its own base or another.

    The arguments are those of the authors' package. A folder without a `calibrator.json` is read as
    the released weights are. Another base, or no placeholder image, changes the scores: they get
    another name, and no recalibration. Raises CheckpointError and HubError as `load_scorer` does.
    """
    name = adapter or ADAPTER
    folder = resolve_checkpoint(name)
    config = read_config(folder, ADAPTER)
    if not isinstance(config, LlmConfig):
        raise CheckpointError(f"{name!r} is no adapter of a language model")
    if base_model is not None and base_model != config.base:
        changed = f"{config.name}-on-{base_model.rstrip('/').rpartition('/')[2]}"
        config = replace(
            config,
            name=changed,
            base=base_model,
            base_revision=None,
            recalibration=None,
            quality={},
        )
    if not use_placeholder_image and config.images is not None:
        images = replace(config.images, placeholder=None)
        config = replace(
            config,
            name=f"{config.name}-no-placeholder",
            images=images,
            recalibration=None,
            quality={},
        )
    return load_llm(config, folder, _device(device_map), dtype=_dtype(torch_dtype))


def _device(device_map: Any) -> str:
    """Return the device of a `device_map`: a name, a map to one device, or None for `auto`.

    Raises CheckpointError for a map to several.
    """
    if isinstance(device_map, Mapping):
        devices = {str(each) for each in device_map.values()}
        if len(devices) != 1:
            raise CheckpointError(f"device_map {dict(device_map)} must name one device")
        return devices.pop()
    return "auto" if device_map is None else str(device_map)


def _dtype(torch_dtype: Any) -> str | None:
    """Return the name of a dtype, such as `bfloat16`, given as torch's object or as text.

    None for None and `auto`. Raises CheckpointError for others than `DTYPES`.
    """
    if torch_dtype is None or torch_dtype == "auto":
        return None
    name = str(torch_dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CheckpointError(f"torch_dtype {name!r} is not one of {', '.join(DTYPES)}")
    return name
