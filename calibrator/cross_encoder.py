"""The embedded calibrator: a small BERT that reads question and answer together.

P(correct) = softmax over two logits, `i` and `ii` (paper B08, B09), from the encoder's [CLS] and
mean states; the log-odds of a side tower (`tower`) are added where the checkpoint has one. One
forward pass, no network, no other weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from calibrator.checkpoint import CheckpointConfig, EncoderConfig, read_config, sha256_of
from calibrator.errors import CheckpointError
from calibrator.familiarity import PREFIX, Familiarity, modest
from calibrator.layout import (
    PAD,
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
from calibrator.tower import PREFIX as TOWER
from calibrator.tower import Tower, tower_row

SCALE = ".scale"  # ends the name of the scales of a packed table


class CrossEncoderModel(nn.Module):
    """Token rows (B, T) -> logits (B, 2) of the labels `i` (incorrect) and `ii` (correct)."""

    def __init__(self, config: EncoderConfig, attention: str = "sdpa") -> None:
        super().__init__()
        bert = BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.intermediate,
            max_position_embeddings=config.positions,
            hidden_dropout_prob=0.0,  # drawing its noise costs a tenth of a training step on a CPU,
            attention_probs_dropout_prob=0.0,  # and in few epochs nothing is learned by heart
        )
        bert._attn_implementation = attention
        self.encoder = BertModel(bert, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.Linear(2 * config.hidden, config.hidden),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(config.hidden, 2),
        )

    def weaken(self, factor: float) -> None:
        """Multiplies the logits by `factor`; at 0 the model says nothing, and can still learn."""
        last = cast(nn.Linear, self.head[-1])
        with torch.no_grad():
            last.weight.mul_(factor)
            last.bias.mul_(factor)

    def ready_for_training(self) -> None:
        """bf16 weights, and the word embeddings as they ship, not to be trained."""
        words = self.encoder.embeddings.word_embeddings.weight
        with torch.no_grad():
            words.copy_(unpacked(*packed(words)))
        self.to(torch.bfloat16)
        words.requires_grad_(False)

    def features(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Token rows (B, T) -> the states of [CLS] and their mean, (B, 2 * hidden)."""
        states = self.encoder(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        kept = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
        mean = (states * kept).sum(1) / kept.sum(1)
        return torch.cat([states[:, 0], mean], dim=1)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(ids, mask, segments))  # (B, 2)
        return logits.float()


def collate(rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor, Tensor]:
    """Pads rows on the right: ids, mask and segments, each (B, longest)."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = 1
        segments[i, row.segment_b : len(row.ids)] = 1
    return ids, mask, segments


def judged(items: Sequence[Item]) -> list[Item]:
    """Items as they are judged: sentences that address the reader of an answer are taken off."""
    return [replace(item, answer=stripped(item.answer)) for item in items]


def packed(table: Tensor) -> tuple[Tensor, Tensor]:
    """A table (N, D) as int8 with an fp16 scale for each row: half of bf16, 8 bits a number."""
    scale = (table.float().abs().amax(1) / 127).clamp(min=1e-6).half()
    return torch.round(table.float() / scale.float()[:, None]).to(torch.int8), scale


def unpacked(table: Tensor, scale: Tensor) -> Tensor:
    return table.float() * scale.float()[:, None]


def choose_device(name: str) -> torch.device:
    """`auto` is the first GPU where there is one; raises CheckpointError for what is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # so torch says that it has no CUDA
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"device {name!r} cannot be used here: {reason}") from error


class CrossEncoder:
    """A loaded checkpoint; a Scorer."""

    def __init__(
        self,
        config: CheckpointConfig,
        model: CrossEncoderModel,
        tokenizer: Tokenizer,
        device: torch.device,
        threads: int | None = None,
        familiarity: Familiarity | None = None,
        tower: Tower | None = None,
    ) -> None:
        self.config = config
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.device = device
        self.threads = threads
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
        """One forward pass for all items; padding does not change a score."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)  # OpenMP keeps this for each calling thread
        items = judged(items)
        pieces = self._pieces(items)
        rows = self._assemble(items, pieces)
        with torch.inference_mode():
            features = self.model.features(*(t.to(self.device) for t in collate(rows)))
            logits = self.model.head(features).double().cpu().numpy()
            odds = logits[:, 1] - logits[:, 0] + self._tower_logits(items, pieces)
            scores = sigmoid(odds).tolist()
            distances = [0.0] * len(rows)
            if self.familiarity is not None:
                distances = self.familiarity.distances(features.cpu()).tolist()
        return [self._score(*found) for found in zip(scores, distances, rows, strict=True)]

    def _score(self, score: float, distance: float, row: TokenRow) -> Score:
        recalibration = self.config.recalibration
        confidence = recalibration.apply(score) if recalibration else score
        return Score(score, modest(confidence, distance, self.config.base_rate), row.is_truncated)


def _encoder_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's and head's weights in fp32; those packed in int8 are unpacked."""
    own = {k: t for k, t in state.items() if not k.startswith((PREFIX, TOWER))}
    return {
        k: unpacked(t, own[k + SCALE]) if k + SCALE in own else t.float()
        for k, t in own.items()
        if not k.endswith(SCALE)
    }


def load_cross_encoder(
    folder: Path, device: str = "auto", *, threads: int | None = None
) -> CrossEncoder:
    """Loads a checkpoint folder; raises CheckpointError for damaged or unmatched weights."""
    config = read_config(folder)
    weights = folder / "model.safetensors"
    try:
        if sha256_of(weights) != config.weights_sha256:
            raise CheckpointError(
                f"{weights} is not the file that calibrator.json names (sha256 differs)"
            )
        state = load_file(weights)
        tokenizer = load_tokenizer(folder)
    except CheckpointError:
        raise
    except Exception as error:  # tokenizers raises nothing more precise
        raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    try:
        model = CrossEncoderModel(config.encoder)
        familiarity = Familiarity.from_state(state)
        tower = Tower.from_state({k: t.numpy() for k, t in state.items() if k.startswith(TOWER)})
        model.load_state_dict(_encoder_weights(state), strict=True)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, KeyError) as error:
        raise CheckpointError(f"{weights} does not fit calibrator.json: {error}") from error
    return CrossEncoder(
        config, model, tokenizer, choose_device(device), threads, familiarity, tower
    )
