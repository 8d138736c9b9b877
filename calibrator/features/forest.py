"""Score rows with boosted trees on traits, topics, the question's difficulty, the model's ability.

The tower reads words. The trees read the same answered question as a few hundred numbers that are
not words, so they err on other rows, above all on replies of models that training never saw. The
log-odds of both are added, and the sum is made smaller because both know much the same. Serving
needs numpy alone; `training.stages.forest` fits the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrator.features.difficulty import Difficulty
from calibrator.features.ngrams import PARTS, Grams
from calibrator.features.tower import TowerRow
from calibrator.features.traits import TRAITS
from calibrator.features.trees import Trees
from calibrator.features.weights import Array, Floats, arrays_under
from calibrator.kernel import Work, load_kernel, result_of, run_together

PREFIX = "forest."
NO_NAME = -2.0  # the ability for no name, below all others

TOPICS_PREFIX = "topics."


class Forest:
    """The trees, and the parts that compute their input.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Read the arrays of the forest, by their names without the prefix `forest.`."""
        self.topics = Topics.from_state(state)
        self.share = float(state["share"][0])  # the factor on the sum of tower and forest
        self.ability = state["ability"].astype(
            np.float32
        )  # (names,) of known models; first: no name
        width = TRAITS + self.topics.width + 2
        self.trees = Trees(state, width)
        self.difficulty = Difficulty.from_state(state, self.trees.thresholds(width - 1))
        if "beside" in state:  # ignoring it would change the scores of such a checkpoint
            raise ValueError("a difficulty stands beside the trees, as in version 4: train anew")

    def join_odds(
        self,
        odds: NDArray[np.float64],
        rows: Sequence[TowerRow],
        names: Sequence[int] | NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return log-odds of a right reply, (B,), from the tower's `odds` (B,) and the forest's.

        `names` (B,) are the places of the models' names among the known ones, 0 for others.
        """
        return self.join_with_inputs(odds, self.inputs_of(rows, names))

    def read(
        self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the forest's own log-odds of a right reply, (B,).

        `names` (B,) are the places of the models' names among the known ones, 0 for others.
        """
        return self.trees.read(self.inputs_of(rows, names))

    def inputs_of(
        self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]
    ) -> Floats:
        """Return the trees' input, (B, width): traits, topics, ability, difficulty.

        `names` (B,) are the places of the models' names among the known ones, 0 for others.
        """
        found: Floats = run_together(self.inputs_work(rows, names))[0]
        return found

    def inputs_work(
        self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]
    ) -> Work[Floats]:
        """Compute the result of `inputs_of` as work for `run_together`, beside other work."""
        found = np.empty((len(rows), TRAITS + self.topics.width + 2), np.float32)
        difficulty_work = self.difficulty.odds_work([row.question for row in rows])
        columns_work = _write_work(rows, self.topics, found)
        yield [*next(difficulty_work), *next(columns_work)]
        result_of(columns_work)
        found[:, -2] = self.ability[np.asarray(names, dtype=np.intp)]
        found[:, -1] = result_of(difficulty_work)
        return found

    def join_with_inputs(self, odds: NDArray[np.float64], inputs: Floats) -> NDArray[np.float64]:
        """Return joint log-odds, (B,), of the tower's `odds` (B,) and the trees' input.

        `inputs` (B, width) are those of `inputs_of`.
        """
        return np.asarray(self.share * (odds + self.trees.read(inputs)))

    def inputs_as(self, name: int, inputs: Floats) -> Floats:
        """Return a copy of the trees' input (B, width) as if another model had answered.

        `name` is the place of its name among the known ones, 0 for none.
        """
        found = inputs.copy()
        found[:, -2] = self.ability[name]
        return found

    @cached_property
    def median_name(self) -> int:
        """The place of the known name with the median ability; 0 if none is known."""
        order = np.argsort(self.ability[1:], kind="stable")
        return int(order[len(order) // 2]) + 1 if len(order) else 0

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Forest | None:
        """Read the arrays named `forest.<name>`; None for a checkpoint without a forest.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None


def features_of(rows: Sequence[TowerRow], topics: Topics, others: Floats) -> Floats:
    """Return the trees' input for rows, (B, TRAITS + topics + 2).

    `others` (B, 2) are abilities and difficulties, its last columns.
    """
    found = np.empty((len(rows), TRAITS + topics.width + others.shape[1]), np.float32)
    run_together(_write_work(rows, topics, found))
    found[:, TRAITS + topics.width :] = others
    return found


def _write_work(rows: Sequence[TowerRow], topics: Topics, found: Floats) -> Work[None]:
    """Write the rows' traits at once, and their topics as work, into columns of `found` (B, ..).

    The traits come first, then the topics; `found` is changed in place.
    """
    for place, row in enumerate(rows):
        found[place, :TRAITS] = row.traits
    return topics.write_work([row.grams for row in rows], found, TRAITS)


class Topics:
    """The subject and vocabulary of an answered question, as a few hundred numbers.

    This is latent semantic analysis (Deerwester et al., 1990): the frequent n-grams of each part
    (question, answer, ..), weighted by their rarity, are projected on the directions in which
    training rows differ most. No label is used, so these numbers mean the same for a model or a
    benchmark that training never saw.

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
        """Return the topics of the n-grams of one row, (width,)."""
        found = np.empty((1, self.width), np.float32)
        run_together(self.write_work([grams], found, 0))
        return np.asarray(found[0])

    def write_work(self, rows: Sequence[Grams], found: Floats, start: int) -> Work[None]:
        """Write the topics of rows' n-grams into columns of `found` (B, ..), from `start` on.

        This is work for `run_together`; `found` is changed in place.
        """
        if self._kernel is not None:
            yield [("topics", (self._held, list(rows), found, start))]
            return
        for place, grams in enumerate(rows):
            own = [part.project(ids) for part, ids in zip(self._parts, grams, strict=True)]
            found[place, start : start + self.width] = np.concatenate(own)
        yield []

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Topics:
        """Read arrays named `topics.<part>.<name>`.

        Raises KeyError or ValueError for arrays that are missing or do not fit.
        """
        tables: dict[str, dict[str, Array]] = {}
        for key, value in state.items():
            if key.startswith(TOPICS_PREFIX):
                part, name = key.removeprefix(TOPICS_PREFIX).split(".", 1)
                tables.setdefault(part, {})[name] = value
        return cls([tables[part] for part in sorted(tables)])


class _TopicPart:
    """The projection of the n-grams of one part, such as the answer's words."""

    def __init__(self, table: Mapping[str, Array]) -> None:
        """Read the arrays of a part; raises ValueError for other shapes."""
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
        """Return the topics (D,) of one part's n-grams; zeros if none of them counts.

        `grams` are bucket numbers.
        """
        at = self._places.take(grams, mode="clip")
        at = at[at != self._nowhere].astype(np.intp)
        rarity = self.rarity.take(at)
        length = max(float(np.sqrt((rarity**2).sum())), 1e-6)
        weights = rarity * self.scale.take(at) / np.float32(length)
        table = self.table.take(at, axis=0).astype(np.float32)
        found = np.einsum("n,nd->d", weights, table)  # no threads
        return np.asarray(found, dtype=np.float32)
