"""The figures of a calibrator on real traffic: of each kind, of each set, and of edits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.metrics import Floats, Ints, auroc, ece
from calibrator.recalibration.fit import LabelledConfidences, apply_to_groups, fit_observed
from calibrator.rows.results import plain_json
from calibrator.scorer import COMPUTED, CONTEXT, LIKENESS, Score

Group = Literal["apps", "hand-made", "sets", "means"]
APPS: Group = "apps"
HAND_MADE: Group = "hand-made"
SETS: Group = "sets"
MEANS: Group = "means"
ALL = "all kinds"
EVEN = 0.5  # the least confidence that a right reply should have
SURE = 0.8  # a wrong reply should have a lower confidence
LABELS = 100  # labels of a kind for its recalibration
DRAWS = 10  # draws of such labels
CHANGED = 0.001  # a larger difference counts as a change of the confidence


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """The figures of a calibrator on one kind of traffic; nan where a figure does not exist.

    `in_order` is the share of pairs of a right and a wrong reply to one question in which the right
    one has the higher confidence (a tie counts half). `right` and `wrong` are mean confidences,
    `right_even` the share of right replies at `EVEN` or more, `wrong_sure` that of wrong ones at
    `SURE` or more. `context`, `computed` and `likeness` count the replies with these in their
    basis, the last one those with nothing else. `support_auroc` is of the `support` of the
    `supported` replies that have one. `words` and `tfidf` are the AUROC of the two baselines of
    `calibrator.lab.judging.baselines.overlap`. `constant_ece` is the ECE of always saying `EVEN`,
    and `labelled_ece` that of replies after a recalibration on `LABELS` others (`ece_with_labels`).
    """

    group: Group
    kind: str
    rows: int
    questions: int
    accuracy: float
    auroc: float
    in_order: float
    ece: float
    right: float
    wrong: float
    right_even: float
    wrong_sure: float
    context: int
    computed: int
    likeness: int
    supported: int
    support_auroc: float
    words: float
    words_in_order: float
    tfidf: float
    tfidf_in_order: float
    constant_ece: float
    labelled_ece: float
    licence: str = ""  # the licence that forbids training, such as `nc`, or empty
    is_left_out: bool = False  # whether the checkpoint says that training did not see it
    sets: int = 1  # number of sets in this mean

    @property
    def is_unseen(self) -> bool:
        """Whether training saw nothing of this set, as stated or since a licence forbids it."""
        return self.is_left_out or bool(self.licence)


@dataclass(frozen=True, slots=True)
class EditEffect:
    """The effect of an edit that keeps a reply's correctness on its confidence.

    `mean` is of the changes with their sign, `absolute` of their sizes, `high` the 95th percentile
    of the changes, and `changed` the share larger than `CHANGED` in either direction.
    """

    edit: str
    of: str  # the group of replies, `apps` or `sets`
    replies: int
    mean: float
    absolute: float
    high: float
    changed: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """All figures of one calibrator on real traffic."""

    calibrator: str
    figures: list[TrafficFigures] = field(default_factory=list)
    changes: list[EditEffect] = field(default_factory=list)

    def of_group(self, group: Group) -> list[TrafficFigures]:
        """Return the figures of one group (`apps`, `hand-made`, `sets` or `means`), in order."""
        return [one for one in self.figures if one.group == group]

    def find(self, group: Group, kind: str = ALL) -> TrafficFigures | None:
        """Return the figures of one kind in a group, by default of all kinds together.

        It is None where there are none.
        """
        return next((one for one in self.of_group(group) if one.kind == kind), None)

    def lines(self) -> list[dict[str, Any]]:
        """Return all figures, then all effects of edits, as dicts for JSON lines.

        nan becomes None. A line's `kind` is `traffic` or `traffic change`, its `group` the group,
        and `method` the calibrator's name; the kind of traffic, such as `rag`, is in `traffic`.
        """
        kinds = [
            {**asdict(one), "kind": "traffic", "group": one.group, "traffic": one.kind}
            for one in self.figures
        ]
        changes = [
            {**asdict(one), "kind": "traffic change", "group": one.of} for one in self.changes
        ]
        return [plain_json({"method": self.calibrator, **one}) for one in [*kinds, *changes]]


def read_traffic_figures(values: Mapping[str, Any]) -> Traffic:
    """Build a Traffic from the dict that `asdict` made of one, as it is read from JSON.

    Raises TypeError or KeyError for other values.
    """
    return Traffic(
        calibrator=str(values["calibrator"]),
        figures=[TrafficFigures(**one) for one in values["figures"]],
        changes=[EditEffect(**one) for one in values["changes"]],
    )


def figures_of(
    group: Group,
    kind: str,
    labels: Ints,
    questions: ArrayLike,
    scores: Sequence[Score],
    baselines: tuple[Floats, Floats],
) -> TrafficFigures:
    """Return the figures of n replies of one kind: labels, questions and scores, each (n,).

    `group` and `kind` are only stored. `questions` has the same value for replies to one question.
    `baselines` are word shares and TF-IDF cosines of the same replies, (n,) each.
    """
    names = np.asarray(questions)
    confidences = np.array([score.confidence for score in scores])
    right, wrong = confidences[labels == 1], confidences[labels == 0]
    has_support = np.array([score.support is not None for score in scores])
    support = np.array([score.support for score in scores if score.support is not None])
    words, tfidf = baselines
    bases = [score.basis for score in scores]
    return TrafficFigures(
        group=group,
        kind=kind,
        rows=len(confidences),
        questions=len(set(names.tolist())),
        accuracy=float(labels.mean()),
        auroc=auroc(labels, confidences),
        in_order=_in_order(labels, confidences, names),
        ece=ece(labels, confidences),
        right=_mean(right),
        wrong=_mean(wrong),
        right_even=_mean(right >= EVEN),
        wrong_sure=_mean(wrong >= SURE),
        context=sum(CONTEXT in basis for basis in bases),
        computed=sum(COMPUTED in basis for basis in bases),
        likeness=sum(tuple(basis) == (LIKENESS,) for basis in bases),
        supported=len(support),
        support_auroc=auroc(labels[has_support], support) if len(support) else math.nan,
        words=auroc(labels, words),
        words_in_order=_in_order(labels, words, names),
        tfidf=auroc(labels, tfidf),
        tfidf_in_order=_in_order(labels, tfidf, names),
        constant_ece=abs(float(labels.mean()) - EVEN),
        labelled_ece=ece_with_labels(labels, confidences, names.tolist()),
    )


def ece_with_labels(labels: Ints, confidence: Floats, questions: Sequence[str]) -> float:
    """Return the ECE of replies after a recalibration on `LABELS` others of the same kind.

    Labels and confidences are (n,). It is the mean of `DRAWS` draws of whole questions, or nan
    where fewer than `LABELS` replies would remain.
    """
    if len(labels) < 2 * LABELS:
        return math.nan
    found = LabelledConfidences(
        labels, confidence, [""] * len(labels), questions, np.ones(len(labels))
    )
    of_question: dict[str, list[int]] = {}
    for at, name in enumerate(questions):
        of_question.setdefault(name, []).append(at)
    values = []
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(np.array(sorted(of_question)))
        drawn = [at for name in order.tolist() for at in of_question[name]]
        chosen, others = found.take(drawn[:LABELS]), found.take(drawn[LABELS:])
        if chosen.is_mixed:
            curve = fit_observed(chosen)
            values.append(
                ece(others.correct, apply_to_groups(curve, others.groups, others.confidence))
            )
    return _mean(values)


def _in_order(labels: Ints, numbers: Floats, questions: Any) -> float:
    """Return the share of pairs of a right and a wrong reply to one question that are in order.

    In order means that the right one's number in `numbers` is higher; a tie counts half. It is nan
    where no question has a right and a wrong reply.
    """
    found = disagreement(labels, numbers, questions, permutations=0)
    return found.pairs if found else math.nan


def _mean(values: Any) -> float:
    """Return the mean of a sequence of numbers or booleans, or nan for an empty one."""
    return float(np.mean(values)) if len(values) else math.nan


def mean_figures(kind: str, each: Sequence[TrafficFigures]) -> TrafficFigures:
    """Return the unweighted mean of each figure over the sets that have it, as a set named `kind`.

    Figures that are nan are left out; it is nan where all are. Counts are summed. The group is
    `means`. Raises IndexError without sets.
    """
    found: dict[str, Any] = {}
    for one in fields(TrafficFigures):
        values = [getattr(figures, one.name) for figures in each]
        if one.type == "float":
            finite = [value for value in values if math.isfinite(value)]
            found[one.name] = sum(finite) / len(finite) if finite else math.nan
        elif one.type == "int":
            found[one.name] = sum(values)
    return replace(each[0], **found, group=MEANS, kind=kind, licence="", is_left_out=False)


def change_of(edit: str, of: str, changes: Floats) -> EditEffect:
    """Return the effect of an edit from the changes of the confidence, (n,), after minus before.

    `edit` and `of`, the group of replies, are only stored.
    """
    return EditEffect(
        edit=edit,
        of=of,
        replies=len(changes),
        mean=float(changes.mean()),
        absolute=float(np.abs(changes).mean()),
        high=float(np.percentile(changes, 95)),
        changed=float((np.abs(changes) > CHANGED).mean()),
    )
