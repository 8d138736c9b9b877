"""Keep the n-grams of all rows in one array, and train a table of weights on those of a batch.

A batch uses some ten thousand of the table's 262,144 rows. Only these are taken out, summed,
and moved along their gradients. torch's sparse gradients give the same, and take half as long again
to be sorted and joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from calibrator.features.ngrams import PARTS
from calibrator.features.tower import BUCKETS, TowerRow

MEAN_KEPT, SQUARE_KEPT, LEAST = 0.9, 0.999, 1e-8  # Adam's (Kingma and Ba, 2015)

Ints = NDArray[np.int64]


class GramLists:
    """The (PARTS, N) lists of n-grams, one after the other."""

    def __init__(self, rows: Sequence[TowerRow]) -> None:
        """Copy the n-grams of all rows into one array, part after part."""
        lists = [[row.grams[part] for row in rows] for part in range(PARTS)]
        self._lengths = np.array([[len(ids) for ids in part] for part in lists], dtype=np.int64)
        ends = np.cumsum(self._lengths).reshape(self._lengths.shape)
        self._starts = ends - self._lengths
        none = np.zeros(0, np.int32)
        self._ids = np.concatenate([none, *chain.from_iterable(lists)])

    def grams_at(
        self, at: Ints, rng: np.random.Generator | None = None, dropped: float = 0.0
    ) -> tuple[Ints, Ints]:
        """Return the n-grams of the rows `at` in one array, and the bounds of their lists.

        The lists of all B rows for the first part come first, then those for the second. List i is
        from bounds[i] to bounds[i + 1]; the bounds are (PARTS * B + 1,). With `rng`, each n-gram is
        left out with the chance `dropped`.
        """
        lengths, starts = self._lengths[:, at].ravel(), self._starts[:, at].ravel()
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        ids = self._ids[places].astype(np.int64)
        if rng is None:
            return ids, bounds
        kept = rng.random(len(ids)) >= dropped
        return ids[kept], np.concatenate([[0], np.cumsum(kept)])[bounds]


def gram_sums(table: Tensor, ids: Tensor, bounds: Ints) -> Tensor:
    """Return, for each list, the sum of its table rows over the root of their number.

    `table` is (.., width), `ids` are row numbers of all lists, and `bounds` as in `grams_at`. The
    result is (B, PARTS, width), 0 for an empty list.
    """
    ends = torch.from_numpy(bounds)
    counts = (ends[1:] - ends[:-1]).clamp(min=1).float()
    sums = embedding_bag(ids, table, ends[:-1], mode="sum") * counts.rsqrt()[:, None]
    return sums.view(PARTS, -1, table.shape[1]).transpose(0, 1)


class TableAdam:
    """Adam on the rows of a table (BUCKETS, width) that a batch uses; the others stay."""

    def __init__(self, table: Tensor) -> None:
        """Start with moments of 0 for the table (BUCKETS, width), which `step` changes in place."""
        self._table = table
        self._mean, self._square = torch.zeros_like(table), torch.zeros_like(table)
        self._place = np.zeros(BUCKETS, dtype=np.int64)
        self._steps = 0

    def take_rows(self, ids: Ints) -> tuple[Tensor, Tensor, Tensor]:
        """Return (numbers of the distinct rows, these rows, each id's place among them).

        The numbers ascend. The rows are a copy that requires a gradient.
        """
        is_held = np.zeros(BUCKETS, dtype=np.bool_)
        is_held[ids] = True
        held = np.flatnonzero(is_held)
        self._place[held] = np.arange(len(held))
        numbers = torch.from_numpy(held)
        return numbers, self._table[numbers].requires_grad_(), torch.from_numpy(self._place[ids])

    @torch.no_grad()
    def step(self, numbers: Tensor, rows: Tensor, rate: float) -> None:
        """Move the table's rows `numbers` against the gradients of `rows`, scaled by `rate`.

        `rate` is the learning rate, and `rows` are those that `take_rows` returned, after a
        backward pass. Changes the table and the moments of these rows in place.
        """
        assert rows.grad is not None
        self._steps += 1
        mean = self._mean[numbers].lerp_(rows.grad, 1 - MEAN_KEPT)
        square = self._square[numbers].mul_(SQUARE_KEPT)
        square.addcmul_(rows.grad, rows.grad, value=1 - SQUARE_KEPT)
        self._mean[numbers], self._square[numbers] = mean, square
        unbiased = (1 - SQUARE_KEPT**self._steps) ** 0.5 / (1 - MEAN_KEPT**self._steps)
        moved = rows.addcdiv(mean, square.sqrt_().add_(LEAST), value=-rate * unbiased)
        self._table[numbers] = moved
