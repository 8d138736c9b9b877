"""Train the tower: one pass over the rows, since a tower this wide memorizes what it sees twice.

The n-grams of all rows are in one array. A batch uses some ten thousand of the table's 262,144
rows. Only these are taken out, summed, and moved along their gradients. torch's sparse gradients
give the same, and take half as long again to be sorted and joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag, gelu

from calibrator.features.ngrams import PARTS
from calibrator.features.tower import BUCKETS, HIDDEN, NAME_WIDTH, TRAIT_LIMIT, WIDTH, TowerRow
from calibrator.features.traits import TRAITS

MEAN_KEPT, SQUARE_KEPT, LEAST = 0.9, 0.999, 1e-8  # Adam's (Kingma and Ba, 2015)

Ints = NDArray[np.int64]

MIN_NAME_ROWS = 20  # a rarer name is treated as no name


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """The fit of the tower: one pass over the rows, because a second one memorizes them."""

    members: int = 4  # towers in the shipped mean
    folds: int = 5
    batch: int = 256
    learning_rate: float = 2e-3
    gram_dropout: float = 0.5  # of a row's n-grams, at each visit
    name_dropout: float = 0.45
    dropout: float = 0.1  # of the hidden layer and its inputs
    table_scale: float = 1e-4  # of the initial table; small, so that rare n-grams have no effect
    has_traits: bool = True


@dataclass(frozen=True)
class TowerData:
    """Rows with their names (numbers, 0 = none), targets and folds, each (N,)."""

    rows: Sequence[TowerRow]
    names: NDArray[np.int64]
    targets: NDArray[np.float32]
    folds: NDArray[np.int64]

    @cached_property
    def grams(self) -> GramLists:
        """The n-grams of all rows in one array."""
        return GramLists(self.rows)

    @cached_property
    def traits(self) -> NDArray[np.float32]:
        """The traits of all rows, (N, TRAITS)."""
        return np.stack([row.traits for row in self.rows])


class TowerModel(nn.Module):
    """The tower in torch; `tower.Tower` computes the same from `export`'s arrays."""

    def __init__(self, names: int, center: Tensor, spread: Tensor, config: TowerConfig) -> None:
        """Draw initial weights from torch's random numbers.

        `names` is the number of known names plus one for no name. `center` and `spread` (TRAITS,)
        scale the traits.
        """
        super().__init__()
        self.table = nn.Embedding(BUCKETS, 1 + WIDTH)
        self.names = nn.Embedding(names, 1 + NAME_WIDTH)
        nn.init.normal_(self.table.weight, 0, config.table_scale)
        nn.init.normal_(self.names.weight, 0, 0.05)
        with torch.no_grad():
            self.table.weight[:, 0] = 0
            self.names.weight[:, 0] = 0
        self.norm = nn.LayerNorm(PARTS * WIDTH)
        self.first = nn.Linear((PARTS + 2) * WIDTH + NAME_WIDTH + TRAITS, HIDDEN[0])
        self.second = nn.Linear(HIDDEN[0], HIDDEN[1])
        self.last = nn.Linear(HIDDEN[1], 1)
        self.asked = nn.Linear(WIDTH, NAME_WIDTH)
        self.linear = nn.Parameter(torch.zeros(TRAITS))
        self.dropout = nn.Dropout(config.dropout)
        self.center, self.spread = center, spread

    def forward(self, bag: Tensor, traits: Tensor, names: Tensor) -> Tensor:
        """Return log-odds of right, (B,).

        `bag` (B, PARTS, 1 + WIDTH) are the rows' `gram_sums`, `traits` (B, TRAITS) are not scaled
        yet, and `names` (B,) are numbers of names, 0 for none.
        """
        x = ((traits - self.center) / self.spread).clamp(-TRAIT_LIMIT, TRAIT_LIMIT)
        named = self.names(names)
        embedded = self.norm(bag[:, :, 1:].flatten(1))
        question, answer, ends = (embedded[:, at : at + WIDTH] for at in (0, WIDTH, 2 * WIDTH))
        products = question * answer, question * ends
        inputs = torch.cat([embedded, *products, named[:, 1:], x], dim=1)
        hidden = self.dropout(_gelu(self.first(self.dropout(inputs))))
        deep: Tensor = self.last(_gelu(self.second(hidden)))[:, 0]
        name_logits = (named[:, 1:] * self.asked(question)).sum(1)
        logits: Tensor = deep + name_logits + bag[:, :, 0].sum(1) + x @ self.linear + named[:, 0]
        return logits


