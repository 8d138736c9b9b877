"""Load base and adapter from their files into a model, with every weight accounted for.

transformers and peft only warn about weights that do not fit, and the model then scores as if it
had never been trained. Here these are errors: a missing weight of the base, a key of the adapter
that matches nothing, a missing one, an adapter that changes no score (the canary).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from calibrator.checkpoints.checkpoint import digest_of
from calibrator.checkpoints.llm_config import AdapterConfig, Architecture, LlmConfig
from calibrator.errors import CheckpointError

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
CLASSES = {
    "image-text-to-text": AutoModelForImageTextToText,
    "causal-lm": AutoModelForCausalLM,
}
_LISTED = 3  # keys that an error names


def check_digest(config: LlmConfig, folder: Path) -> None:
    """Raise CheckpointError unless the sha256 of a folder's weights is that of its config."""
    if digest_of(folder) != config.weights_sha256:
        raise CheckpointError(
            f"the weights in {folder} are not those that calibrator.json names (sha256 differs)"
        )


def load_base(folder: Path, architecture: Architecture) -> Any:
    """Load a base model of this architecture from a folder, in fp32 on the CPU.

    Raises CheckpointError if it cannot be read, or a weight is missing or does not fit.
    """
    with silence_loading():
        try:
            model, found = CLASSES[architecture].from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as error:  # transformers, safetensors and torch may raise anything
            raise CheckpointError(f"the base in {folder} cannot be read: {error}") from error
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if found.get(kind):
            raise CheckpointError(f"the base in {folder} has {kind}: {_join_names(found[kind])}")
    return model.eval()


def load_adapter(model: Any, folder: Path, wanted: AdapterConfig) -> PeftModel:
    """Add the LoRA adapter of a folder to a base, not merged, and return the adapted model.

    The base is changed in place. Raises CheckpointError for an adapter that differs from `wanted`,
    or whose weights are not exactly those that the base needs.
    """
    config = _lora_config(folder, wanted)
    try:
        state = load_file(folder / ADAPTER)
    except Exception as error:  # safetensors' own, or OSError
        raise CheckpointError(f"{folder / ADAPTER} cannot be read: {error}") from error
    with silence_loading():
        try:
            adapted = get_peft_model(model, config)
            set_peft_model_state_dict(adapted, state)
        except Exception as error:
            raise CheckpointError(f"the adapter in {folder} does not fit: {error}") from error
    expected = set(get_peft_model_state_dict(adapted))
    missing, strange = expected - set(state), set(state) - expected
    if missing or strange:
        raise CheckpointError(
            f"the adapter in {folder} is not one for this base: of {len(expected)} weights "
            f"{len(missing)} are missing{_in_brackets(missing)} and {len(strange)} match nothing"
            f"{_in_brackets(strange)}"
        )
    return adapted.eval()


def _lora_config(folder: Path, wanted: AdapterConfig) -> LoraConfig:
    """Return the configuration of the adapter in a folder.

    Raises CheckpointError if it cannot be read, is no LoRA, changes the base, or differs from
    `wanted` in rank or alpha.
    """
    path = folder / ADAPTER_CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        kind = values.get("peft_type")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if kind != "LORA":
        raise CheckpointError(f"{path}: an adapter of kind {kind!r}, only LORA is read")
    try:
        config: LoraConfig = LoraConfig.from_pretrained(str(folder))
    except Exception as error:
        raise CheckpointError(f"{path} is no LoRA configuration: {error}") from error
    for name, value, expected in (
        ("r", config.r, wanted.rank),
        ("alpha", config.lora_alpha, wanted.alpha),
    ):
        if expected is not None and value != expected:
            raise CheckpointError(f"{path} has {name} {value}, calibrator.json says {expected}")
    if not isinstance(config.init_lora_weights, bool):  # pissa and the like change the base
        raise CheckpointError(f"{path}: init_lora_weights {config.init_lora_weights!r} is not read")
    config.inference_mode = True
    return config


def _join_names(keys: Any) -> str:
    """Return the first three of some keys, sorted, separated by commas."""
    return ", ".join(sorted(map(str, keys))[:_LISTED])


def _in_brackets(keys: set[str]) -> str:
    """Return the first three keys as ` (a, b, c)`; "" for none."""
    return f" ({_join_names(keys)})" if keys else ""


@contextmanager
def silence_loading() -> Iterator[None]:
    """Suppress progress bars and warnings of transformers and peft within the context.

    Problems still raise errors.
    """
    logging: Any = transformers_logging  # it has no types
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses an old API of transformers
            yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()
