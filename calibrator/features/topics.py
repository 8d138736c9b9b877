"""Describe the subject and vocabulary of an answered question as a few hundred numbers.

This is latent semantic analysis (Deerwester et al., 1990): the frequent n-grams of each part,
weighted by their rarity, are projected on the directions in which training rows differ most. No
label is used, so these numbers mean the same for a model or a benchmark that training never saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.features.ngrams import PARTS, Grams
from calibrator.kernel import Work, load_kernel, run_together

Floats = NDArray[np.float32]
Array = NDArray[np.generic]

PREFIX = "topics."


class Topics:
    """The projections of all parts.

    `tables` has, for each of `ngrams.PARTS`, the arrays that `training.stages.forest` makes. Raises
    KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, tables: Sequence[Mapping[str, Array]]) -> None:
        if len(tables) != PARTS:
            raise ValueError(f"topics of {len(tables)} parts, not of {PARTS}")
        self._parts = [_TopicPart(table) for table in tables]
        self.width = sum(part.width for part in self._parts)
        self._kernel = load_kernel() if all(part.is_small for part in self._parts) else None
        if self._kernel is not None:
            self._held = self._kernel.topic_tables(*(part.arrays() for part in self._parts))

    def topics_of(self, grams: Grams) -> Floats:
        """Return the topics of one row, (width,)."""
        found = np.empty((1, self.width), np.float32)
        run_together(self.write_work([grams], found, 0))
        return np.asarray(found[0])

    def write_work(self, rows: Sequence[Grams], found: Floats, start: int) -> Work[None]:
        """Write the topics of rows into those of `found` (B, ..), from the column `start` on."""
        if self._kernel is not None:
            yield [("topics", (self._held, list(rows), found, start))]
            return
        for place, grams in enumerate(rows):
            own = [part.project(ids) for part, ids in zip(self._parts, grams, strict=True)]
            found[place, start : start + self.width] = np.concatenate(own)
        yield []

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Topics:
        """Read arrays named `topics.<part>.<name>`."""
        tables: dict[str, dict[str, Array]] = {}
        for key, value in state.items():
            if key.startswith(PREFIX):
                part, name = key.removeprefix(PREFIX).split(".", 1)
                tables.setdefault(part, {})[name] = value
        return cls([tables[part] for part in sorted(tables)])


class _TopicPart:
    """The projection of one part's n-grams."""

    def __init__(self, table: Mapping[str, Array]) -> None:
        self.ids = table["ids"].astype(np.int32)  # (K,) the buckets that count, ascending; K > 0
        self.rarity = table["rarity"].astype(np.float32)  # (K,) their weights
        self.table = table["table"]  # (K, D) int8
        self.scale = table["scale"].astype(np.float32)  # (K,): a direction's row is table * scale
        self.width = self.table.shape[1]
        lengths = {len(each) for each in (self.ids, self.rarity, self.table, self.scale)}
        if len(lengths) > 1 or 0 in lengths:
            raise ValueError(f"topics whose arrays have {sorted(lengths)} rows")
        if self.ids.min() < 0:
            raise ValueError(f"topics of n-gram {self.ids.min()}")
        # the position of each bucket in `ids`, or K if absent; a lookup is faster than a search
        self._nowhere = len(self.ids)
        size = int(self.ids.max()) + 2  # the last place is for all larger buckets
        self._places = np.full(size, self._nowhere, np.min_scalar_type(self._nowhere))
        self._places[self.ids] = np.arange(self._nowhere)

    @property
    def is_small(self) -> bool:
        """Whether its arrays are of the types that the kernel reads."""
        return self._places.dtype == np.uint16 and self.table.dtype == np.int8

    def arrays(self) -> tuple[Array, ...]:
        """Return all arrays in the order in which the kernel takes them."""
        return self._places, self.rarity, self.scale, self.table

    def project(self, grams: NDArray[np.int32]) -> Floats:
        """Map a part's n-grams to its directions, (D,); zeros if no n-gram counts."""
        at = self._places.take(grams, mode="clip")
        at = at[at != self._nowhere].astype(np.intp)
        rarity = self.rarity.take(at)
        length = max(float(np.sqrt((rarity**2).sum())), 1e-6)
        weights = rarity * self.scale.take(at) / np.float32(length)
        table = self.table.take(at, axis=0).astype(np.float32)
        found = np.einsum("n,nd->d", weights, table)  # no threads
        return np.asarray(found, dtype=np.float32)
