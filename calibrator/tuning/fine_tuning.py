"""From a checkpoint and labelled replies of a deployment to a checkpoint of its own (A09, G06).

    start = TunableCheckpoint("embedded")
    read = start.read(items)                    # in batches; then Readings of all of them
    start.write(folder, fit_tuned(readings), facts, quality)

What is written is an ordinary checkpoint: it loads, scores and can be tuned again like any other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import (
    WEIGHTS,
    CheckpointConfig,
    copy_evidence,
    read_config,
    resolve_checkpoint,
    write_config,
)
from calibrator.checkpoints.digests import sha256_of
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.embedded.evidence import Evidence, ReadReply, read_reply
from calibrator.embedded.familiarity import PREFIX as FAMILIARITY
from calibrator.embedded.familiarity import Familiarity
from calibrator.errors import TrainingError
from calibrator.features.abilities import PREFIX as ABILITIES
from calibrator.features.forest import PREFIX as FOREST
from calibrator.features.tower import PREFIX as TOWER
from calibrator.features.tower import Tower
from calibrator.features.weights import Array, read_weights
from calibrator.loading import FAKE
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import log_odds, probability, sigmoid
from calibrator.rows.rows import Row, labels_of
from calibrator.scorer import Item, Score
from calibrator.tuning.last_layer import Readings, Tuned

BATCH = 64


@dataclass(frozen=True, slots=True)
class Read:
    """What a checkpoint makes of n items; `confidence` (n,) is what it says of them itself, the
    others as in `Readings`."""

    confidence: Floats
    odds: Floats
    traits: Floats
    white: Floats
    distances: Floats
    in_order: Floats
    shifts: Floats
    slopes: Floats
    offsets: Floats

    def taken(self, at: Sequence[int]) -> Read:
        """Those at these positions."""
        return Read(*(getattr(self, name)[at] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: Sequence[Read]) -> Read:
        """All of them behind each other; there must be one at least."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__slots__))


class TunableCheckpoint:
    """The checkpoint that tuning begins with; raises TrainingError unless it is a tower without an
    encoder, CheckpointError where it cannot be used."""

    def __init__(self, name: str) -> None:
        if name.startswith(FAKE):
            raise TrainingError(f"{name!r} is no calibrator that could be trained")
        self.folder = resolve_checkpoint(name)
        _check_kind(name, self.folder)
        calibrator = load_embedded(self.folder)
        if calibrator.parts.tower is None or calibrator.encoder is not None:
            raise TrainingError(
                f"checkpoint {name!r} has an encoder; verdicts fine-tune a calibrator without one, "
                "as the shipped one is: train this one on files, "
                "`pinocchio export --labelled -o FILE.jsonl` and "
                f"`pinocchio train-encoder FILE.jsonl --start {name} -o FOLDER`"
            )
        self._calibrator: EmbeddedCalibrator = calibrator
        self._tower: Tower = calibrator.parts.tower

    @property
    def config(self) -> CheckpointConfig:
        return self._calibrator.config

    @property
    def version(self) -> str:
        return self._calibrator.name

    @property
    def base_rate(self) -> float:
        return self.config.base_rate

    @property
    def threshold(self) -> float:
        """Familiarity's distance that counts as 1."""
        known = self._calibrator.parts.familiarity
        return float(np.squeeze(known.threshold)) if known else 1.0

    def learns_from(self, item: Item) -> bool:
        """Whether fine-tuning has to do with it: not with calls that trees of their own judge."""
        return not self._calibrator.reads_as_call(item)

    def read(self, items: Sequence[Item]) -> Read:
        """Read items that it learns from; a few dozen at a time bound the memory."""
        slopes, offsets = np.ones(len(items)), np.zeros(len(items))
        evidence = self._calibrator.evidence
        if evidence is not None:
            replies = [read_reply(item) for item in items]
            items = [each.bare for each in replies]
            slopes, offsets = _effect(evidence, replies)
        read = self._calibrator.read_texts(items)
        known = self._calibrator.parts.familiarity
        likeness = self._calibrator.confidence(read)
        odds = slopes * [log_odds(each) for each in likeness.tolist()] + offsets
        arrays = (
            likeness if evidence is None else sigmoid(odds),
            read.odds,
            self._tower.traits(read.rows),
            known.white(read.features) if known else np.zeros((len(items), 0)),
            read.distances,
            read.in_order,
            read.shifts,
            slopes,
            offsets,
        )
        return Read(*(np.asarray(each, dtype=np.float64) for each in arrays))

    def read_rows(
        self, rows: Sequence[Row], progress: Callable[[int], None] = lambda _: None
    ) -> tuple[Readings, Floats]:
        """Labelled rows that it learns from, which all count alike, and what it says of them
        itself, (n,)."""
        parts = []
        for at in range(0, len(rows), BATCH):
            parts.append(self.read([row.item("served") for row in rows[at : at + BATCH]]))
            progress(len(parts[-1].odds))
        read = Read.joined(parts)
        found = Readings(
            read.odds,
            read.traits,
            read.white,
            read.distances,
            read.in_order,
            read.shifts,
            read.slopes,
            read.offsets,
            [(row.model or "").lower() for row in rows],
            [row.question_id for row in rows],
            labels_of(rows),
            np.ones(len(rows)),
        )
        return found, read.confidence

    def write(
        self, folder: Path, tuned: Tuned, facts: Mapping[str, Any], quality: Mapping[str, Any]
    ) -> CheckpointConfig:
        """Writes the tuned checkpoint; `facts` say what it learnt from.

        Raises TrainingError as `check_output`.
        """
        check_output(folder)
        state = dict(read_weights(self.folder / WEIGHTS, self.config.weights_sha256))
        names = list(self.config.source_models)
        names += [name for name in tuned.models if name not in names]
        biases = np.array([0.0, *(tuned.models.get(name, 0.0) for name in names)])
        forest = self._calibrator.parts.forest
        share = forest.share if forest else 1.0  # that is kept of what a tower adds up
        for number in sorted({key.split(".")[1] for key in state if key.startswith(TOWER)}):
            _retune(state, f"{TOWER}{number}.", tuned, biases, share)
        if forest is not None:
            _retune_forest(state, tuned.slope, len(biases))
        if self._calibrator.parts.abilities is not None:
            _name_more(state, f"{ABILITIES}odds", len(biases))
        if known := self._calibrator.parts.familiarity:
            state |= _with_centre(known, tuned)
        config = replace(
            self.config,
            recalibration=tuned.platt,
            source_models=tuple(names),
            training={**self.config.training, "tuned": {"from": self.version, **facts}},
            quality=dict(quality),
        )
        return _write(folder, config, state, self.folder / "tokenizer.json")


