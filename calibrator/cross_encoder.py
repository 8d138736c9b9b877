"""The embedded calibrator: a small BERT that reads question and answer together.

P(correct) = softmax over two logits, `i` and `ii` (paper B08, B09), from the encoder's [CLS] and
mean states. One forward pass, no network, no other weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from calibrator.checkpoint import CheckpointConfig, EncoderConfig, read_config, sha256_of
from calibrator.errors import CheckpointError
from calibrator.familiarity import PREFIX, Familiarity, modest
from calibrator.layout import PAD, TokenRow, assemble, encode, is_clipped, tag_text
from calibrator.scorer import Item, Score


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
        )
        bert._attn_implementation = attention
        self.encoder = BertModel(bert, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.Linear(2 * config.hidden, config.hidden),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(config.hidden, 2),
        )

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
    ) -> None:
        self.config = config
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.device = device
        self.threads = threads
        self.familiarity = familiarity
        self._source_models = frozenset(config.source_models)
        self._benchmarks = frozenset(config.benchmarks)

    @property
    def name(self) -> str:
        return self.config.version

    def token_rows(self, items: Sequence[Item]) -> list[TokenRow]:
        """Items as the model reads them; an unknown model or benchmark gets no tag (paper B03)."""
        layout = self.config.layout
        tags = [self._tags(item) for item in items]
        texts = [
            text
            for item, tag in zip(items, tags, strict=True)
            for text in (tag, item.question, item.answer)
        ]
        ids = encode(self.tokenizer, texts, layout)
        rows = [assemble(ids[at], ids[at + 1], ids[at + 2], layout) for at in range(0, len(ids), 3)]
        return [
            replace(row, is_truncated=True)
            if is_clipped(item.question, layout) or is_clipped(item.answer, layout)
            else row
            for item, row in zip(items, rows, strict=True)
        ]

    def _tags(self, item: Item) -> str:
        benchmark = item.benchmark if item.benchmark in self._benchmarks else None
        model = (item.source_model or "").lower()
        return tag_text(benchmark, model if model in self._source_models else None)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """One forward pass for all items; padding does not change a score."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)  # OpenMP keeps this for each calling thread
        rows = self.token_rows(items)
        with torch.inference_mode():
            features = self.model.features(*(t.to(self.device) for t in collate(rows)))
            scores = torch.softmax(self.model.head(features).float(), dim=1)[:, 1].tolist()
            distances = [0.0] * len(rows)
            if self.familiarity is not None:
                distances = self.familiarity.distances(features.cpu()).tolist()
        return [self._score(*found) for found in zip(scores, distances, rows, strict=True)]

    def _score(self, score: float, distance: float, row: TokenRow) -> Score:
        recalibration = self.config.recalibration
        confidence = recalibration.apply(score) if recalibration else score
        return Score(score, modest(confidence, distance, self.config.base_rate), row.is_truncated)


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
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except CheckpointError:
        raise
    except Exception as error:  # tokenizers raises nothing more precise
        raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        model = CrossEncoderModel(config.encoder)
        familiarity = Familiarity.from_state(state)
        weights_of_model = {k: t.float() for k, t in state.items() if not k.startswith(PREFIX)}
        model.load_state_dict(weights_of_model, strict=True)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, KeyError) as error:
        raise CheckpointError(f"{weights} does not fit calibrator.json: {error}") from error
    return CrossEncoder(config, model, tokenizer, choose_device(device), threads, familiarity)
