"""How the inspector is fitted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InspectorConfig:
    """How the inspector is fitted; numbers of rows are those of one benchmark.

    The priors are log-odds, one for each check in the order of `CHECKS`: the surer, the more it
    takes to doubt a reply, and the less is lost of ranking right above wrong. The slopes say how
    often what the trees say is counted, the shares how much of it is evidence of right for a long
    reply, told from what the trees say of the middling one of training.
    """

    right_rows: int = 900
    irrelevant_rows: int = 550  # of each fault that the check of relevance looks for
    faulty_rows: int = 900  # of each other fault
    plain_weight: float = 5.0  # of a plain request's replies
    symbolic_tasks: int = 1_000  # made by rule, taught as one more benchmark
    symbolic_weight: float = 0.3  # of a reply to one of them
    pool_rows: int = 12_000  # from which faulty replies are made
    rarity_rows: int = 30_000
    width: int = 192  # of a piece's vector
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
    left_out: tuple[str, ...] = ()  # kinds of faults, to see whether the rest generalises