def _effect(evidence: Evidence, replies: Sequence[ReadReply]) -> tuple[Floats, Floats]:
    """Return slope and offset (n,) by which evidence changes the log-odds of each likeness.

    Whatever decides, `weigh` is linear in these log-odds, so two of them tell the line.
    """
    zero, one = (
        np.array([log_odds(each.confidence) for each in evidence.weigh(replies, probes)])
        for probes in ([Score(p, p)] * len(replies) for p in map(probability, (0.0, 1.0)))
    )
    return one - zero, zero


def check_output(folder: Path) -> None:
    """Raises TrainingError where there is something in the folder already."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TrainingError(f"{folder} is not an empty folder: name another one")


def _check_kind(name: str, folder: Path) -> None:
    """Raises TrainingError for a calibrator that is a language model."""
    if isinstance(config := read_config(folder, name), LlmConfig):
        raise TrainingError(
            f"checkpoint {name!r} is a language model ({config.architecture}); verdicts fine-tune "
            "the embedded calibrator here. For this one: `pinocchio export --labelled -o "
            f"FILE.jsonl` and `pinocchio train-llm FILE.jsonl --start {name} -o FOLDER`"
        )


def _retune(state: dict[str, Array], at: str, tuned: Tuned, biases: Floats, share: float) -> None:
    """One tower's last layer in place: all that it adds up times the slope, then what is new, of
    which `share` is kept later.

    `biases` (1 + names,) begin with no name's; a name that is new begins as no name.
    """
    names = state[f"{at}names"].astype(np.float32)
    names = np.vstack([names, np.repeat(names[:1], len(biases) - len(names), axis=0)])
    names[:, 0] = names[:, 0] * tuned.slope + biases / share
    table = state[f"{at}table"].astype(np.int8)  # a copy
    table[:, 0] = np.round(table[:, 0] * tuned.slope).astype(np.int8)
    state[f"{at}names"], state[f"{at}table"] = names, table
    added_to: dict[str, Any] = {
        "linear": tuned.traits / share,
        "last.bias": tuned.intercept / share,
    }
    for name in ("last.weight", "last.bias", "asked.weight", "asked.bias", "linear"):
        scaled = state[f"{at}{name}"].astype(np.float64) * tuned.slope
        state[f"{at}{name}"] = (scaled + added_to.get(name, 0.0)).astype(np.float32)


def _retune_forest(state: dict[str, Array], slope: float, names: int) -> None:
    """All that a forest adds up times the slope, in place; a name that is new begins as no name."""
    for name in ("value", "base"):
        scaled = state[f"{FOREST}{name}"].astype(np.float64) * slope
        state[f"{FOREST}{name}"] = scaled.astype(np.float32)
    _name_more(state, f"{FOREST}ability", names)


def _name_more(state: dict[str, Array], key: str, names: int) -> None:
    """One number a name for so many names, in place; a name that is new begins as no name."""
    known = state[key]
    state[key] = np.concatenate([known, np.repeat(known[:1], names - len(known))])


def _with_centre(known: Familiarity, tuned: Tuned) -> dict[str, Array]:
    """What was learnt from is known from now on."""
    found = known.with_centre(tuned.centre.astype(np.float32))
    return {key: array for key, array in found.state().items() if key.startswith(FAMILIARITY)}


def _write(
    folder: Path, config: CheckpointConfig, state: Mapping[str, Array], tokenizer: Path
) -> CheckpointConfig:
    """`calibrator.json` last: without it the folder is no checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(each) for name, each in state.items()}, folder / WEIGHTS)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    copy_evidence(tokenizer.parent, folder)
    config = replace(config, weights_sha256=sha256_of(folder / WEIGHTS))
    write_config(folder, config)
    return config
