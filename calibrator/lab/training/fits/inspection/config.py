"""The settings for fitting the inspector."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InspectorConfig:
    """The settings for fitting the inspector; numbers of rows are per benchmark.

    The tuples have one value for each check, in the order of `CHECKS`. The priors are log-odds that
    a reply is in order: the higher, the more it takes to doubt a reply, and the less the ranking of
    right above wrong suffers. The slopes multiply the trees' log-odds. For a long reply, a share of
    the trees' log-odds beyond the middle, their value for a typical reply of training, is evidence
    that it is right.
    """

    right_rows: int = 900
    irrelevant_rows: int = 550  # for each fault of the relevance check
    faulty_rows: int = 900  # for each other fault
    plain_weight: float = 5.0  # weight of a reply to a plain request
    symbolic_tasks: int = 1_000  # number of generated tasks, which form one more benchmark
    symbolic_weight: float = 0.3  # weight of a reply to a symbolic task
    pool_rows: int = 12_000  # rows from which faulty replies are made
    rarity_rows: int = 30_000
    width: int = 192  # numbers in a piece's vector
    trees: int = 300
    leaves: int = 24
    learning_rate: float = 0.07
    leaf_rows: int = 40
    ridge: float = 10.0
    feature_share: float = 0.3
    priors: tuple[float, ...] = (2.6, 4.0, 3.0, 7.0)
    slopes: tuple[float, ...] = (1.2, 1.0, 1.4, 1.0)
    shares: tuple[float, ...] = (0.0, 0.0, 0.0, 0.08)
    middles: tuple[float, ...] = (0.0, 0.0, 0.0, 5.5)
    left_out: tuple[str, ...] = ()  # kinds of faults to omit, as a test of generalisation
