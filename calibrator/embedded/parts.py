"""The parts of a checkpoint of the embedded calibrator, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from calibrator.checkpoints.checkpoint import EVIDENCE, WEIGHTS, CheckpointConfig, read_config
from calibrator.embedded.familiarity import Familiarity
from calibrator.errors import CheckpointError
from calibrator.features.abilities import Abilities
from calibrator.features.forest import Forest
from calibrator.features.tower import Tower
from calibrator.features.weights import Array, check_names, read_weights
from calibrator.readers.calls import CallTrees
from calibrator.readers.inspection import Inspector
from calibrator.readers.knowledge import Knowledge
from calibrator.readers.opinion import SecondStage
from calibrator.text.word_pieces import load_tokenizer


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a checkpoint; None is a part that the checkpoint lacks."""

    tower: Tower | None = None
    forest: Forest | None = None
    familiarity: Familiarity | None = None
    inspector: Inspector | None = None
    calls: CallTrees | None = None
    opinion: SecondStage | None = None
    knowledge: Knowledge | None = None
    abilities: Abilities | None = None
    evidence: Mapping[str, Array] | None = None  # arrays of `evidence.safetensors`


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint folder."""

    config: CheckpointConfig
    tokenizer: Tokenizer
    parts: Parts


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder: configuration, tokenizer and parts.

    Raises CheckpointError for a language model's folder and for missing, damaged or unmatched
    files.
    """
    config = read_config(folder)
    if not isinstance(config, CheckpointConfig):
        raise CheckpointError(f"{folder} holds a language model, not an embedded calibrator")
    path = folder / WEIGHTS
    checks: Mapping[str, Array] | None = None
    try:
        state = read_weights(path, config.weights_sha256)
        if config.evidence_sha256:
            checks = read_weights(folder / EVIDENCE, config.evidence_sha256)
        tokenizer = load_tokenizer(folder)
    except CheckpointError:
        raise
    except Exception as error:  # tokenizers raises nothing more precise
        raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    try:
        parts = Parts(
            Tower.from_state(state),
            Forest.from_state(state),
            Familiarity.from_state(state),
            Inspector.from_state(state),
            CallTrees.from_state(state),
            SecondStage.from_state(state),
            Knowledge.from_state(state),
            Abilities.from_state(state),
            checks,
        )
        check_names(state)
        if parts.tower is None:
            raise ValueError("there is no tower")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} does not fit calibrator.json: {error}") from error
    return Checkpoint(config, tokenizer, parts)
