"""Configure the training of a language-model calibrator, and find what it begins from.

The paper's values (checklist B05, E01-E06) are the defaults. What it does not state (E09) is chosen
here: linear warm-up over 3 % of the steps, then a cosine to zero; dropout 0.05 before each adapter;
gradients no longer than 1; a fixed seed. Names are hidden in some rows, so that the calibrator also
works without them (B03). Sixteen rows a step are sixteen altogether, however many processes
share them (V13: the paper's 1 x 16 on each of four GPUs would be 64).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
from calibrator.checkpoints.hub import download, is_hub_name
from calibrator.checkpoints.llm_config import (
    HERE,
    AdapterConfig,
    Architecture,
    Elicitation,
    LlmConfig,
    preset,
)
from calibrator.errors import TrainingError
from calibrator.rows.selection import Selection

PAPER = "paper"


@dataclass(frozen=True, slots=True)
class LlmTrainConfig:
    """All that decides the result of a run, except the adapter's rank, set by the preset (E01)."""

    data: tuple[str, ...]
    name: str = ""  # empty for the preset's or the start's
    preset: str = PAPER
    base: str = ""  # a folder or hub name; empty for the preset's
    start: str = ""  # a checkpoint to continue from (G06), which keeps its base, prompt and rank
    is_text_only: bool = False  # a vision base gets no image and no placeholder
    elicitation: Elicitation = "logit"
    selection: Selection = field(default_factory=Selection)
    validation_rows: int = 4_000  # for the choice of the epoch, recalibration and quality
    probe_rows: int = 20_000  # rows whose states a probe is fitted on
    epochs: int = 3
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    batch_rows: int = 16  # for each step, over all processes (E04)
    warmup_share: float = 0.03
    dropout: float = 0.05  # of a new adapter; a continued one keeps its own
    gradient_norm: float = 1.0
    model_dropout: float = 0.2  # chance to hide the answering model's name
    benchmark_dropout: float = 0.5  # chance to hide the benchmark, which is unknown in service
    micro_tokens: int = 8_192  # of one forward pass, with padding; 1 is a pass for each row
    has_checkpointing: bool = True  # activations are computed again in the backward pass
    device: str = "auto"

    @property
    def seed(self) -> int:
        """The seed of all random draws, which is that of the rows' selection."""
        return self.selection.seed

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as nested dictionaries and values, as in `train.json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run: configuration, base, and the folder of an adapter to continue.

    `config` is the calibrator's, without the results of training.
    """

    config: LlmConfig
    base: Path
    adapter: Path | None = None


def find_start(config: LlmTrainConfig) -> RunStart:
    """Return configuration, base folder and adapter folder from which a run begins.

    It begins from the checkpoint `config.start`, or if this is empty from `config.preset` with a
    new adapter. A base with a hub name is downloaded. The configuration gets `config.name` unless
    empty, and loses recalibration and canary scores. Raises TrainingError, CheckpointError or
    HubError where start or base cannot be used.
    """
    begun = _start_from_checkpoint(config) if config.start else _start_from_preset(config)
    name = config.name or begun.config.name
    return replace(begun, config=replace(begun.config, name=name, recalibration=None, canary=()))


def _start_from_preset(config: LlmTrainConfig) -> RunStart:
    """Return the start from `config.preset` with a new adapter, on `config.base` or its own base.

    Images are shown only if the base reads them and `config.is_text_only` is False. An adapter
    without alpha gets twice its rank. Raises TrainingError for a preset without an adapter and for
    an unusable base.
    """
    found = preset(config.preset)
    if found.adapter is None:
        raise TrainingError(f"preset {config.preset!r} has no adapter that could be trained")
    folder, reference, revision = _locate_base(config.base or found.base)
    architecture = architecture_of(folder)
    is_shown = architecture == "image-text-to-text" and not config.is_text_only
    return RunStart(
        replace(
            found,
            base=reference,
            base_revision=revision,
            architecture=architecture,
            images=found.images if is_shown else None,
            adapter=replace(found.adapter, alpha=found.adapter.alpha or 2 * found.adapter.rank),
        ),
        folder,
    )


def _start_from_checkpoint(config: LlmTrainConfig) -> RunStart:
    """Return the start from the checkpoint `config.start`, ours or a released one.

    If its weights are a whole model, this is the base of a new adapter; otherwise its adapter is
    continued on its own base, a folder inside the checkpoint or elsewhere. Raises TrainingError if
    `config` names a base or is text only, and for a checkpoint that is no language model;
    CheckpointError or HubError if one cannot be found.
    """
    if config.base or config.is_text_only:
        raise TrainingError(
            "a checkpoint to start from has its own base; leave out --base and --text-only"
        )
    folder = resolve_checkpoint(config.start)
    found = read_config(folder, config.start)
    if not isinstance(found, LlmConfig):
        raise TrainingError(f"{config.start} is no language model; it cannot be gone on from here")
    if found.base == HERE:
        whole = replace(found, base=str(folder.resolve()), adapter=AdapterConfig())
        return RunStart(whole, folder)
    local = folder / found.base
    location = str(local) if local.is_dir() else found.base
    base, reference, revision = _locate_base(location, found.base_revision)
    return RunStart(replace(found, base=reference, base_revision=revision), base, folder)


def _locate_base(base: str, revision: str | None = None) -> tuple[Path, str, str | None]:
    """Return (folder, name, commit) of the base model `base`, a folder or a hub name.

    The name is the one that a checkpoint stores: an absolute path, or the hub name without
    `@revision`. The commit is None for a folder. A hub name is downloaded, at `revision` if given.
    Raises TrainingError for GGUF, and for a base that is neither a folder nor a hub name; HubError
    if the download fails.
    """
    folder = Path(base).expanduser()
    if folder.suffix == ".gguf" or (folder.is_dir() and _has_only_gguf(folder)):
        raise TrainingError(
            f"{base} is GGUF, which is not trained: make a folder of safetensors from it with "
            "python -m calibrator.llm.from_gguf FILE FOLDER (it needs pip install gguf), and name "
            "the folder"
        )
    if folder.is_dir():
        return folder, str(folder.resolve()), None
    if not is_hub_name(base):
        raise TrainingError(f"there is no folder {base!r}, and it is no hub name")
    folder = download(base, revision, instead="name a folder with --base")
    return folder, base.partition("@")[0], folder.name  # a snapshot is named after its commit


def _has_only_gguf(folder: Path) -> bool:
    """Return whether the folder has a `.gguf` file and no `config.json`."""
    return not (folder / "config.json").exists() and any(folder.glob("*.gguf"))


def architecture_of(base: Path) -> Architecture:
    """Return `image-text-to-text` or `causal-lm` by the class names in a base's `config.json`.

    Classes that end in `ForConditionalGeneration` read images, those in `ForCausalLM` read text
    only. Raises TrainingError for other classes and for a file that cannot be read.
    """
    path = base / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        classes = [str(name) for name in values["architectures"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TrainingError(f"{path} does not say what kind of model this is: {error!r}") from error
    if any(name.endswith("ForConditionalGeneration") for name in classes):
        return "image-text-to-text"
    if any(name.endswith("ForCausalLM") for name in classes):
        return "causal-lm"
    raise TrainingError(f"{path} is of {', '.join(classes)}: no language model of a known kind")
