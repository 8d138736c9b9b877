"""The encoder in torch, for training and for serving on a GPU.

`onnx_encoder` computes the same from the same weights without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.checkpoints.devices import choose_device
from calibrator.features.weights import Array, Floats, all_in_fp32, packed, unpacked
from calibrator.text.layout import PAD, TokenRow


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
            # dropout costs a tenth of a training step on a CPU, and few epochs do not overfit
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
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
        """Multiply the logits by `factor`; at 0 they are 0, and the model can still learn."""
        last = cast(nn.Linear, self.head[-1])
        with torch.no_grad():
            last.weight.mul_(factor)
            last.bias.mul_(factor)

    def ready_for_training(self) -> None:
        """Convert the weights to bf16, and round and freeze the word embeddings as shipped."""
        words = self.encoder.embeddings.word_embeddings.weight
        with torch.no_grad():
            words.copy_(torch.from_numpy(unpacked(*packed(words.float().numpy()))))
        self.to(torch.bfloat16)
        words.requires_grad_(False)

    def features(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Return the features (B, 2 * hidden) of token rows (B, T).

        They are the state of [CLS] and the mean of all states.
        """
        states = self.encoder(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        kept = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
        mean = (states * kept).sum(1) / kept.sum(1)
        return torch.cat([states[:, 0], mean], dim=1)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(ids, mask, segments))  # (B, 2)
        return logits.float()


def collate(rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad rows on the right. Returns ids, mask and segments, each (B, longest)."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = 1
        segments[i, row.segment_b : len(row.ids)] = 1
    return ids, mask, segments


class TorchEncoder:
    """An encoder from token rows to features (B, 2 * hidden) and logits (B, 2); it pads a batch."""

    def __init__(self, model: CrossEncoderModel, device: torch.device) -> None:
        self.model = model.to(device).eval()
        self.device = device

    def __call__(self, rows: Sequence[TokenRow]) -> tuple[Floats, Floats]:
        with torch.inference_mode():
            features = self.model.features(*(t.to(self.device) for t in collate(rows)))
            logits = self.model.head(features)
        return features.cpu().numpy(), logits.cpu().numpy()


def load_weights(model: CrossEncoderModel, weights: Mapping[str, Array]) -> CrossEncoderModel:
    """Copy a checkpoint's weights into the model. Raises RuntimeError if they do not fit."""
    state = {name: torch.tensor(array) for name, array in all_in_fp32(weights).items()}
    model.load_state_dict(state, strict=True)
    return model


def load_base(model: CrossEncoderModel, folder: Path) -> None:
    """Copy the base weights into the encoder. Raises RuntimeError if one is missing.

    The head starts at zero, so that the first scores are the side tower's alone.
    """
    state = load_file(folder / "model.safetensors")
    wanted = model.encoder.state_dict().keys()
    model.encoder.load_state_dict(
        {name: state[name] for name in wanted if name in state}, strict=True
    )
    model.weaken(0)


def load_torch_encoder(
    config: EncoderConfig, weights: Mapping[str, Array], device: str
) -> TorchEncoder:
    """Load the encoder on a device. Raises CheckpointError for a missing device."""
    return TorchEncoder(load_weights(CrossEncoderModel(config), weights), choose_device(device))
