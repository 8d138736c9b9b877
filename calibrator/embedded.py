"""The embedded calibrator: a tower over n-grams, with a forest or an encoder beside it.

P(correct) = softmax over two logits, `i` and `ii` (paper B08, B09): the sigmoid of their
difference, which is the log-odds of `tower` and `forest` plus those of the encoder's head. One
forward pass, no network, no other weights. The encoder runs on ONNX Runtime (`onnx_encoder`), or in
torch on other devices than the CPU (`torch_encoder`); all else is numpy. The shipped checkpoint is
a tower with a forest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.checkpoint import WEIGHTS, CheckpointConfig, EncoderConfig, read_config
from calibrator.errors import CheckpointError, MissingExtraError
from calibrator.familiarity import Familiarity, modest
from calibrator.forest import Forest
from calibrator.layout import (
    TokenRow,
    assemble,
    encode,
    is_clipped,
    load_tokenizer,
    tag_text,
)
from calibrator.ngrams import is_cut
from calibrator.recalibration import sigmoid
from calibrator.scorer import Item, Score
from calibrator.stripping import stripped
from calibrator.tower import Tower, TowerRow, tower_row
from calibrator.weights import Array, Floats, encoder_weights, read_weights

ON_CPU = ("auto", "cpu")


class Encoder(Protocol):
    """Reads token rows."""

    def __call__(self, rows: Sequence[TokenRow]) -> tuple[Floats, Floats]:
        """Features (B, 2 * hidden), the states of [CLS] and their mean, and logits (B, 2)."""
        ...


def judged(items: Sequence[Item]) -> list[Item]:
    """Items as they are judged: sentences that address the reader of an answer are taken off."""
    return [replace(item, answer=stripped(item.answer)) for item in items]


class EmbeddedCalibrator:
    """A loaded checkpoint; a Scorer."""

    def __init__(
        self,
        config: CheckpointConfig,
        encoder: Encoder | None,
        tokenizer: Tokenizer,
        familiarity: Familiarity | None = None,
        tower: Tower | None = None,
        forest: Forest | None = None,
    ) -> None:
        self.config = config
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.familiarity = familiarity
        self.tower = tower
        self.forest = forest
        self._source_models = {name: at + 1 for at, name in enumerate(config.source_models)}
        self._benchmarks = frozenset(config.benchmarks)

    @property
    def name(self) -> str:
        return self.config.version

    def token_rows(self, items: Sequence[Item]) -> list[TokenRow]:
        """Items as the encoder reads them; unknown models and benchmarks get no tag (paper B03)."""
        items = judged(items)
        return self._assemble(self._pieces(items))

    def _pieces(self, items: Sequence[Item]) -> list[list[list[int]]]:
        """The word pieces of each item's tags, question and answer."""
        texts = [text for item in items for text in (self._tags(item), item.question, item.answer)]
        ids = encode(self.tokenizer, texts, self.config.layout)
        return [ids[at : at + 3] for at in range(0, len(ids), 3)]

    def _assemble(self, pieces: Sequence[Sequence[list[int]]]) -> list[TokenRow]:
        layout = self.config.layout
        return [assemble(tags, question, answer, layout) for tags, question, answer in pieces]

    def _is_clipped(self, item: Item) -> bool:
        """Whether the tokenizer saw the two ends alone of a text."""
        layout = self.config.layout
        return is_clipped(item.question, layout) or is_clipped(item.answer, layout)

    def _tags(self, item: Item) -> str:
        benchmark = item.benchmark if item.benchmark in self._benchmarks else None
        return tag_text(benchmark, self._known_model(item))

    def _known_model(self, item: Item) -> str | None:
        model = (item.source_model or "").lower()
        return model if model in self._source_models else None

    def _in_tower(
        self, items: Sequence[Item], pieces: Sequence[Sequence[list[int]]]
    ) -> tuple[NDArray[np.float64], Floats]:
        """What tower and forest say of each item, (B,) log-odds, and the tower's features."""
        assert self.tower is not None
        rows, names = self._tower_rows(items, pieces)
        odds, features = self.tower.read(rows, names)
        if self.forest is not None:
            odds = self.forest.joined(odds, rows, names)
        return odds, features

    def _tower_rows(
        self, items: Sequence[Item], pieces: Sequence[Sequence[list[int]]]
    ) -> tuple[list[TowerRow], list[int]]:
        rows = [
            tower_row(item.question, item.answer, question, answer)
            for item, (_, question, answer) in zip(items, pieces, strict=True)
        ]
        names = [self._source_models.get(self._known_model(item) or "", 0) for item in items]
        return rows, names

    def tower_rows(self, items: Sequence[Item]) -> tuple[list[TowerRow], list[int]]:
        """Items as the tower reads them, and the numbers of their models' names."""
        items = judged(items)
        return self._tower_rows(items, self._pieces(items))

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """One pass for each item; neighbours do not change a score."""
        items = judged(items)
        pieces = self._pieces(items)
        odds = np.zeros(len(items))
        if self.tower is not None:
            odds, features = self._in_tower(items, pieces)
        if self.encoder is None:
            cut = [is_cut(question, answer) for _, question, answer in pieces]
        else:
            rows = self._assemble(pieces)
            cut = [row.is_truncated for row in rows]
            features, logits = self.encoder(rows)
            odds = odds + np.diff(logits.astype(np.float64))[:, 0]
        distances = [0.0] * len(items)
        if self.familiarity is not None:
            distances = self.familiarity.distances(features).tolist()
        return [
            Score(score, self._confidence(score, distance), was_cut or self._is_clipped(item))
            for score, distance, was_cut, item in zip(
                sigmoid(odds).tolist(), distances, cut, items, strict=True
            )
        ]

    def _confidence(self, score: float, distance: float) -> float:
        recalibration = self.config.recalibration
        confidence = recalibration.apply(score) if recalibration else score
        return modest(confidence, distance, self.config.base_rate)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint folder holds; `weights` are the encoder's and its head's."""

    config: CheckpointConfig
    weights: dict[str, Array]
    tokenizer: Tokenizer
    familiarity: Familiarity | None
    tower: Tower | None
    forest: Forest | None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads a checkpoint folder; raises CheckpointError for damaged or unmatched weights."""
    config = read_config(folder)
    if not isinstance(config, CheckpointConfig):
        raise CheckpointError(f"{folder} holds a language model, not an embedded calibrator")
    path = folder / WEIGHTS
    try:
        state = read_weights(path, config.weights_sha256)
        tokenizer = load_tokenizer(folder)
    except CheckpointError:
        raise
    except Exception as error:  # tokenizers raises nothing more precise
        raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    try:
        familiarity, tower = Familiarity.from_state(state), Tower.from_state(state)
        forest = Forest.from_state(state)
        weights = encoder_weights(state, config.encoder)
        if config.encoder is None and tower is None:
            raise ValueError("there is neither an encoder nor a tower")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} does not fit calibrator.json: {error}") from error
    return Checkpoint(config, weights, tokenizer, familiarity, tower, forest)


def load_embedded(
    folder: Path, device: str = "auto", *, threads: int | None = None
) -> EmbeddedCalibrator:
    """A checkpoint ready to score; an encoder runs on the CPU (`auto`, `cpu`) or on a device of
    torch's, a tower always on the CPU.

    Raises CheckpointError for a folder that cannot be used or a device that is not there, and
    MissingExtraError where an encoder needs a package that is not there.
    """
    found = read_checkpoint(folder)
    geometry = found.config.encoder
    encoder = None if geometry is None else _encoder(geometry, found.weights, device, threads)
    return EmbeddedCalibrator(
        found.config, encoder, found.tokenizer, found.familiarity, found.tower, found.forest
    )


def _encoder(
    config: EncoderConfig, weights: Mapping[str, Array], device: str, threads: int | None
) -> Encoder:
    extra = "encoder" if device in ON_CPU else "torch"
    try:
        if device in ON_CPU:
            from calibrator.onnx_encoder import OnnxEncoder

            return OnnxEncoder(config, weights, threads)
        from calibrator.torch_encoder import load_torch_encoder
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} (for device {device!r})", extra) from error
    return load_torch_encoder(config, weights, device)
