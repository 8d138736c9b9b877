"""Raw score -> confidence: Platt scaling on the logit, as two floats (paper N01, N04)."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import CheckpointError

EPSILON = 1e-6
MIN_SLOPE = 1e-3


def logit(probability: ArrayLike) -> Any:
    """log(p / (1 - p)), with p kept `EPSILON` away from 0 and 1."""
    p = np.clip(np.asarray(probability, dtype=np.float64), EPSILON, 1 - EPSILON)
    return np.log(p / (1 - p))


def sigmoid(x: ArrayLike) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(np.asarray(x, dtype=np.float64) / 2))


@dataclass(frozen=True, slots=True)
class Platt:
    """confidence = sigmoid(slope * logit(score) + intercept); slope > 0 keeps the ranking (N04)."""

    slope: float = 1.0
    intercept: float = 0.0

    def apply(self, score: float) -> float:
        return float(sigmoid(self.slope * logit(score) + self.intercept))

    @property
    def name(self) -> str:
        digest = hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()
        return f"platt@{digest[:8]}"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "platt", "slope": self.slope, "intercept": self.intercept}

    @classmethod
    def from_dict(cls, values: Any) -> Platt:
        """Raises CheckpointError unless it is what `as_dict` gives."""
        try:
            kind, slope, intercept = (
                values["kind"],
                float(values["slope"]),
                float(values["intercept"]),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise CheckpointError(f"recalibration is damaged: {error!r}") from error
        if kind != "platt" or not (math.isfinite(slope) and math.isfinite(intercept) and slope > 0):
            raise CheckpointError(
                f"recalibration must be platt with a positive slope, not {values}"
            )
        return cls(slope, intercept)


def fit_platt(correct: ArrayLike, scores: ArrayLike, steps: int = 50) -> Platt:
    """Maximum likelihood by Newton's method; a ridge of 1e-3 on the slope keeps small sets sane."""
    x, y = logit(scores), np.asarray(correct, dtype=np.float64)
    features = np.stack([x, np.ones_like(x)], axis=1)  # (rows, 2)
    weights = np.array([1.0, 0.0])
    prior, ridge = np.array([1.0, 0.0]), np.diag([1e-3, 1e-9])
    for _ in range(steps):
        p = sigmoid(features @ weights)
        gradient = features.T @ (p - y) + ridge @ (weights - prior)
        hessian = (features * (p * (1 - p))[:, None]).T @ features + ridge
        step = np.linalg.solve(hessian, gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    slope, intercept = map(float, weights)
    if slope < MIN_SLOPE:  # the scores say nothing, or the opposite: the base rate is what is left
        return Platt(MIN_SLOPE, float(logit(y.mean())))
    return Platt(slope, intercept)
