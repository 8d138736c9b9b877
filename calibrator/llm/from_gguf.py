"""Make a folder of safetensors from a GGUF file: `python -m calibrator.llm.from_gguf FILE FOLDER`.

A base has to be such a folder. transformers reads GGUF with the packages gguf and accelerate, but
does not save what it has read so; the weights are copied into a plain model of the same shape.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from calibrator.errors import TrainingError

# of the configuration that transformers makes: how the file's weights were packed
_PACKED = ("quantization_config", "dtype", "torch_dtype")


def convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to `folder`, the weights as bfloat16.

    Raises TrainingError where the file cannot be read, or a package is missing.
    """
    try:
        importlib.import_module("gguf")  # transformers reads through it
    except ImportError:
        raise TrainingError("reading GGUF needs a package: pip install gguf") from None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not file.is_file():
        raise TrainingError(f"there is no file {file}")
    try:
        read = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise TrainingError(f"{file} cannot be read: {error}") from error
    shape = {k: v for k, v in read.config.to_dict().items() if k not in _PACKED}
    config = type(read.config)(**shape)
    plain: Any = type(read)(config)  # the class that transformers chose
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    plain.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Convert the file named on the command line; exit with a message if that fails."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except TrainingError as error:
        sys.exit(f"from_gguf: {error}")


if __name__ == "__main__":
    main()