def _gelu(x: Tensor) -> Tensor:
    """Return the tanh approximation of GELU, as numpy computes it in serving."""
    return gelu(x, approximate="tanh")


def fit_tower(
    data: TowerData,
    chosen: NDArray[np.int64],
    names: int,
    config: TowerConfig,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> TowerModel:
    """Fit a tower in one pass over the rows `chosen`, with a linearly falling learning rate.

    `chosen` are indexes of `data`. `names` is the number of known names plus one for no name.
    N-grams and names are hidden at random. The same seed gives the same tower, returned in
    evaluation mode. `progress` is called with the number of rows of each step.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    traits = data.traits[chosen]
    center, spread = torch.tensor(traits.mean(0)), torch.tensor(traits.std(0) + 1e-3)
    if not config.has_traits:
        spread = torch.full_like(spread, torch.inf)
    model = TowerModel(names, center, spread, config)
    table = TableAdam(model.table.weight.detach())
    dense = torch.optim.AdamW(
        [p for name, p in model.named_parameters() if name != "table.weight"],
        lr=config.learning_rate,
        weight_decay=0.0,
    )
    order = rng.permutation(chosen)
    for start in range(0, len(order), config.batch):
        rate = config.learning_rate * max(0.02, 1 - start / len(order))
        at = order[start : start + config.batch]
        hidden = rng.random(len(at)) < config.name_dropout
        ids, bounds = data.grams.grams_at(at, rng, config.gram_dropout)
        numbers, rows, places = table.take_rows(ids)
        known = np.where(hidden, 0, data.names[at])
        logits = model(gram_sums(rows, places, bounds), *_traits_and_names(data, at, known))
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(data.targets[at]))
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        table.step(numbers, rows, rate)
        dense.param_groups[0]["lr"] = rate
        dense.step()
        dense.zero_grad()
        progress(len(at))
    return model.eval()


def _traits_and_names(data: TowerData, at: Ints, names: Ints) -> tuple[Tensor, Tensor]:
    """Return the traits (B, TRAITS) of the rows `at`, and `names` (B,), as tensors."""
    return torch.from_numpy(data.traits[at]), torch.from_numpy(names)


@torch.inference_mode()
def tower_logits(
    model: TowerModel, data: TowerData, at: NDArray[np.int64], is_named: bool
) -> NDArray[np.float32]:
    """Return the tower's log-odds for the rows `at`, (len(at),).

    If `is_named` each row is read with its model's name, otherwise none is.
    """
    found = []
    for start in range(0, len(at), 1_024):
        part = at[start : start + 1_024]
        names = data.names[part] if is_named else np.zeros(len(part), dtype=np.int64)
        ids, bounds = data.grams.grams_at(part)
        bag = gram_sums(model.table.weight, torch.from_numpy(ids), bounds)
        found.append(model(bag, *_traits_and_names(data, part, names)).numpy())
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def export(model: TowerModel, rare: NDArray[np.bool_]) -> dict[str, NDArray[np.generic]]:
    """Return the tower's arrays by name: tables in int8 with a scale for each row, others in fp16.

    Center and spread are in fp32. `rare` (names,) marks the names that get the weights of no name.
    """
    table = model.table.weight.detach()
    scale = (table.abs().amax(1) / 127).clamp(min=1e-7)
    small = {k: t.half() for k, t in model.state_dict().items() if not k.startswith("table")}
    names = small.pop("names.weight")
    small["names"] = torch.where(torch.tensor(rare)[:, None], names[0], names)
    values = {
        **small,
        "center": model.center.float(),
        "spread": model.spread.float(),
        "table": torch.round(table / scale[:, None]).to(torch.int8),
        "scale": scale.half(),
    }
    return {name: value.numpy() for name, value in values.items()}


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
