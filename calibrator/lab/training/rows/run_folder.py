"""The folder of a training run, which holds its configuration and only one run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrator.errors import TrainingError


def adopt_folder(folder: Path, config: Mapping[str, Any], begun: Sequence[str]) -> None:
    """Create the folder of a run if missing, or check that it is this run's; write `train.json`.

    `config` is the run's configuration, which `train.json` holds as JSON. `begun` are names of
    files of which one exists once there is something to lose, such as `tower.npz`; only then must
    the saved configuration be the same, else it is replaced. Raises TrainingError where it differs,
    and where `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise TrainingError(f"{folder} is a file; a run needs a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "train.json"
    text = json.dumps(config, indent=1)
    has_begun = any((folder / name).exists() for name in begun)
    if has_begun and saved.exists() and saved.read_text() != text:
        raise TrainingError(
            f"{saved} is of a run with another configuration; choose another folder"
        )
    saved.write_text(text)
