"""Weigh signals beyond texts: a judge's opinion, and the probabilities of the reply's tokens.

    log-odds' = slope log-odds + intercept + weights . signals

Each combination of signals has a curve, fitted on replies that have exactly these, for each kind of
numbers that they join. So an absent signal moves nothing: a number without signals stays as it was,
and a number with signals is right for replies with the same ones, however often they are missing
and whatever their absence means.

A combination with too few labels has no curve. Its replies are weighed by a part of it, the judge
before the log-probabilities. Until any part has a curve, signals change nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibrator.errors import CheckpointError, JudgingError
from calibrator.metrics.metrics import Floats
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import (
    FORMAT,
    Of,
    content_hash,
    fit_logistic,
    log_odds,
    logit,
    probability,
)
from calibrator.recalibration.fit import FOLDS, MIN_GROUP_LABELS, SLOPE_BEFORE, TRUST
from calibrator.rows.selection import share_of
from calibrator.scorer import LOGPROBS, Signals, without_others

KIND: Final = "signals"
SUREST: Final = 5.0  # the bound of a signal's log-odds
TRUST_IN_NONE: Final = 1.0
"""The prior's 1 / variance of a signal's weight around 0, on log-odds in standard deviations."""


@dataclass(frozen=True, slots=True)
class SignalCurve:
    """The curve of one combination of signals.

    `weights` belong to the signals' log-odds, in the order of `readings`.
    """

    slope: float
    intercept: float
    weights: tuple[float, ...]

    def apply(self, confidence: float, readings: Sequence[float]) -> float:
        """Return the confidence after the signals, from 0 to 1.

        `readings` are the log-odds of the signals, one for each weight; raises ValueError
        otherwise.
        """
        odds = self.slope * log_odds(confidence) + self.intercept
        for weight, reading in zip(self.weights, readings, strict=True):
            odds += weight * reading
        return probability(odds)

    def as_dict(self) -> dict[str, Any]:
        return {"slope": self.slope, "intercept": self.intercept, "weights": list(self.weights)}


@dataclass(frozen=True, slots=True)
class WeighedConfidence:
    """A confidence moved by signals, its calibrator's name, and the kinds of the signals."""

    confidence: float
    calibrator: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignalWeights:
    """The weights that join signals to the numbers of one calibrator, alone or knowing others.

    `curves` are keyed by the name of the number without signals, then by combination, such as
    `judge gpt-5-mini + logprobs`. `labels` is the number of labelled replies that they were fitted
    on.
    """

    calibrator: str
    curves: Mapping[str, Mapping[str, SignalCurve]]
    labels: int = 0

    @property
    def name(self) -> str:
        """The kind and a hash of all numbers, e.g. `signals@9c1d02ab`."""
        return f"{KIND}@{content_hash(self.as_dict())}"

    def weigh(
        self, confidence: float, calibrator: str, signals: Signals
    ) -> WeighedConfidence | None:
        """Return a confidence changed by the signals, with its new name and the kinds used.

        `calibrator` is the exact name of the numbers. None if there is no curve for it, or for no
        part of the signals.
        """
        curves = self.curves.get(calibrator)
        for kinds in parts(signals.kinds) if curves else ():
            if curves and (curve := curves.get(combination_name(kinds))) is not None:
                name = _name_with_signals(calibrator, kinds, curve)
                return WeighedConfidence(
                    curve.apply(confidence, readings(signals, kinds)), name, kinds
                )
        return None

    def names(self) -> Iterator[str]:
        """Yield the name of each kind of number that `weigh` can return."""
        for calibrator, curves in self.curves.items():
            for combination, curve in curves.items():
                yield _name_with_signals(calibrator, tuple(combination.split(" + ")), curve)

    @property
    def of(self) -> Of:
        """The kind of numbers that it gives."""
        return "signals"

    def check_fits(self, calibrator: str) -> None:
        """Raise CheckpointError if the weights were fitted for a calibrator of another name."""
        if self.calibrator != calibrator:
            raise CheckpointError(
                f"weights {self.name} were fitted for {self.calibrator}, not for {calibrator}; fit "
                "them again with pinocchio recalibrate --signals"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the file for JSON."""
        curves = {
            calibrator: {key: curve.as_dict() for key, curve in sorted(by_kinds.items())}
            for calibrator, by_kinds in sorted(self.curves.items())
        }
        return {
            "format": FORMAT,
            "kind": KIND,
            "calibrator": self.calibrator,
            "labels": self.labels,
            "curves": curves,
        }

    def save(self, path: Path) -> None:
        text = json.dumps({"name": self.name, **self.as_dict()}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


def signal_weights(values: Mapping[str, Any]) -> SignalWeights:
    """Build weights from the output of `as_dict`.

    Raises ValueError, TypeError, KeyError or AttributeError for anything else.
    """
    curves = {
        str(calibrator): {str(key): _curve(curve, key) for key, curve in by_kinds.items()}
        for calibrator, by_kinds in values["curves"].items()
    }
    return SignalWeights(str(values["calibrator"]), curves, int(values["labels"]))


def _curve(values: Mapping[str, Any], combination: str) -> SignalCurve:
    """Read the curve of a combination; raises ValueError for numbers that do not fit."""
    weights = tuple(float(each) for each in values["weights"])
    slope, intercept = float(values["slope"]), float(values["intercept"])
    wanted = sum(2 if kind == LOGPROBS else 1 for kind in combination.split(" + "))
    if len(weights) != wanted or not np.isfinite([slope, intercept, *weights]).all() or slope < 0:
        raise ValueError(f"a curve for {combination!r} has {wanted} weights and a slope from 0 on")
    return SignalCurve(slope, intercept, weights)


@lru_cache(maxsize=64)  # replies wait on the event loop, so the hash is computed once
def _name_with_signals(calibrator: str, kinds: tuple[str, ...], curve: SignalCurve) -> str:
    """Return a name such as `embedded@3f2a91c0+judge@9c1d02ab`: signals, and their curve's hash."""
    known = "-".join(kind.partition(" ")[0] for kind in kinds)
    return f"{calibrator}+{known}@{content_hash([combination_name(kinds), curve.as_dict()])}"


def combination_name(kinds: Sequence[str]) -> str:
    """Return the name of a combination of signals, such as `judge gpt-5.4 + logprobs`."""
    return " + ".join(kinds)


def parts(kinds: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the combinations of signals whose curve may be used, in order of preference.

    First all kinds together, then each alone; [] for no kinds.
    """
    return [kinds, *((kind,) for kind in kinds)] if len(kinds) > 1 else [kinds] if kinds else []


def readings(signals: Signals, kinds: Sequence[str]) -> list[float]:
    """Return the log-odds of signals of these kinds: one of a judge, two of log-probabilities.

    A missing one counts as probability 0 for a judge, and 1 for log-probabilities; all are bounded.
    """
    found: list[float] = []
    for kind in kinds:
        if kind == LOGPROBS:
            found += [_bound_odds(math.exp(each)) for each in signals.logprobs or (0.0, 0.0)]
        else:
            found.append(_bound_odds(signals.judged or 0.0))
    return found


def _bound_odds(judged: float) -> float:
    return max(-SUREST, min(SUREST, log_odds(judged)))


def confidences(replies: Sequence[LabelledSignals]) -> Floats:
    """Return the confidences of replies without signals, (n,)."""
    return np.array([each.confidence for each in replies])


def weigh_replies(
    weights: SignalWeights, replies: Sequence[LabelledSignals], otherwise: Floats | None = None
) -> Floats:
    """Return the confidences of replies with their signals, (n,).

    Where no curve fits a reply's signals, its value is that of `otherwise`, by default its
    confidence without signals.
    """
    found = [weights.weigh(each.confidence, each.calibrator, each.signals) for each in replies]
    without = confidences(replies) if otherwise is None else otherwise
    return np.array([p if w is None else w.confidence for w, p in zip(found, without, strict=True)])


# --- the fit --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LabelledSignals:
    """A labelled reply: the confidence of `calibrator` without signals, and the signals."""

    is_correct: bool
    confidence: float
    calibrator: str
    signals: Signals
    weight: float = 1.0


def fit_signals(replies: Sequence[LabelledSignals]) -> SignalWeights:
    """Fit a curve for each calibrator and combination of signals with enough labels of both kinds.

    Signals are a judge's P(correct) and log-probabilities. Replies without signals, or of no such
    combination, do not count. Raises JudgingError if there is no combination.
    """
    curves: dict[str, dict[str, SignalCurve]] = {}
    labels = 0
    for calibrator in sorted({each.calibrator for each in replies}):
        for kinds, members in _groups([e for e in replies if e.calibrator == calibrator]):
            curves.setdefault(calibrator, {})[combination_name(kinds)] = _fit_curve(members, kinds)
            labels += len(members)
    if not curves:
        most = len([each for each in replies if each.signals.kinds])
        raise JudgingError(
            f"{most} labelled replies have a judge's P(correct) or log-probabilities: "
            f"{MIN_GROUP_LABELS} with the same ones are the least, right and wrong ones"
        )
    return SignalWeights(without_others(next(iter(curves))), curves, labels)


def cross_fitted_signals(replies: Sequence[LabelledSignals], clusters: Sequence[str]) -> Floats:
    """Return the confidences (n,), each by weights that did not see the reply's cluster.

    There are five folds of clusters. Where the other folds cannot be fitted, a confidence is
    unchanged.
    """
    folds = np.array([int(share_of(cluster) * FOLDS) for cluster in clusters])
    found = confidences(replies)
    for fold in range(FOLDS):
        inside = [at for at, number in enumerate(folds) if number == fold]
        with suppress(JudgingError):
            weights = fit_signals(
                [replies[at] for at, number in enumerate(folds) if number != fold]
            )
            found[inside] = weigh_replies(weights, [replies[at] for at in inside])
    return found


def _groups(
    replies: Sequence[LabelledSignals],
) -> Iterator[tuple[tuple[str, ...], list[LabelledSignals]]]:
    """Yield each combination of signals with enough labels, with the replies it serves.

    Enough are `MIN_GROUP_LABELS`, right and wrong ones; replies of no such combination are left
    out. Large combinations come first; a reply is in one group only. `replies` are of one
    calibrator.
    """
    remaining = list(replies)
    all_kinds = {kinds for each in replies for kinds in parts(each.signals.kinds)}
    for kinds in sorted(all_kinds, key=lambda each: (-len(each), each == (LOGPROBS,), each)):
        members = [each for each in remaining if kinds in parts(each.signals.kinds)]
        if len(members) >= MIN_GROUP_LABELS and len({each.is_correct for each in members}) == 2:
            remaining = [each for each in remaining if kinds not in parts(each.signals.kinds)]
            yield kinds, members


def _fit_curve(replies: Sequence[LabelledSignals], kinds: tuple[str, ...]) -> SignalCurve:
    """Fit a logistic regression of labels on the confidence's log-odds and the signals'.

    Penalties hold the first slope near 1 and the signals' weights near 0. The slope is at least 0,
    so the result never falls as the confidence rises.
    """
    own = np.asarray(logit([each.confidence for each in replies]))
    read = np.array([readings(each.signals, kinds) for each in replies])
    center, spread = read.mean(axis=0), np.maximum(read.std(axis=0), 1e-3)
    weights = np.array([each.weight for each in replies])
    counts = weights * (effective_size(weights) / weights.sum())
    y = np.array([float(each.is_correct) for each in replies])
    one, scaled = np.ones(len(replies)), (read - center) / spread
    features = np.column_stack([own, one, scaled])
    trust = np.array([*TRUST, *[TRUST_IN_NONE] * read.shape[1]])
    before = np.array([SLOPE_BEFORE, *[0.0] * (features.shape[1] - 1)])
    slope, intercept, *found = fit_logistic(y, features, before, trust, counts)
    if slope < 0:
        slope = 0.0
        rest = features[:, 1:], before[1:], trust[1:]
        intercept, *found = fit_logistic(y, *rest, counts)
    scaled_back = np.array(found) / spread
    intercept -= float(scaled_back @ center)
    return SignalCurve(slope, intercept, tuple(map(float, scaled_back)))
