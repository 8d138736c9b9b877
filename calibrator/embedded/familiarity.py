"""The distance of a row from the training data, and what it costs the confidence.

Features of an unknown kind of text lie far from those of every known benchmark. The measure is the
Mahalanobis distance to the nearest benchmark (Lee et al., 2018). Beyond the distance that nearly
all known rows keep, the confidence moves towards the base rate: the calibrator must not be sure of
text unlike any that it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibrator.features.weights import Array, Floats, arrays_under
from calibrator.kernel import load_kernel
from calibrator.recalibration.curves import log_odds, probability

PREFIX = "familiarity."
RIDGE = 1e-3  # share of the mean variance, so that rare directions do not decide alone
MIN_ROWS = 20  # a benchmark with fewer has no centroid of its own
KNOWN_SHARE = 0.97  # share of known rows whose confidence stays as it is


class Familiarity:
    """Distances of feature rows (B, D), in units of the distance that most known rows keep.

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
            PREFIX + "whitening": self.whitening.astype(np.float16),
            PREFIX + "centroids": self.centroids.astype(np.float16),
            PREFIX + "threshold": self.threshold,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Familiarity | None:
        """Load the arrays of a checkpoint's weights; None for weights without them."""
        parts = arrays_under(state, PREFIX)
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
