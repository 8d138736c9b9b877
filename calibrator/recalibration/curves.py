"""Turn a score into a confidence: Platt scaling, temperature, isotonic curves (paper K15, N01-N05).

A checkpoint carries a curve of its own. A recalibration file, fitted on about a hundred labelled
replies of a deployment, corrects the checkpoint's confidences there, for all replies or for each
model, domain or team. Everything is plain numbers and applied with numpy alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import CheckpointError
from calibrator.scorer import knows_others, without_others

EPSILON = 1e-6
MIN_SLOPE = 1e-3
FORMAT = 1

Kind = Literal["platt", "isotonic", "temperature"]
Of = Literal["alone", "others", "signals"]
"""Which numbers are meant: of replies alone, or those that know other replies or signals."""
By = Literal["model", "domain", "team"]


class NamedContent(Protocol):
    """The content of a file that states its own name."""

    @property
    def name(self) -> str: ...


Loaded = TypeVar("Loaded", bound=NamedContent)


def logit(probability: ArrayLike) -> Any:
    """Return log(p / (1 - p)), with p kept `EPSILON` away from 0 and 1."""
    p = np.asarray(probability, dtype=np.float64)
    p = np.minimum(np.maximum(p, EPSILON), 1 - EPSILON)  # `clip` takes three times as long
    return np.log(p / (1 - p))


def sigmoid(x: ArrayLike) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(np.asarray(x, dtype=np.float64) / 2))


def log_odds(probability: float) -> float:
    """Return the `logit` of one number without numpy, in a microsecond: replies wait for it."""
    p = min(max(probability, EPSILON), 1 - EPSILON)
    return math.log(p / (1 - p))


def probability(log_odds: float) -> float:
    """Return the `sigmoid` of one number without numpy, in a microsecond."""
    return 0.5 * (1 + math.tanh(log_odds / 2))


def content_hash(values: Any) -> str:
    """Return eight hexadecimal digits that change with every number in `values`."""
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Platt:
    """The curve confidence = sigmoid(slope * logit(score) + intercept).

    A slope > 0 keeps the ranking (N04). Temperature scaling is the case of slope 1 / T and no
    intercept (K15).
    """

    slope: float = 1.0
    intercept: float = 0.0

    def apply(self, score: float) -> float:
        """Return the confidence of one score without numpy: replies wait on the event loop."""
        return probability(self.slope * log_odds(score) + self.intercept)

    def apply_all(self, scores: ArrayLike) -> Any:
        """Return the confidences of an array of scores of any shape."""
        return sigmoid(self.slope * logit(scores) + self.intercept)

    @property
    def name(self) -> str:
        return f"platt@{content_hash(self.as_dict())}"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "platt", "slope": self.slope, "intercept": self.intercept}

    @classmethod
    def from_dict(cls, values: Any) -> Platt:
        """Read the output of `as_dict`; raises CheckpointError for anything else."""
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


@dataclass(frozen=True, slots=True)
class Isotonic:
    """Straight lines between knots: `scores` and `confidences` ascend, both (k,), k >= 1."""

    scores: tuple[float, ...]
    confidences: tuple[float, ...]

    def apply(self, score: float) -> float:
        return float(self.apply_all(score))

    def apply_all(self, scores: ArrayLike) -> Any:
        """Return the confidences of an array of scores of any shape."""
        return np.interp(np.asarray(scores), self.scores, self.confidences)

    def as_dict(self) -> dict[str, Any]:
        """Return the curve for JSON."""
        return {
            "kind": "isotonic",
            "scores": list(self.scores),
            "confidences": list(self.confidences),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Isotonic:
        """Read the output of `as_dict`; raises CheckpointError for anything else."""
        try:
            x, y = ([float(one) for one in values[key]] for key in ("scores", "confidences"))
        except (TypeError, KeyError, ValueError) as error:
            raise CheckpointError(f"recalibration is damaged: {error!r}") from error
        knots = np.array([*x, *y])
        if not x or len(x) != len(y) or not ((knots >= 0) & (knots <= 1)).all():
            raise CheckpointError("recalibration must be isotonic with knots from 0 to 1")
        if (np.diff(x) <= 0).any() or (np.diff(y) < 0).any():
            raise CheckpointError("recalibration must be isotonic with ascending knots")
        return cls(tuple(x), tuple(y))


def group_key(by: By | None, model: str | None, domain: str | None, team: str | None = None) -> str:
    """Return a reply's model, domain or team, as `by` says, in lower case.

    This is the key of its curve; empty if `by` or the name is None.
    """
    name = {"model": model, "domain": domain, "team": team}[by] if by else None
    return (name or "").lower()


def _curve(values: Any) -> Platt | Isotonic:
    kind = values.get("kind") if isinstance(values, Mapping) else None
    return Isotonic.from_dict(values) if kind == "isotonic" else Platt.from_dict(values)


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A pooled curve, and separate curves for some models, domains or teams.

    `by` says what the keys of `groups`, in lower case, are. A reply of no such group gets the
    pooled curve. `labels` is the number of labelled replies that it was fitted on.
    """

    kind: Kind
    pooled: Platt | Isotonic
    by: By | None = None
    groups: Mapping[str, Platt | Isotonic] = field(default_factory=dict)
    labels: int = 0
    calibrator: str = ""  # whose confidences are corrected; empty if unknown

    def apply(self, score: float, group: str | None = None) -> float:
        """Return the confidence of a reply whose model, domain or team is `group`.

        Case does not count. None, or a group without a curve of its own, gets the pooled curve.
        """
        return self.groups.get((group or "").lower(), self.pooled).apply(score)

    def apply_to(
        self, score: float, model: str | None, domain: str | None, team: str | None = None
    ) -> float:
        """Return the recalibrated confidence of a score, by the curve of the reply's group.

        The group is the model, domain or team, as `by` says; without a curve of its own the pooled
        one applies.
        """
        return self.apply(score, group_key(self.by, model, domain, team))

    def undo(
        self, confidence: float, model: str | None, domain: str | None, team: str | None = None
    ) -> float | None:
        """Return the score that `apply_to` turned into this confidence.

        None for an isotonic curve.
        """
        key = group_key(self.by, model, domain, team)
        curve = self.groups.get(key, self.pooled)
        if isinstance(curve, Isotonic):
            return None
        return float(sigmoid((logit(confidence) - curve.intercept) / curve.slope))

    @property
    def name(self) -> str:
        """The kind and a hash of all numbers, e.g. `platt@9c1d02ab`."""
        return f"{self.kind}@{content_hash(self.as_dict())}"

    @property
    def of(self) -> Of:
        """The kind of numbers that it corrects; it corrects no others."""
        return "others" if knows_others(self.calibrator) else "alone"

    def check_fits(self, calibrator: str) -> None:
        """Raise CheckpointError if it was fitted for the confidences of another calibrator.

        For numbers that know other replies, only the part of the name before the others is
        compared: the second stage that reads the others is not known before the calibrator is
        loaded.
        """
        if without_others(self.calibrator) not in ("", calibrator):
            raise CheckpointError(
                f"recalibration {self.name} was fitted for {self.calibrator}, not for "
                f"{calibrator}; fit it again with pinocchio recalibrate"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the file for JSON."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "calibrator": self.calibrator,
            "labels": self.labels,
            "by": self.by,
            "pooled": self.pooled.as_dict(),
            "groups": {name: curve.as_dict() for name, curve in sorted(self.groups.items())},
        }

    def save(self, path: Path) -> None:
        text = json.dumps({"name": self.name, **self.as_dict()}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


def load_named(path: Path, read: Callable[[dict[str, Any]], Loaded]) -> Loaded:
    """Read a JSON file with `read`, and return the result if it has the name that the file states.

    Raises CheckpointError, with file and fault, if it is missing, unreadable or of another name.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = read(values)
        name = values.get("name")
    except OSError as error:
        raise CheckpointError(f"there is no recalibration {path}: {error.strerror}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no recalibration of this version: {error!r}") from error
    if name != found.name:
        raise CheckpointError(
            f"{path} calls itself {name!r} but its numbers are {found.name!r}: it was changed by "
            "hand or is damaged; fit it again with pinocchio recalibrate"
        )
    return found


def recalibration_of(values: dict[str, Any]) -> Recalibration:
    """Build a recalibration from the output of `as_dict`.

    Raises ValueError, TypeError, KeyError or CheckpointError for anything else.
    """
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']!r}, this version reads {FORMAT}")
    if values["kind"] not in get_args(Kind) or values["by"] not in (None, *get_args(By)):
        raise ValueError(f"kind {values['kind']!r} by {values['by']!r}")
    return Recalibration(
        kind=values["kind"],
        pooled=_curve(values["pooled"]),
        by=values["by"],
        groups={str(name): _curve(curve) for name, curve in values["groups"].items()},
        labels=int(values["labels"]),
        calibrator=str(values["calibrator"]),
    )


def fit_platt(
    correct: ArrayLike,
    scores: ArrayLike,
    steps: int = 50,
    trust: tuple[float, float] = (1e-3, 1e-9),
    slope_before: float = 1.0,
    weights: ArrayLike | None = None,
) -> Platt:
    """Fit slope and intercept on the logits of scores by maximum likelihood (Newton's method).

    Labels, scores and weights are (n,). `trust` are the weights of two squared penalties that hold
    slope and intercept to `slope_before` and 0: almost nothing by default. A reply of weight 2
    counts as two. If the slope would be below `MIN_SLOPE`, the curve gives about the base rate.
    """
    x, y = logit(scores), np.asarray(correct, dtype=np.float64)
    counts = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
    features = np.stack([x, np.ones_like(x)], axis=1)  # (rows, 2)
    slope, intercept = fit_logistic(y, features, (slope_before, 0.0), trust, counts, steps)
    if slope < MIN_SLOPE:  # the scores say nothing, or the opposite; only the base rate is left
        return Platt(MIN_SLOPE, float(logit(np.average(y, weights=counts))))
    return Platt(slope, intercept)


def fit_logistic(
    correct: ArrayLike,
    features: ArrayLike,
    before: ArrayLike,
    trust: ArrayLike,
    counts: ArrayLike,
    steps: int = 50,
) -> list[float]:
    """Return the coefficients (k,) of features (n, k), fitted by Newton's method.

    Each is held to `before` (k,) by a squared penalty of weight `trust` (k,). Row i counts as
    `counts[i]` rows.
    """
    y, x, n = (np.asarray(each, dtype=np.float64) for each in (correct, features, counts))
    prior, ridge = np.asarray(before, dtype=np.float64), np.diag(np.asarray(trust, np.float64))
    found = prior.copy()

    def cost(at: Any) -> float:
        z, off = x @ at, at - prior
        return float(n @ (np.logaddexp(0, z) - y * z) + off @ ridge @ off / 2)

    for _ in range(steps):
        p = sigmoid(x @ found)
        gradient = x.T @ (n * (p - y)) + ridge @ (found - prior)
        hessian = (x * (n * p * (1 - p))[:, None]).T @ x + ridge
        step = np.linalg.solve(hessian, gradient)
        while cost(found - step) > cost(found) and np.abs(step).max() > 1e-10:
            step /= 2  # far from the optimum the cost is flat, and a whole step overshoots
        found = found - step
        if np.abs(step).max() < 1e-8:
            break
    return [float(each) for each in found]
