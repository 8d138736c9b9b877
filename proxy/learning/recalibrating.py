"""A recalibration from verdicts: fitted with their weights, tried, and promoted if it is better.

Curves are fitted on what the calibrator itself said (`score`), so that a new recalibration takes
the place of the one before and is not built upon it. Where others were heard, the number of the
reply alone is one thing and the number that knows them another: each has a recalibration of its
own, fitted on numbers of its very name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibrator import (
    WITH_OTHERS,
    By,
    CalibratorError,
    Kind,
    Observed,
    Recalibration,
    SignalWeights,
    Trial,
    fit_observed,
    group_key,
    knows_others,
    knows_signals,
    trial,
)
from policies import counted
from proxy.learning.labels import Labels
from proxy.store.verdicts.labels import LabelledReply

LEAST_LABELS: Final = 50
"""With fewer, a fold of five leaves too few others to fit on."""


class NotLearntError(CalibratorError):
    """The verdicts do not allow what was asked for; the sentence says what is missing."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was fitted on all labels, and how it did on labels that it did not see.

    `unknown` counts labels that were left out since nobody knows what the calibrator had said.
    """

    recalibration: Recalibration | SignalWeights
    trial: Trial
    unknown: int = 0


def learn_recalibration(
    labels: Labels,
    calibrator: str,
    current: Recalibration | None = None,
    *,
    kind: Kind = "platt",
    by: By | None = None,
    is_held_only: bool = False,
    known: Sequence[Recalibration] = (),
) -> Learnt:
    """Fits on labels of replies that `calibrator` scored, and compares with what counts now.

    `calibrator` names a checkpoint, or what gives its numbers that know others. `known` are
    recalibrations whose confidences can be undone where the score was not recorded.
    Raises NotLearntError for too few labels, of one kind, or of held replies alone.
    """
    labels = usable(labels, is_held_only)
    replies, scores, unknown = _scored(labels.replies, calibrator, known)
    check_enough(len(replies), labels)
    weights = np.array(Labels(replies, labels.totals).weights())
    found = Observed(
        np.array([int(each.is_correct) for each in replies]),
        np.array(scores),
        [group_key(by, each.model, each.domain, each.team) for each in replies],
        [each.question for each in replies],
        weights,
    )
    if not found.is_mixed:
        which = "correct" if replies[0].is_correct else "wrong"
        raise NotLearntError(
            f"all {len(replies)} labelled replies are {which}: a recalibration needs both kinds"
        )
    before = [_mended(current, each, score) for each, score in zip(replies, scores, strict=True)]
    tried = trial(found, before, kind=kind, by=by)
    return Learnt(fit_observed(found, kind=kind, by=by, calibrator=calibrator), tried, unknown)


def usable(labels: Labels, is_held_only: bool = False) -> Labels:
    """The labels of the replies that what is learnt would be for; raises NotLearntError."""
    if is_held_only:
        return labels.of("held")
    if labels.replies and not labels.of("delivered").replies:
        raise NotLearntError(
            f"all {len(labels.replies)} labels are of held replies: they say nothing about those "
            "that were delivered. Draw a random audit (`audit: {share: 0.01}` in proxy.yaml), or "
            "state --held-only for what is right for held replies alone"
        )
    return labels


def _scored(
    replies: Sequence[LabelledReply], calibrator: str, known: Sequence[Recalibration]
) -> tuple[list[LabelledReply], list[float], int]:
    """The replies of which the calibrator's own score is known, or can be found out."""
    by_name = {one.name: one for one in known}
    scores = [own_score(each, calibrator, by_name) for each in replies]
    found = [
        (each, score) for each, score in zip(replies, scores, strict=True) if score is not None
    ]
    return [each for each, _ in found], [score for _, score in found], len(replies) - len(found)


def own_score(
    reply: LabelledReply, calibrator: str, by_name: Mapping[str, Recalibration]
) -> float | None:
    """What `calibrator` itself said, recorded or with its recalibration undone.

    Of a reply that others were asked about, a checkpoint said the number without them; of one
    whose number knows signals, nobody but their weights said that.
    """
    confidence, name, score = reply.confidence, reply.calibrator, reply.score
    if knows_signals(name):
        if (facts := reply.facts) is None or facts.unaided is None:
            return None
        confidence, name, score = facts.unaided, facts.unaided_calibrator or "", facts.unaided_score
    if knows_others(name) and not knows_others(calibrator):
        if (facts := reply.facts) is None or facts.alone is None:
            return None
        confidence, name, score = facts.alone, facts.alone_calibrator or "", facts.alone_score
    if score is not None:
        return score
    if name == calibrator:
        return confidence
    one = by_name.get(name.removeprefix(f"{calibrator}+"))
    return one.undone(confidence, reply.model, reply.domain, reply.team) if one else None


def name_with_others(replies: Sequence[LabelledReply], checkpoint: str) -> str:
    """What gave the latest of the numbers of this checkpoint that know others, without the
    deployment's recalibration; raises NotLearntError where there are none."""
    prefix = checkpoint + WITH_OTHERS
    found = [each.calibrator for each in replies if each.calibrator.startswith(prefix)]
    if not found:
        raise NotLearntError(
            f"no verdict is on a number of {checkpoint} that knows a second opinion; a policy's "
            "`second_opinion` has others asked, and the audit draws replies to be reviewed"
        )
    return prefix + found[-1].removeprefix(prefix).partition("+")[0]


def check_enough(
    count: int,
    labels: Labels,
    one: str = "labelled reply is",
    several: str = "labelled replies are",
) -> None:
    """Raises NotLearntError for too few labels to learn from."""
    if count >= LEAST_LABELS:
        return
    undrawn = (
        f"; {labels.undrawn} more are of replies that were neither held nor drawn by the audit, "
        "which say nothing about others"
        if labels.undrawn
        else ""
    )
    raise NotLearntError(
        f"{counted(count, one, several)} too few for a "
        f"recalibration: {LEAST_LABELS} are the least, "
        f"{LEAST_LABELS - count} more, and 200 are better{undrawn}"
    )


def _mended(current: Recalibration | None, reply: LabelledReply, score: float) -> float:
    if current is None:
        return score
    return current.apply_to(score, reply.model, reply.domain, reply.team)
