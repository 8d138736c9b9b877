"""Keep a model's cache of a prompt's beginning, for rows that continue from there."""

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
        """Return a cache for this number of rows; what they add does not change the original."""
        cache = deepcopy(self.cache)
        if count > 1:
            # the only way to repeat a cache that layers of linear attention support too
            cache.reorder_cache(torch.zeros(count, dtype=torch.long, device=self.device))  # type: ignore[arg-type]  # no LongTensor to torch
        return cache
