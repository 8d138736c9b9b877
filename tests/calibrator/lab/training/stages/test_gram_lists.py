"""Sums of a batch's n-grams, and Adam on its rows of a table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from calibrator.features.ngrams import PARTS
from calibrator.features.tower import BUCKETS, TowerRow, tower_row
from calibrator.lab.training.stages.tower import GramLists, TableAdam, gram_sums

TEXTS = ("who wrote it", "a long book of long words", "", "7 times 8", "who wrote a long book")


@pytest.fixture(scope="module")
def rows() -> list[TowerRow]:
    return [
        tower_row(text, text[::-1], list(range(len(text))), [at, 7])
        for at, text in enumerate(TEXTS)
    ]


def test_a_batch_has_the_n_grams_of_its_rows_in_their_order(rows: list[TowerRow]) -> None:
    """A batch has the n-grams of its rows, in order of parts."""
    at = np.array([4, 0, 2, 4])
    ids, bounds = GramLists(rows).grams_at(at)
    lists = np.split(ids, bounds[1:-1])
    expected = [rows[i].grams[part] for part in range(PARTS) for i in at]
    assert len(lists) == len(expected) == len(bounds) - 1
    assert all(np.array_equal(found, wanted) for found, wanted in zip(lists, expected, strict=True))


def test_dropped_n_grams_are_those_that_lists_drawn_one_by_one_would_drop(
    rows: list[TowerRow],
) -> None:
    """Dropping n-grams of a batch equals dropping them list by list."""
    at = np.array([1, 3, 4])
    ids, bounds = GramLists(rows).grams_at(at, np.random.default_rng(3), 0.5)
    rng, expected = np.random.default_rng(3), []
    for part in range(PARTS):
        for grams in (rows[i].grams[part] for i in at):
            expected.append(grams[rng.random(len(grams)) >= 0.5])
    assert 0 < len(ids) < sum(len(rows[i].grams[part]) for part in range(PARTS) for i in at)
    assert np.array_equal(ids, np.concatenate(expected))
    assert np.array_equal(np.diff(bounds), [len(each) for each in expected])


def test_it_moves_a_table_as_torchs_sparse_gradients_do(rows: list[TowerRow]) -> None:
    """A table moves as with torch's sparse Adam."""
    torch.manual_seed(1)
    plain = nn.EmbeddingBag(BUCKETS, 4, mode="sum", sparse=True)
    table = plain.weight.detach().clone()
    before = table.clone()
    theirs, ours = torch.optim.SparseAdam([plain.weight], lr=0.01), TableAdam(table)
    lists, wanted = GramLists(rows), torch.randn(2, PARTS, 4)
    for step in range(6):
        ids, bounds = lists.grams_at(np.array([step % 5, (step * 2 + 1) % 5]))
        numbers, held, places = ours.take_rows(ids)
        assert len(numbers) == len(np.unique(ids))
        backward(gram_sums(held, places, bounds) - wanted)
        ours.step(numbers, held, 0.01)
        ends = torch.from_numpy(bounds)
        count = ends.diff().clamp(min=1).float()
        sums = plain(torch.from_numpy(ids), ends[:-1]) / count.sqrt()[:, None]
        backward(sums.view(PARTS, 2, 4).transpose(0, 1) - wanted)
        theirs.step()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        theirs.zero_grad()
    assert (table - before).abs().max() > 0.05
    moved = (plain.weight.detach() - table).abs().max()
    assert moved < 1e-6


def backward(apart: Tensor) -> None:
    """Compute the gradients of the sum of squares."""
    apart.square().sum().backward()  # type: ignore[no-untyped-call]  # torch's own is missing
