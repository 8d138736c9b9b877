"""Fit the forest (`features.forest`): topics, difficulties, abilities, then boosted trees.

The difficulty of each training question is computed from the other questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.features.difficulty import PREFIX, Difficulty, meanings
from calibrator.features.forest import NO_NAME, TOPICS_PREFIX, Topics, features_of
from calibrator.features.ngrams import PARTS, Ids
from calibrator.features.tower import BUCKETS, TowerRow
from calibrator.features.weights import pack_table
from calibrator.lab.training.stages.tree_fitting import fit_trees

Floats = NDArray[np.float32]

WIDTH = 48  # numbers in a piece's vector, 8 bits each
COMMON = 0.1  # a piece in this share of the questions weighs half as much as a piece in none
RARE = 1e-5  # added to every share, so that pieces in no question count a little

Array = NDArray[np.generic]
Ints = NDArray[np.int64]

PRIOR_ROWS = 20.0  # rows of ability 0 that are added to each model's


@dataclass(frozen=True, slots=True)
class ForestConfig:
    """The fit of the forest, and its weight beside the tower."""

    weight: float = 0.75  # of the forest's log-odds
    share: float = 0.5  # factor on the sum with the tower's log-odds, which is too sure
    trees: int = 400
    leaves: int = 31
    learning_rate: float = 0.08
    leaf_rows: int = 100  # the fewest in a leaf
    ridge: float = 10.0
    feature_share: float = 0.3  # of the features, considered for a split
    name_dropout: float = 0.45
    topics: tuple[int, ...] = (64, 64, 48, 32, 48)  # for each part
    grams: int = 20_000  # the most frequent of each part, from which topics are made
    topic_rows: int = 20_000  # rows from which the topics' directions are computed


@dataclass(frozen=True, slots=True)
class ForestData:
    """Rows with the numbers of their names (0 = none), benchmarks and questions, and their targets.

    All are (N,).
    """

    rows: Sequence[TowerRow]
    names: Ints
    benchmarks: Ints
    questions: Ints
    targets: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ForestInputs:
    """Topics, and the trees' input for rows (N, ..), made without labels.

    The last two columns are free for abilities and difficulties. `drawn` is the state of the random
    numbers afterwards.
    """

    tables: dict[str, Array]
    features: NDArray[np.float32]
    drawn: Mapping[str, Any]

    def rows_at(self, at: Ints) -> ForestInputs:
        """Return the same topics with the features of the rows `at`, a copy in this order."""
        return replace(self, features=self.features[at])


def describe(
    rows: Sequence[TowerRow], config: ForestConfig, seed: int, trained: int | None = None
) -> ForestInputs:
    """Find topics in the first `trained` rows (all if None), and compute the input of all rows.

    The input is what the trees read. No label is used. The two last columns of the features, for
    abilities and difficulties, are 0. The same seed gives the same result. Raises MissingExtraError
    without scikit-learn.
    """
    check_scikit_learn()
    rng = np.random.default_rng(seed)
    tables = fit_topics(rows[:trained], config, rng)
    free = np.zeros((len(rows), 2), np.float32)
    features = features_of(rows, Topics.from_state(tables), free)
    return ForestInputs(tables, features, rng.bit_generator.state)


def fit_forest(
    data: ForestData,
    names: int,
    vectors: NDArray[np.float32],
    config: ForestConfig,
    seed: int,
    described: ForestInputs | None = None,
) -> dict[str, Array]:
    """Return the arrays of a `Forest`, without the prefix `forest.`.

    `names` is the number of known names plus one for no name. `vectors` (V, hidden) of all word
    pieces are as `piece_vectors` returns them. `described` are the data's rows if `describe` read
    them before; their two last columns are overwritten in place.

    The trees' log-odds are multiplied by `config.weight`. Some names are hidden at random. A target
    between 0 and 1 counts as both labels, in its proportion. The same seed gives the same arrays.
    Raises MissingExtraError without scikit-learn.
    """
    check_scikit_learn()
    described = described or describe(data.rows, config, seed)
    rng = np.random.default_rng()
    rng.bit_generator.state = described.drawn
    ability = abilities(data, names)
    hidden = rng.random(len(data.rows)) < config.name_dropout
    pieces = [row.question for row in data.rows]
    difficulty, difficulty_odds = fit_difficulty(pieces, data.questions, data.targets, vectors)
    features = described.features
    features[:, -2:] = np.stack([ability[np.where(hidden, 0, data.names)], difficulty_odds], axis=1)
    at, labels, weights = _as_labels(data.targets)
    trees = fit_trees(features[at], labels, weights, config, seed, weight=config.weight)
    extras: dict[str, Array] = {
        "ability": ability.astype(np.float16),
        "share": np.array([config.share], np.float32),
    }
    return {**trees, **described.tables, **difficulty, **extras}


def fit_topics(
    rows: Sequence[TowerRow], config: ForestConfig, rng: np.random.Generator
) -> dict[str, Array]:
    """Return the arrays of `Topics`, named `topics.<part>.<name>`.

    For each part of a row (such as the answer's words) they are the most frequent n-grams, `ids`,
    their `rarity`, and as `table` and `scale` the directions in which a random sample of the rows
    differs most.
    """
    some = rng.permutation(len(rows))[: config.topic_rows]
    found: dict[str, Array] = {}
    for part, width in zip(range(PARTS), config.topics, strict=True):
        counts = np.zeros(BUCKETS, dtype=np.int64)
        for row in rows:
            counts[row.grams[part]] += 1
        ids = np.sort(np.argsort(-counts, kind="stable")[: config.grams])
        rarity = np.log(len(rows) / np.maximum(counts[ids], 1)).astype(np.float16)
        lists = [rows[i].grams[part] for i in some]
        table, scale = pack_table(_directions(lists, ids, rarity.astype(np.float32), width, rng))
        arrays: dict[str, Array] = {
            "ids": ids.astype(np.int32),
            "rarity": rarity,
            "table": table,
            "scale": scale,
        }
        found |= {f"{TOPICS_PREFIX}{part}.{name}": array for name, array in arrays.items()}
    return found


def _directions(
    lists: Sequence[NDArray[np.int32]],
    ids: Ints,
    rarity: NDArray[np.float32],
    width: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Return the main directions of lists of n-grams, (len(ids), width), one column each.

    `lists` has each row's n-grams as bucket numbers. Only those in `ids` count, weighted by their
    `rarity`, and each row is scaled to length 1. The last columns are zeros if there are fewer
    directions.
    """
    from scipy.sparse import csr_matrix, diags_array
    from sklearn.decomposition import TruncatedSVD

    place = np.full(BUCKETS, -1)
    place[ids] = np.arange(len(ids))
    row = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    column = place[np.concatenate(lists)]
    row, column = row[column >= 0], column[column >= 0]
    shape = (len(lists), len(ids))
    bags = csr_matrix((rarity[column], (row, column)), shape=shape)
    lengths = np.sqrt(np.asarray(bags.multiply(bags).sum(axis=1)).ravel())
    bags = diags_array(1 / np.maximum(lengths, 1e-6)) @ bags
    directions = np.zeros((len(ids), width), dtype=np.float32)
    kept = min(width, len(lists) - 1)
    if kept > 0 and bags.nnz:
        seed = int(rng.integers(2**31))
        svd = TruncatedSVD(kept, n_iter=1, random_state=seed).fit(bags)
        directions[:, :kept] = svd.components_.T * len(ids) ** 0.5  # of size 1, to suit 16 bits
    return directions


def abilities(data: ForestData, names: int) -> NDArray[np.float32]:
    """Return how much more often than usual each model is right, (names,), from -1 to 1.

    It is the mean of its targets minus the mean target of their benchmark, drawn to 0 for models of
    few rows (`PRIOR_ROWS`). Entry 0, for no name, is `NO_NAME`. Values are rounded to 16 bits.
    """
    sums = np.bincount(data.benchmarks, weights=data.targets)
    usual = sums / np.maximum(1, np.bincount(data.benchmarks))
    above = np.bincount(data.names, weights=data.targets - usual[data.benchmarks], minlength=names)
    found = above / (np.bincount(data.names, minlength=names) + PRIOR_ROWS)
    found[0] = NO_NAME
    return found.astype(np.float16).astype(np.float32)


def _as_labels(targets: NDArray[np.float32]) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Return (row numbers, labels 0 or 1, weights) for targets (N,) from 0 to 1.

    A target of 0 or 1 gives one entry of weight 1. A target t between them gives two: label 1 with
    weight t and label 0 with weight 1 - t. All entries of label 1 come first.
    """
    every = np.arange(len(targets))
    at = np.concatenate([every, every])
    labels = np.repeat([1, 0], len(targets))
    weights = np.concatenate([targets, 1 - targets]).astype(np.float64)
    return at[weights > 0], labels[weights > 0], weights[weights > 0]


def fit_difficulty(
    pieces: Sequence[Ids], questions: Ints, targets: Floats, vectors: Floats
) -> tuple[dict[str, Array], Floats]:
    """Return the arrays of a `Difficulty`, and log-odds (N,) of the rows it is fitted on.

    The arrays have full names such as `difficulty.table`. Each row's log-odds come from other
    questions than its own. `pieces` are the distinct word pieces of each row's question,
    `questions` (N,) the questions' numbers, `targets` (N,) the labels, and `vectors` (V, hidden)
    those of all pieces.
    """
    _, first, question = np.unique(questions, return_index=True, return_inverse=True)
    distinct = [pieces[i] for i in first]
    table, scale = pack_table(_weigh_pieces(vectors, distinct))
    found = meanings(distinct, table, scale)
    counts = np.bincount(question)
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "questions": np.round(found * 127).astype(np.int8),
        "share": (np.bincount(question, weights=targets) / counts).astype(np.float16),
        "weight": np.sqrt(counts).astype(np.float16),
        "base": np.array([targets.mean()], dtype=np.float32),
    }
    state = {PREFIX + name: array for name, array in arrays.items()}
    odds = Difficulty.from_state(state).odds_near(found, left_out=np.arange(len(first)))
    return state, odds[question].astype(np.float32)


def _weigh_pieces(vectors: Floats, pieces: Sequence[Ids]) -> Floats:
    """Return the pieces' vectors along their main directions, (V, WIDTH), longer for rare pieces.

    `vectors` (V, hidden) are those of all pieces, and `pieces` has the distinct pieces of each
    question, from which their frequency is counted. The last columns are zeros if there are fewer
    than WIDTH directions.
    """
    share = np.bincount(np.concatenate(pieces), minlength=len(vectors)) / len(pieces)
    centred = vectors - np.average(vectors, axis=0, weights=share + RARE)
    _, directions = np.linalg.eigh((centred * (share + RARE)[:, None]).T @ centred)
    kept = centred @ directions[:, ::-1][:, :WIDTH] * (COMMON / (COMMON + share))[:, None]
    found = np.zeros((len(vectors), WIDTH), dtype=np.float32)
    found[:, : kept.shape[1]] = kept
    return found
