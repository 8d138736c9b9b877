"""Locate the base of a checkpoint, without torch, for users that only need its tokenizer."""

from __future__ import annotations

from pathlib import Path

from calibrator.checkpoints.hub import download
from calibrator.checkpoints.llm_config import HERE, LlmConfig


def base_folder(config: LlmConfig, folder: Path) -> Path:
    """Return the folder of the base's weights and tokenizer; a hub name is downloaded once.

    Raises CheckpointError or HubError.
    """
    if config.base == HERE:
        return folder
    for beside in (Path(config.base).expanduser(), folder / config.base):
        if beside.is_dir():
            return beside
    return download(config.base, config.base_revision)
