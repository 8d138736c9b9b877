"""Score rows by n-grams of question and answer, traits of the text and the model's name.

    z = linear(n-grams, traits, name) + MLP(embedded n-grams, products, traits, name)
        + name . question

The products are those of the embedded question with the embedded answer, and with the answer's
ends. They relate the answer to the question.

Bags of words and characters, a few table lookups each, are better than an encoder of 22 million
weights (`ablations.md`). Serving needs numpy alone; `training.stages.tower` fits the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrator.features.ngrams import PARTS, Grams, Ids, distinct, grams_of
from calibrator.features.traits import TRAITS, traits_of
from calibrator.features.weights import Array, Floats
from calibrator.kernel import Work, load_kernel, result_of, run_together

Weights = Mapping[str, Array]

BUCKETS = 2**18
WIDTH = 32  # of an n-gram's embedding
NAME_WIDTH = 24  # of a model name's embedding
HIDDEN = (256, 64)
TRAIT_LIMIT = 4.0  # standard deviations, to which traits are clipped
LAYER_NORM_EPSILON = 1e-5
PREFIX = "tower."


@dataclass(frozen=True, slots=True)
class TowerRow:
    """The tower's input for one answered question; `traits` is (TRAITS,).

    `question`, the distinct word pieces of the question, is for the forest alone.
    """

    grams: Grams
    traits: Floats
    question: Ids


def tower_row(
    question: str, answer: str, question_ids: Sequence[int], answer_ids: Sequence[int]
) -> TowerRow:
    """Return the tower's input from two texts and their word pieces, `.._ids`."""
    grams = grams_of(question, answer, question_ids, answer_ids, BUCKETS)
    return TowerRow(grams, traits_of(question, answer), distinct(question_ids))


