"""The embedded calibrator: a small BERT that reads question and answer together.

P(correct) = softmax over two logits, `i` and `ii` (paper B08, B09), from the encoder's [CLS] and
mean states; the log-odds of a side tower (`tower`) are added where the checkpoint has one. One
forward pass, no network, no other weights. The encoder runs on ONNX Runtime (`onnx_encoder`), or in
torch on other devices than the CPU (`torch_encoder`); all else is numpy.
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
from calibrator.layout import (
    TokenRow,
    assemble,
    encode,
    is_clipped,
    load_tokenizer,
    tag_text,
)
from calibrator.recalibration import sigmoid
from calibrator.scorer import Item, Score
from calibrator.stripping import stripped
from calibrator.tower import Tower, tower_row
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


class CrossEncoder:
    """A loaded checkpoint; a Scorer."""

    def __init__(
        self,
        config: CheckpointConfig,
        encoder: Encoder,
        tokenizer: Tokenizer,
        familiarity: Familiarity | None = None,
        tower: Tower | None = None,
    ) -> None:
        self.config = config
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.familiarity = familiarity
        self.tower = tower
        self._source_models = {name: at + 1 for at, name in enumerate(config.source_models)}
        self._benchmarks = frozenset(config.benchmarks)

    @property
    def name(self) -> str:
        return self.config.version

    def token_rows(self, items: Sequence[Item]) -> list[TokenRow]:
        """Items as the encoder reads them; unknown models and benchmarks get no tag (paper B03)."""
        items = judged(items)
        return self._assemble(items, self._pieces(items))

    def _pieces(self, items: Sequence[Item]) -> list[list[list[int]]]:
        """The word pieces of each item's tags, question and answer."""
        texts = [text for item in items for text in (self._tags(item), item.question, item.answer)]
        ids = encode(self.tokenizer, texts, self.config.layout)
        return [ids[at : at + 3] for at in range(0, len(ids), 3)]

    def _assemble(
        self, items: Sequence[Item], pieces: Sequence[Sequence[list[int]]]
    ) -> list[TokenRow]:
        layout = self.config.layout
        rows = [assemble(tags, question, answer, layout) for tags, question, answer in pieces]
        return [
            replace(row, is_truncated=True)
            if is_clipped(item.question, layout) or is_clipped(item.answer, layout)
            else row
            for item, row in zip(items, rows, strict=True)
        ]

    def _tags(self, item: Item) -> str:
        benchmark = item.benchmark if item.benchmark in self._benchmarks else None
        return tag_text(benchmark, self._known_model(item))

    def _known_model(self, item: Item) -> str | None:
        model = (item.source_model or "").lower()
        return model if model in self._source_models else None

    def _tower_logits(
        self, items: Sequence[Item], pieces: Sequence[Sequence[list[int]]]
    ) -> NDArray[np.float64]:
        """What the side tower says of each item, (B,) log-odds; zeros without a tower."""
        if self.tower is None:
            return np.zeros(len(items))
        rows = [
            tower_row(item.question, item.answer, question, answer)
            for item, (_, question, answer) in zip(items, pieces, strict=True)
        ]
        names = [self._source_models.get(self._known_model(item) or "", 0) for item in items]
        return self.tower.logits(rows, names)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """One pass for each item; neighbours do not change a score."""
        items = judged(items)
        pieces = self._pieces(items)
        rows = self._assemble(items, pieces)
        features, logits = self.encoder(rows)
        odds = np.diff(logits.astype(np.float64))[:, 0] + self._tower_logits(items, pieces)
        scores = sigmoid(odds).tolist()
        distances = [0.0] * len(rows)
        if self.familiarity is not None:
            distances = self.familiarity.distances(features).tolist()
        return [self._score(*found) for found in zip(scores, distances, rows, strict=True)]

    def _score(self, score: float, distance: float, row: TokenRow) -> Score:
        recalibration = self.config.recalibration
        confidence = recalibration.apply(score) if recalibration else score
        return Score(score, modest(confidence, distance, self.config.base_rate), row.is_truncated)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint folder holds; `weights` are the encoder's and its head's."""

    config: CheckpointConfig
    weights: dict[str, Array]
    tokenizer: Tokenizer
    familiarity: Familiarity | None
    tower: Tower | None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads a checkpoint folder; raises CheckpointError for damaged or unmatched weights."""
    config = read_config(folder)
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
        weights = encoder_weights(state, config.encoder)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} does not fit calibrator.json: {error}") from error
    return Checkpoint(config, weights, tokenizer, familiarity, tower)


def load_cross_encoder(
    folder: Path, device: str = "auto", *, threads: int | None = None
) -> CrossEncoder:
    """A checkpoint ready to score, on the CPU (`auto`, `cpu`) or on a device of torch's.

    Raises CheckpointError for a folder that cannot be used or a device that is not there, and
    MissingExtraError where the device needs torch and there is none.
    """
    found = read_checkpoint(folder)
    encoder = _encoder(found.config.encoder, found.weights, device, threads)
    return CrossEncoder(found.config, encoder, found.tokenizer, found.familiarity, found.tower)


def _encoder(
    config: EncoderConfig, weights: Mapping[str, Array], device: str, threads: int | None
) -> Encoder:
    if device in ON_CPU:
        from calibrator.onnx_encoder import OnnxEncoder

        return OnnxEncoder(config, weights, threads)
    try:
        from calibrator.torch_encoder import load_torch_encoder
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} (for device {device!r})", "torch") from error
    return load_torch_encoder(config, weights, device)
