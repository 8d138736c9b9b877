"""What a model remembers of the beginning of a prompt, for rows that go on from there."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from calibrator.llm.serving.batches import ModelRow


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning that was read: `row`, and its keys, values and recurrent states."""

    row: ModelRow
    cache: DynamicCache
    device: torch.device

    def copies(self, count: int) -> DynamicCache:
        """A cache for so many rows; what they add to it leaves this one as it is."""
        cache = deepcopy(self.cache)
        if count > 1:
            # the only way to repeat that layers of linear attention have too
            cache.reorder_cache(torch.zeros(count, dtype=torch.long, device=self.device))  # type: ignore[arg-type]  # no LongTensor to torch
        return cache
