"""The parts of a checkpoint of the embedded calibrator, read from its folder.

Two small ones are here: `Familiarity`, a row's distance from the training data, and `Abilities`,
what models' names add.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.checkpoints.checkpoint import EVIDENCE, WEIGHTS, CheckpointConfig, read_config
from calibrator.errors import CheckpointError
from calibrator.features.forest import Forest
from calibrator.features.tower import Tower
from calibrator.features.weights import Array, Floats, arrays_under, check_names, read_weights
from calibrator.kernel import load_kernel
from calibrator.readers.calls import CallTrees
from calibrator.readers.inspection import Inspector
from calibrator.readers.knowledge import Knowledge
from calibrator.readers.opinion import SecondStage
from calibrator.recalibration.curves import log_odds, probability
from calibrator.text.word_pieces import load_tokenizer

FAMILIARITY_PREFIX = "familiarity."
RIDGE = 1e-3  # share of the mean variance, so that rare directions do not decide alone
MIN_ROWS = 20  # a benchmark with fewer has no centroid of its own
KNOWN_SHARE = 0.97  # share of known rows whose confidence stays as it is
ABILITIES_PREFIX = "abilities."
STATED = 4  # numbers that `stated_in` returns
NAME_LIMIT = 1.5  # the largest change by an unknown name, in log-odds
# 8b, 1.5b, 500m, 8x7b, e4b (effective parameters); not the active ones of a3b, no 4bit, fp8, 128k
_PARAMETERS = re.compile(
    r"(?<![a-z0-9.])(?:(\d{1,3})x|e)?(\d{1,4}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])"
)
# gpt-4, gpt-4.1, o3, llama-3, qwen2.5, v2; no date, and no digit of a size
_VERSION = re.compile(
    r"(?:^|[-_a-z])(?<!fp)(?<!int)(?<![-_:]q)(\d(?:\.\d)?)(?![\d.]*[bmtk]|\d|x\d)"
)
_BILLIONS = {"m": 0.001, "b": 1.0, "t": 1_000.0}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a checkpoint; None is a part that the checkpoint lacks."""

    tower: Tower | None = None
    forest: Forest | None = None
    familiarity: Familiarity | None = None
    inspector: Inspector | None = None
    calls: CallTrees | None = None
    opinion: SecondStage | None = None
    knowledge: Knowledge | None = None
    abilities: Abilities | None = None
    evidence: Mapping[str, Array] | None = None  # arrays of `evidence.safetensors`


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint folder."""

    config: CheckpointConfig
    tokenizer: Tokenizer
    parts: Parts


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder: configuration, tokenizer and parts.

    Raises CheckpointError for a language model's folder and for missing, damaged or unmatched
    files.
    """
    config = read_config(folder)
    if not isinstance(config, CheckpointConfig):
        raise CheckpointError(f"{folder} holds a language model, not an embedded calibrator")
    path = folder / WEIGHTS
    checks: Mapping[str, Array] | None = None
    try:
        state = read_weights(path, config.weights_sha256)
        if config.evidence_sha256:
            checks = read_weights(folder / EVIDENCE, config.evidence_sha256)
        tokenizer = load_tokenizer(folder)
    except CheckpointError:
        raise
    except Exception as error:  # tokenizers raises nothing more precise
        raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error
    try:
        parts = Parts(
            Tower.from_state(state),
            Forest.from_state(state),
            Familiarity.from_state(state),
            Inspector.from_state(state),
            CallTrees.from_state(state),
            SecondStage.from_state(state),
            Knowledge.from_state(state),
            Abilities.from_state(state),
            checks,
        )
        check_names(state)
        if parts.tower is None:
            raise ValueError("there is no tower")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} does not fit calibrator.json: {error}") from error
    return Checkpoint(config, tokenizer, parts)


