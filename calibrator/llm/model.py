"""The forward pass of a language-model calibrator: two label logits at the last position.

Nothing is computed that is not needed: no other position's logits, no other row of the head. The
two rows are multiplied in fp32, whatever the rest runs in (B09).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calibrator.llm.pixels import Pixels
from calibrator.llm.probe import Probe, features_of


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A prompt's ids with its images, in the order of their tokens."""

    ids: list[int]
    images: tuple[Pixels, ...] = ()


class LabelModel:
    """A language model that is read at its two labels alone.

    `model` is a causal or an image-text-to-text model; `label_ids` its tokens for incorrect and
    correct.
    """

    def __init__(self, model: Any, label_ids: tuple[int, int]) -> None:
        self.model = model
        self.body: nn.Module = model.model  # gives hidden states, without the head
        self.label_ids = label_ids
        self.pad_id = 0  # masked; any id of the vocabulary
        self.probe: Probe | None = None  # reads the state in place of the labels (K14)
        self.has_odds = False  # the probe reads the labels' log-odds too
        self.image_id: int | None = getattr(model.config, "image_token_id", None)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    def label_rows(self) -> Tensor:
        """The head's two rows (2, hidden), fp32; the head may be tied to the embeddings or not."""
        head: Tensor = self.model.get_output_embeddings().weight
        return head[list(self.label_ids)].float()

    @torch.inference_mode()
    def logits(self, rows: Sequence[ModelRow]) -> Tensor:
        """Logits (B, 2) of incorrect and correct, fp32 on the CPU."""
        return self.read_out(self.hidden(rows))

    def read_out(self, states: Tensor) -> Tensor:
        """Logits (B, 2) of last states (B, hidden): the labels' own, or what the probe makes of
        them, fp32 on the CPU."""
        logits = (states @ self.label_rows().T).cpu()
        if self.probe is None:
            return logits
        features = features_of(states.cpu(), logits[:, 1] - logits[:, 0], has_odds=self.has_odds)
        odds = self.probe.odds(features)
        return torch.stack([torch.zeros_like(odds), odds], dim=1)

    def hidden(self, rows: Sequence[ModelRow]) -> Tensor:
        """The last position's states (B, hidden) after the final norm, fp32 on the device."""
        inputs = self.inputs(rows)
        states: Tensor = self.body(**inputs, use_cache=False).last_hidden_state
        return states[:, -1].float()

    def inputs(self, rows: Sequence[ModelRow]) -> dict[str, Tensor]:
        """Padded on the left, so that every row ends at the last position."""
        longest = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), longest), self.pad_id)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, longest - len(row.ids) :] = torch.tensor(row.ids)
            mask[at, longest - len(row.ids) :] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        images = [image for row in rows for image in row.images]
        if images:
            inputs |= {
                "pixel_values": torch.cat([torch.from_numpy(each.patches) for each in images]),
                "image_grid_thw": torch.tensor([each.grid for each in images]),
                "mm_token_type_ids": ((ids == self.image_id) & mask.bool()).long(),
            }
        return {name: value.to(self.device) for name, value in inputs.items()}