class Tower:
    """The mean logit of a few towers that differ in their seed alone.

    `weights` are those of `training.stages.tower.export`, one mapping for each tower. Raises
    KeyError or ValueError for weights that do not fit.
    """

    def __init__(self, weights: Sequence[Weights]) -> None:
        """Keep the arrays of the towers; raises KeyError or ValueError if they do not fit."""
        self._members = _Members(weights)
        self._bags = Bags([each["table"] for each in weights], [each["scale"] for each in weights])

    def read(
        self, rows: Sequence[TowerRow], names: Sequence[int]
    ) -> tuple[NDArray[np.float64], Floats]:
        """Return log-odds of a right reply, (B,), and the first tower's hidden layer.

        The layer is (B, HIDDEN[0]). `names` (B,) are the places of the models' names among the
        known ones, 0 for others.
        """
        odds, hidden = self.read_as(rows, [names])
        return odds[0], hidden

    def read_as(
        self, rows: Sequence[TowerRow], names: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.float64], Floats]:
        """Return log-odds (W, B) of rows under W assignments of names (W, B), and a hidden layer.

        The hidden layer, (B, HIDDEN[0]), is the first tower's under the first assignment. Names are
        places among the known ones, 0 for others. W assignments cost little more than one.
        """
        found: tuple[NDArray[np.float64], Floats] = run_together(self.read_work(rows, names))[0]
        return found

    def read_work(
        self, rows: Sequence[TowerRow], names: Sequence[Sequence[int]]
    ) -> Work[tuple[NDArray[np.float64], Floats]]:
        """Compute the result of `read_as` as work for `run_together`, beside other work."""
        bags = self._bags.room(len(rows))
        writing = self._bags.write_work([row.grams for row in rows], bags)
        traits = np.stack([row.traits for row in rows])
        reading = self._members.logits_work(bags, traits, np.array(names, np.int64))
        yield [*next(writing), *next(reading)]
        result_of(writing)
        logits, hidden = result_of(reading)
        return np.asarray(logits.mean(axis=1, dtype=np.float64)), hidden

    def logits(self, rows: Sequence[TowerRow], names: Sequence[int]) -> NDArray[np.float64]:
        """Return the log-odds of `read` alone, (B,)."""
        return self.read(rows, names)[0]

    def traits(self, rows: Sequence[TowerRow]) -> Floats:
        """Return the rows' traits, scaled and clipped, as the mean of all towers, (B, TRAITS)."""
        found = np.stack([row.traits for row in rows])
        return np.asarray(self._members.traits(found).mean(axis=0))

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.generic]]) -> Tower | None:
        """Read arrays named `tower.<number>.<name>`; None for a checkpoint without a tower.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        members: dict[str, dict[str, NDArray[np.generic]]] = {}
        for key, value in state.items():
            if key.startswith(PREFIX):
                number, name = key.removeprefix(PREFIX).split(".", 1)
                members.setdefault(number, {})[name] = value
        return cls([members[number] for number in sorted(members)]) if members else None


class _Members:
    """All arrays of K towers but their tables, stacked along the first axis to be read at once."""

    def __init__(self, weights: Sequence[Weights]) -> None:
        """Join the arrays of towers of one shape; raises KeyError or ValueError for others."""
        small = {
            name: np.stack([each[name].astype(np.float32) for each in weights])
            for name in weights[0]
            if name not in ("table", "scale")
        }
        self.names, self.linear = small["names"], small["linear"]
        self.center, self.spread = small["center"][:, None], small["spread"][:, None]
        self.norm = small["norm.weight"][:, None], small["norm.bias"][:, None]
        self.first, self.second, self.last, self.question = (
            # outputs are contiguous, which is fastest for `einsum`
            (np.ascontiguousarray(small[f"{name}.weight"].swapaxes(1, 2)), small[f"{name}.bias"])
            for name in ("first", "second", "last", "asked")
        )
        shapes = (weights[0]["table"].shape, self.norm[0].shape[2:], self.center.shape[2:])
        if shapes != ((BUCKETS, 1 + WIDTH), (PARTS * WIDTH,), (TRAITS,)):
            raise ValueError(f"a tower of another shape: {shapes}")
        inputs = (PARTS + 2) * WIDTH + NAME_WIDTH + TRAITS  # numbers that the first layer reads
        wide, deep = self.first[0].shape[2], self.second[0].shape[2]
        layers = tuple(each[0].shape[1:] for each in (self.first, self.second, self.last))
        if layers != ((inputs, wide), (wide, deep), (deep, 1)):
            raise ValueError(f"layers of a tower that do not follow each other: {layers}")
        self._kernel = load_kernel()
        self._held = (
            self._kernel.tower_weights(self._arrays(), TRAIT_LIMIT, LAYER_NORM_EPSILON)
            if self._kernel
            else None
        )

    def _arrays(self) -> tuple[Floats, ...]:
        """Return all arrays in the order in which the kernel takes them."""
        norm = [each[:, 0] for each in self.norm]
        layers = [
            each for layer in (self.first, self.second, self.last, self.question) for each in layer
        ]
        return self.names, self.linear, self.center[:, 0], self.spread[:, 0], *norm, *layers

    def logits_work(
        self, bags: Floats, traits: Floats, names: NDArray[np.int64]
    ) -> Work[tuple[Floats, Floats]]:
        """Compute logits (W, K, B) under names (W, B), and a hidden layer (B, HIDDEN[0]).

        This is work for `run_together`. The hidden layer is the first tower's, under `names[0]`.
        `bags` are as `Bags.sum_rows` returns them, and `traits` (B, TRAITS) are not scaled yet.
        """
        if self._kernel is not None:
            logits = np.empty((len(names), len(self.names), len(traits)), np.float32)
            wide = np.empty((len(traits), self.first[0].shape[2]), np.float32)
            yield [("tower", (self._held, bags, traits, names, logits, wide))]
            return logits, wide
        yield []
        traits = self.traits(traits)
        words = bags[:, :, :, 1:].transpose(2, 0, 1, 3)
        embedded = _layer_norm(words.reshape(*words.shape[:2], -1), *self.norm)
        question, answer, ends = (embedded[:, :, at : at + WIDTH] for at in (0, WIDTH, 2 * WIDTH))
        own = self.names[:, names[0], 1:]
        inputs = [embedded, question * answer, question * ends, own, traits]
        first = _linear(np.concatenate(inputs, axis=2), *self.first)
        projected = _linear(question, *self.question)
        plain = bags[:, :, :, 0].sum(1).T + np.einsum("kbt,kt->kb", traits, self.linear)
        start = sum(each.shape[2] for each in inputs[:3])
        of_names = self.first[0][:, start : start + NAME_WIDTH]
        found = []
        for each in names:
            bias, name = self.names[:, each, 0], self.names[:, each, 1:]
            # only the name's part of the first layer changes
            hidden = _gelu(first + np.einsum("kbi,kio->kbo", name - own, of_names))
            deep = _linear(_gelu(_linear(hidden, *self.second)), *self.last)[:, :, 0]
            found.append((plain + bias + deep + (name * projected).sum(2), hidden[0]))
        return np.stack([logits for logits, _ in found]), found[0][1]

    def traits(self, traits: Floats) -> Floats:
        """Return traits (B, TRAITS) in standard deviations from each tower's mean, (K, B, TRAITS).

        They are clipped to `TRAIT_LIMIT`.
        """
        found = (traits - self.center) / self.spread
        return np.asarray(np.clip(found, -TRAIT_LIMIT, TRAIT_LIMIT))


class Bags:
    """The tables of all towers side by side, so that an n-gram's rows are read at once.

    `tables` are (BUCKETS, 1 + WIDTH) int8, `scales` (BUCKETS,): a row is table * scale.
    """

    def __init__(self, tables: Sequence[Array], scales: Sequence[Array]) -> None:
        """Copy the tables side by side; towers are the second axis."""
        # copied one at a time, because stacking all of them would need the memory twice
        self._tables = np.empty((len(tables[0]), len(tables), tables[0].shape[1]), np.int8)
        for number, table in enumerate(tables):
            self._tables[:, number] = table
        self._scales = np.stack(scales, axis=1)  # (BUCKETS, members)
        self._kernel = load_kernel() if self._scales.dtype == np.float16 else None
        self._held = self._kernel.bag_tables(self._tables, self._scales) if self._kernel else None

    def sum_rows(self, rows: Sequence[Grams]) -> Floats:
        """Return the sums of rows' n-gram vectors over the root of their number, part by part.

        The result is (B, PARTS, members, 1 + WIDTH).
        """
        found = self.room(len(rows))
        run_together(self.write_work(rows, found))
        return found

    def room(self, rows: int) -> Floats:
        """Return an uninitialized array for the result of `sum_rows` of this many rows."""
        return np.empty((rows, PARTS, *self._tables.shape[1:]), np.float32)

    def write_work(self, rows: Sequence[Grams], found: Floats) -> Work[None]:
        """Write the result of `sum_rows` into `found` in place, as work for `run_together`."""
        if self._kernel is not None:
            yield [("bags", (self._held, list(rows), found))]
            return
        for place, grams in enumerate(rows):
            ids = np.concatenate(grams)
            tables = self._tables.take(ids, axis=0).astype(np.float32)
            scales = self._scales.take(ids, axis=0).astype(np.float32)
            start = 0
            for part, own in enumerate(grams):
                end = start + len(own)
                # not BLAS, which would start threads
                np.einsum(
                    "nm,nmd->md", scales[start:end], tables[start:end], out=found[place, part]
                )
                found[place, part] /= max(1, len(own)) ** 0.5
                start = end
        yield []


def _linear(x: Floats, weight: Floats, bias: Floats) -> Floats:
    """Return K linear layers applied to K inputs: (K, B, inputs) to (K, B, outputs).

    It uses `einsum`, because BLAS would start threads.
    """
    return np.asarray(np.einsum("kbi,kio->kbo", x, weight) + bias[:, None])


def _layer_norm(x: Floats, weight: Floats, bias: Floats) -> Floats:
    """Return layer norms of x (K, B, D), with weight and bias (K, 1, D)."""
    centered = x - x.mean(2, keepdims=True)
    variance = (centered**2).mean(2, keepdims=True)
    return np.asarray(centered / np.sqrt(variance + LAYER_NORM_EPSILON) * weight + bias)


def _gelu(x: Floats) -> Floats:
    """Return GELU of x in its tanh form, whose parts numpy has."""
    return np.asarray(x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * (x * x * x)))) / 2)
