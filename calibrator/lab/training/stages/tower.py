"""Train the tower: one pass over the rows, since a tower this wide memorizes what it sees twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, gelu

from calibrator.features.ngrams import PARTS
from calibrator.features.tower import BUCKETS, HIDDEN, NAME_WIDTH, TRAIT_LIMIT, WIDTH, TowerRow
from calibrator.features.traits import TRAITS
from calibrator.lab.training.stages.gram_lists import GramLists, Ints, TableAdam, gram_sums

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
        given = torch.cat([embedded, *products, named[:, 1:], x], dim=1)
        hidden = self.dropout(_gelu(self.first(self.dropout(given))))
        deep: Tensor = self.last(_gelu(self.second(hidden)))[:, 0]
        asked = (named[:, 1:] * self.asked(question)).sum(1)
        logits: Tensor = deep + asked + bag[:, :, 0].sum(1) + x @ self.linear + named[:, 0]
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