class Familiarity:
    """Distances of feature rows (B, D), in units of the distance that most known rows keep.

    Features of an unknown kind of text lie far from those of every known benchmark. The measure is
    the Mahalanobis distance to the nearest benchmark (Lee et al., 2018). Beyond 1 the confidence
    moves towards the base rate: the calibrator must not be sure of text unlike any that it has
    seen.

    `whitening` (D, D) makes the shared covariance the identity. `centroids` (K, D) are the
    benchmarks' whitened means. `threshold` is the distance that counts as 1.
    """

    def __init__(self, whitening: Array, centroids: Array, threshold: Array) -> None:
        """Keep the arrays in fp32."""
        self.whitening = whitening.astype(np.float32)
        self.centroids = centroids.astype(np.float32)
        self.threshold = threshold.astype(np.float32)

    def distances(self, features: Floats) -> Floats:
        """Return the squared distance to the nearest centroid over the threshold, (B,).

        `features` are (B, D); up to 1 a text counts as known.
        """
        if (kernel := load_kernel()) is not None:
            found = np.empty(len(features), np.float32)
            kernel.distances(np.ascontiguousarray(features), self.whitening, self.centroids, found)
            return np.asarray(found / self.threshold)
        apart = self.whiten(features)[:, None, :] - self.centroids  # (B, K, D)
        return np.asarray((apart**2).sum(axis=2).min(axis=1) / self.threshold)

    def whiten(self, features: Floats) -> Floats:
        """Return feature rows (B, D) in the coordinates in which distances are measured, (B, D)."""
        return np.asarray(features @ self.whitening)

    def with_centre(self, white: Floats) -> Familiarity:
        """Return a copy with one more centroid, given in whitened coordinates, (D,)."""
        centroids = np.vstack([self.centroids, white])
        return Familiarity(self.whitening, centroids, self.threshold)

    def state(self) -> dict[str, Array]:
        """Return the arrays for a checkpoint's weights file, by name."""
        return {
            FAMILIARITY_PREFIX + "whitening": self.whitening.astype(np.float16),
            FAMILIARITY_PREFIX + "centroids": self.centroids.astype(np.float16),
            FAMILIARITY_PREFIX + "threshold": self.threshold,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Familiarity | None:
        """Load the arrays of a checkpoint's weights; None for weights without them."""
        parts = arrays_under(state, FAMILIARITY_PREFIX)
        return cls(parts["whitening"], parts["centroids"], parts["threshold"]) if parts else None


def fit_familiarity(
    features: Floats, groups: Sequence[str | None], held_out: Floats
) -> Familiarity | None:
    """Fit distances on the features (N, D) of known rows and their benchmarks' names, `groups`.

    The distance of 1 is the one that the share `KNOWN_SHARE` of the rows `held_out` (M, D) keeps.
    Returns None if no benchmark has `MIN_ROWS` rows; rows without a name are ignored.
    """
    names = np.array([group or "" for group in groups])
    known = [n for n in np.unique(names) if n and (names == n).sum() >= MIN_ROWS]
    if not known:
        return None
    means = {name: features[names == name].mean(axis=0) for name in known}
    residuals = np.concatenate([features[names == name] - means[name] for name in known])
    covariance = np.cov(residuals.T).astype(np.float64)
    size = len(covariance)
    values, vectors = np.linalg.eigh(
        covariance + RIDGE * np.trace(covariance) / size * np.eye(size)
    )
    whitening = (vectors / np.sqrt(values * size)).astype(np.float32)  # (D, D), a column each
    centroids = np.stack(list(means.values())) @ whitening
    fitted = Familiarity(whitening, centroids, np.ones(1))
    threshold = np.quantile(fitted.distances(held_out), KNOWN_SHARE)
    return Familiarity(whitening, centroids, np.array([threshold]))


def shift_confidence(confidence: float, shift: float) -> float:
    """Return a confidence with `shift` added to its log-odds; a shift of 0 changes no bit."""
    return probability(log_odds(confidence) + shift) if shift else confidence


def temper_confidence(confidence: float, distance: float, base_rate: float) -> float:
    """Return a confidence, moved towards the base rate if its row's distance is above 1.

    The logit's difference from the base rate's is divided by the square of the distance.
    """
    if not distance > 1:  # also if it is nan
        return confidence
    base = log_odds(base_rate)
    return probability(base + (log_odds(confidence) - base) / distance**2)


def stated_in(name: str) -> NDArray[np.float64] | None:
    """Return what a model's name states about it as numbers (STATED,), or None.

    These are whether the number of parameters is missing, the logarithm of that number (0 for 11
    billion), the version divided by 4, and whether the version is missing. None for a name that
    states neither, such as an operator's own. The part before the last slash, the owner, is
    ignored.
    """
    name = name.lower().rpartition("/")[2]
    size, version = _PARAMETERS.search(name), _VERSION.search(name)
    if size is None and version is None:
        return None
    octaves = 0.0
    if size is not None:
        experts, number, unit = size.groups()
        billions = float(number) * int(experts or 1) * _BILLIONS[unit]
        octaves = math.log2(min(max(billions, 0.1), 2_000.0)) - 3.5
    quarters = float(version[1]) / 4 if version is not None else 0.0
    return np.array([size is None, octaves, quarters, version is None], dtype=np.float64)


class Abilities:
    """Log-odds that are added for the names of models.

    Tower and forest learn how each model fares on each kind of text. On a kind that training never
    saw, the name says too little there, or something that was true of another kind. So a share of
    the model's ability is added, from a Rasch model of the training rows, in which the odds of a
    right reply are the model's ability minus the benchmark's difficulty (Rasch, 1960). For a model
    that training never saw, the size and version in its name count, by what they are worth for
    known models.

    `odds` (1 + names,) is added for each known name; its first entry, for no name, is 0. `stated`
    (STATED + 1,) has what each number of `stated_in` adds for an unknown name, and a constant;
    without it nothing is added for such a name.
    """

    def __init__(self, odds: Array, stated: Array | None = None) -> None:
        """Keep the arrays; raises ValueError for `stated` of another shape."""
        self.odds = odds.astype(np.float64)
        self.stated = None if stated is None else stated.astype(np.float64)
        if self.stated is not None and self.stated.shape != (STATED + 1,):
            raise ValueError("abilities of another shape")

    def odds_of(self, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds that are added for these names, (B,).

        `numbers` (B,) are the places of names in `odds`; 0 stands for an unknown name and adds 0.
        """
        return np.asarray(self.odds[np.asarray(numbers, dtype=np.intp)])

    def of_unknown(self, name: str) -> float:
        """Return the log-odds that are added for a name that training never saw.

        They follow from what it states, within `NAME_LIMIT`; 0 if it states no size and no version,
        or nothing was learnt.
        """
        features = None if self.stated is None else stated_in(name)
        if features is None or self.stated is None:
            return 0.0
        return float(
            np.clip(features @ self.stated[:-1] + self.stated[-1], -NAME_LIMIT, NAME_LIMIT)
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Abilities | None:
        """Read arrays named `abilities.<name>`; None for a checkpoint without them.

        Raises ValueError for arrays of another shape.
        """
        found = state.get(ABILITIES_PREFIX + "odds")
        return None if found is None else cls(found, state.get(ABILITIES_PREFIX + "stated"))
