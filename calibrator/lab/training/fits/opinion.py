"""Fits the second stage: the worth of agreement and disagreement with other models' replies.

Log-odds of replies that the calibrator was trained on are far too good, and a stage fitted on them
would trust them too much. So each fold (`folds`) has towers and forests fitted on a part of the
questions, which read the replies to the others. Each reply is then drawn several times with one to
four replies of other models to its question, sometimes without its own or their names.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrator.errors import TrainingError
from calibrator.features.forest import NO_NAME
from calibrator.lab.training.stages.tree_fitting import fit_trees
from calibrator.readers.opinion.answers import final_answer
from calibrator.readers.opinion.evidence import Opinion, Opinions, evidence, plain_evidence
from calibrator.readers.opinion.second_stage import LINEAR, PREFIX, TRUST
from calibrator.recalibration.curves import sigmoid
from calibrator.rows.rows import Row
from calibrator.text.stripping import strip_addresses

Array = NDArray[np.generic]
Floats = NDArray[np.float64]

MAX_WEIGHT = 3.0  # largest weight of a small benchmark's row; 1 for one of average size
MAX_STOOD_ON = 12.0  # largest weight of a question's gain, in replies


@dataclass(frozen=True, slots=True)
class OpinionConfig:
    """The settings for fitting the second stage."""

    rows: int = 2_000  # rows of a benchmark
    rows_at_a_time: int = 12  # rows of a question before the next question's turn
    draws: int = 3  # draws of each reply, each with new others
    counts: tuple[int, ...] = (1, 1, 2, 3, 4)  # numbers of others, one drawn each time
    own_name_dropout: float = 0.25
    other_name_dropout: float = 0.15
    trees: int = 400
    leaves: int = 24
    learning_rate: float = 0.07
    leaf_rows: int = 200
    ridge: float = 20.0
    feature_share: float = 0.5
    folds: int = 3


@dataclass(frozen=True, slots=True)
class UnseenReplies:
    """Replies with log-odds from a calibrator that had not seen their questions.

    `odds` (2, N) are without and with the model's name; `meanings` (N, D) are the questions'
    meanings, each of length 1.
    """

    rows: Sequence[Row]
    odds: Floats
    meanings: NDArray[np.float32]


def chosen_rows(rows: Sequence[Row], config: OpinionConfig, seed: int) -> list[Row]:
    """Return labelled rows of questions that at least two models answered.

    There are at most `config.rows` of each benchmark, or a few more. Questions take turns in random
    order, each giving `config.rows_at_a_time` of its rows. The same seed gives the same rows.
    """
    benchmarks: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.correct is not None:
            benchmarks[row.benchmark or ""][row.question_id].append(row)
    rng, found = random.Random(seed), []
    for _, questions in sorted(benchmarks.items()):
        groups = [own for _, own in sorted(questions.items()) if len({r.model for r in own}) > 1]
        rng.shuffle(groups)
        groups = [rng.sample(own, len(own)) for own in groups]
        taken: list[Row] = []
        while groups and len(taken) < config.rows:
            for own in groups:
                if len(taken) < config.rows:
                    taken += own[: config.rows_at_a_time]
            groups = [own[config.rows_at_a_time :] for own in groups]
            groups = [own for own in groups if own]
        found += taken
    return found


def fit_second_stage(
    unseen: UnseenReplies,
    abilities: Mapping[str, float],
    config: OpinionConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Array]:
    """Return the arrays of a `SecondStage`, by names such as `opinion.linear.base`.

    `abilities` are the forest's, by the models' names in lower case; others count as unknown. `say`
    gets the number of lessons. The same rows and seed give the same arrays. Raises TrainingError if
    no question has replies of two models, or all have one label, and MissingExtraError without
    scikit-learn.
    """
    lessons = draw_lessons(unseen, abilities, config, seed)
    say(f"opinion: {len(lessons.at)} replies with others")
    return fit_lessons(lessons, config, seed)


@dataclass(frozen=True, slots=True)
class OpinionLessons:
    """Replies with some of the others to their questions.

    `at` are their positions among the rows, `evidence` (N, EVIDENCE) is the trees' input, and
    `replies` has the comparisons.
    """

    unseen: UnseenReplies
    at: NDArray[np.intp]
    evidence: NDArray[np.float32]
    replies: Sequence[Opinions]

    def without_benchmark(self, benchmark: str) -> OpinionLessons:
        """Return all lessons but those of the benchmark, in order."""
        own = [(self.unseen.rows[at].benchmark or "") != benchmark for at in self.at.tolist()]
        left = np.flatnonzero(own)
        replies = [self.replies[number] for number in left.tolist()]
        return OpinionLessons(self.unseen, self.at[left], self.evidence[left], replies)


def draw_lessons(
    unseen: UnseenReplies, abilities: Mapping[str, float], config: OpinionConfig, seed: int
) -> OpinionLessons:
    """Draw other models' replies for each reply, `config.draws` times, and return the lessons.

    Lessons are left out if the reply has no final answer or cannot be compared with any of the
    others. The same seed gives the same lessons.
    """
    drawn = _ComparedReplies(unseen, abilities, config, seed)
    found = np.array([evidence(each) for each in drawn.replies], dtype=np.float32)
    return OpinionLessons(unseen, np.array(drawn.at, dtype=np.intp), found, drawn.replies)


def fit_lessons(lessons: OpinionLessons, config: OpinionConfig, seed: int) -> dict[str, Array]:
    """Return the arrays of a `SecondStage`, by names such as `opinion.linear.base`.

    They are trees (the higher a reply's own log-odds, the higher the result), a linear model and
    the gains of agreement. Raises TrainingError if there are no lessons or all have one label, and
    MissingExtraError without scikit-learn.
    """
    rows = [lessons.unseen.rows[at] for at in lessons.at.tolist()]
    if not rows:
        raise TrainingError("no question has replies of two models that can be compared")
    correct = np.array([row.correct for row in rows])
    if len(set(correct.tolist())) < 2:
        raise TrainingError("all replies that can be compared have the same label")
    directions = [1] + [0] * (lessons.evidence.shape[1] - 1)
    weights = _weights(rows)
    trees = fit_trees(lessons.evidence, correct, weights, config, seed, directions=directions)
    state = trees | _linear(lessons, correct, weights) | _trust(lessons, correct)
    return {PREFIX + name: array for name, array in state.items()}


class _ComparedReplies:
    """Replies with some of the others to their questions, where they can be compared.

    `at` are their positions among the rows.
    """

    def __init__(
        self,
        unseen: UnseenReplies,
        abilities: Mapping[str, float],
        config: OpinionConfig,
        seed: int,
    ) -> None:
        """Draw lessons for all rows with replies of other models, `config.draws` times.

        `abilities` are by the models' names in lower case. Fills `replies` and `at`, in the same
        order.
        """
        self.unseen, self.abilities, self.config = unseen, abilities, config
        self.rng = random.Random(seed)
        self.answers = [
            final_answer(row.question, strip_addresses(row.answer), row.tool_use)
            for row in unseen.rows
        ]
        self.replies: list[Opinions] = []
        self.at: list[int] = []
        questions: dict[str, list[int]] = defaultdict(list)
        for at, row in enumerate(unseen.rows):
            questions[row.question_id].append(at)
        for _ in range(config.draws):
            for at, row in enumerate(unseen.rows):
                others = [
                    other
                    for other in questions[row.question_id]
                    if unseen.rows[other].model != row.model
                ]
                if others:
                    self._draw(at, others)

    def _draw(self, at: int, others: Sequence[int]) -> None:
        """Draw some of the replies `others` for the reply `at`, both places of rows.

        If they can be compared, the lesson is appended to `replies` and `at`. The reply's own name
        and the others' names are hidden at random.
        """
        rng, config = self.rng, self.config
        chosen = rng.sample(others, min(len(others), rng.choice(config.counts)))
        is_named = rng.random() >= config.own_name_dropout
        are_named = rng.random() >= config.other_name_dropout
        row, rows = self.unseen.rows[at], self.unseen.rows
        reply = Opinions(
            float(self.unseen.odds[int(is_named), at]),
            self._ability(row, is_named),
            self.answers[at],
            len(row.answer),
            [
                Opinion(
                    self.answers[each],
                    self._ability(rows[each], are_named),
                    len(rows[each].answer),
                    is_same_model=False,
                )
                for each in chosen
            ],
        )
        if reply.is_informative():
            self.replies.append(reply)
            self.at.append(at)

    def _ability(self, row: Row, is_named: bool) -> float:
        """Return the ability of the row's model; `NO_NAME` if it is unknown or not `is_named`."""
        return self.abilities.get((row.model or "").lower(), NO_NAME) if is_named else NO_NAME


def _weights(rows: Sequence[Row]) -> Floats:
    """Return the rows' weights (N,), by which small benchmarks count more.

    A weight is the mean number of rows of a benchmark over that of the row's own, at most
    `MAX_WEIGHT`.
    """
    names, counts = np.unique([row.benchmark or "" for row in rows], return_counts=True)
    usual = len(rows) / len(names)
    weight = dict(zip(names.tolist(), np.minimum(MAX_WEIGHT, usual / counts), strict=True))
    return np.array([weight[row.benchmark or ""] for row in rows])


def _linear(
    lessons: OpinionLessons, correct: NDArray[np.int64], weights: Floats
) -> dict[str, Array]:
    """Fit a logistic regression on the plain evidence; return `linear.weights` and `linear.base`.

    `correct` (N,) are the labels. The weight of a reply's own log-odds is never below 0.
    """
    from sklearn.linear_model import LogisticRegression

    plain = np.array([plain_evidence(each) for each in lessons.replies])
    center, spread = plain.mean(axis=0), plain.std(axis=0) + 1e-6
    model = LogisticRegression(max_iter=500)
    model.fit((plain - center) / spread, correct, sample_weight=weights)
    slopes = model.coef_[0] / spread
    slopes[0] = max(0.0, slopes[0])
    base = model.intercept_ - slopes @ center
    return {f"{LINEAR}weights": slopes.astype(np.float32), f"{LINEAR}base": base.astype(np.float32)}


def _trust(lessons: OpinionLessons, correct: NDArray[np.int64]) -> dict[str, Array]:
    """Return `trust.questions`, `trust.gain` and `trust.weight`, with one entry for each question.

    They are its meaning in int8, the mean of (label minus the reply's own probability) for replies
    that others agree with, negative for those they differ from, and the sum of these shares, at
    most `MAX_STOOD_ON`.
    """
    unseen, all_at, places = lessons.unseen, lessons.at.tolist(), dict[str, int]()
    of_question = [places.setdefault(unseen.rows[at].question_id, len(places)) for at in all_at]
    first = {place: at for place, at in zip(reversed(of_question), reversed(all_at), strict=True)}
    shares = np.array([_agreement(reply.outcomes()) for reply in lessons.replies])
    surprise = correct - sigmoid(np.array([reply.odds for reply in lessons.replies]))
    gains = np.bincount(of_question, surprise * (shares[:, 0] - shares[:, 1]))
    weights = np.bincount(of_question, shares.sum(axis=1))
    meanings = unseen.meanings[[first[place] for place in range(len(places))]]
    return {
        f"{TRUST}questions": np.round(meanings * 127).astype(np.int8),
        f"{TRUST}gain": (gains / np.maximum(weights, 1e-6)).astype(np.float16),
        f"{TRUST}weight": np.minimum(weights, MAX_STOOD_ON).astype(np.float16),
    }


def _agreement(outcomes: Sequence[str]) -> tuple[float, float]:
    """Return (share of `agree`, share of `differ`) among the outcomes, which are not empty."""
    return outcomes.count("agree") / len(outcomes), outcomes.count("differ") / len(outcomes)
