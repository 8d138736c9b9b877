"""The training of `CallTrees` from labelled rows; it takes minutes on one core.

The weights of the parts are fitted on rows that the parts were not fitted on: for familiar words,
questions are left out in turn; for unfamiliar words, sources are left out in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibrator.errors import TrainingError
from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.lab.data.calls.domains import DOMAINS, Domain
from calibrator.lab.data.calls.lessons import (
    CORRUPTED,
    GRADED,
    SCENE,
    SUSPECT,
    WRITTEN,
    CallLesson,
    lessons_of,
)
from calibrator.lab.data.calls.replies import Remark, real_remarks, remarks
from calibrator.lab.training.stages.tree_fitting import fit_trees
from calibrator.readers.calls.model import (
    BUCKETS,
    CLAIMS,
    GENERAL,
    PREFIX,
    SPECIAL,
    WORDING,
    Ints,
    read_call,
)
from calibrator.readers.calls.reading.claims import AGAINST, NAMES, claim_traits
from calibrator.readers.calls.reading.requests import CONTRARY
from calibrator.readers.calls.reading.traits import NAMES as TRAIT_NAMES
from calibrator.rows.rows import Row

Array = NDArray[np.generic]
Doubles = NDArray[np.float64]
State = dict[str, Array]


@dataclass(frozen=True, slots=True)
class CallConfig:
    """The settings of the fits, and the weights of the sources."""

    trees: int = 300
    learning_rate: float = 0.06
    leaves: int = 15
    leaf_rows: int = 40
    ridge: float = 5.0
    feature_share: float = 0.3
    fits: int = 2  # number of sets of trees, with other seeds; their mean counts
    word_strength: float = 10.0  # inverse of the words' ridge
    known_rows: int = 3  # least number of rows with a word for it to be known
    folds: int = 4
    scenes: int = 4_000
    faults: int = 2  # number of corruptions of each right row
    written: float = 1.0  # weight of calls written as text beside all graded ones of one source
    corrupted: float = 0.4  # weight of a source's corruptions beside its graded rows
    suspect: float = 0.02  # share of right but suspicious variants in that weight
    scene: float = 0.3
    remarks: int = 4_000  # number of scenes with replies of text
    claim_trees: int = 80
    claim_leaves: int = 8
    honest: float = 0.85  # prior share of honest replies
    real: float = 0.5  # weight of replies in graded conversations beside those of scenes
    sources: dict[str, float] = field(
        default_factory=lambda: {"WorkBench": 1.3, "tau-airline": 0.5, "Toolathlon": 0.25}
    )  # weights of sources; others have 1.0


@dataclass(slots=True)
class Material:
    """Lessons as numbers, each (N,) or (N, ...)."""

    traits: NDArray[np.float32]
    words: list[Ints]
    targets: NDArray[np.int64]
    weights: Doubles  # by the level of the lesson's label alone
    origins: NDArray[np.str_]
    groups: NDArray[np.str_]
    kinds: NDArray[np.str_]
    questions: NDArray[np.str_]

    def part(self, chosen: NDArray[np.bool_]) -> Material:
        """Return copies of the lessons for which `chosen` (N,) is True, in order."""
        at = np.flatnonzero(chosen)
        return Material(self.traits[at], [self.words[i] for i in at], self.targets[at],
                        self.weights[at], self.origins[at], self.groups[at], self.kinds[at],
                        self.questions[at])  # fmt: skip


def material_of(lessons: Sequence[CallLesson], seed: int) -> Material:
    """Read lessons of calls as arrays, in order.

    Half of them, at random by `seed`, are read without the answering model's name, since the name
    may also be missing where the calibrator serves.
    """
    rng = np.random.default_rng(seed)
    is_named = rng.random(len(lessons)) < 0.5
    read = [
        read_call(lesson.used, lesson.name if named else None)
        for lesson, named in zip(lessons, is_named, strict=True)
    ]
    return Material(
        np.stack([traits for traits, _ in read]),
        [words for _, words in read],
        np.array([lesson.correct for lesson in lessons]),
        np.array([lesson.weight for lesson in lessons]),
        np.array([lesson.origin for lesson in lessons]),
        np.array([lesson.group for lesson in lessons]),
        np.array([lesson.kind for lesson in lessons]),
        np.array([lesson.question for lesson in lessons]),
    )


def fit_calls(
    rows: Sequence[Row],
    seed: int,
    config: CallConfig | None = None,
    domains: tuple[Domain, ...] = DOMAINS,
) -> State:
    """Fit the arrays of a `CallTrees`, by names such as `calls.strange`, from labelled rows.

    Rows that call tools are the graded lessons; others are used where they write calls as text.
    Scenes of `domains` and corrupted variants are added. `config` is `CallConfig()` if None. The
    same rows and seed give the same arrays. Raises TrainingError if the rows that call tools all
    have one label, and MissingExtraError without scikit-learn.
    """
    config = config or CallConfig()
    lessons = lessons_of(
        rows, seed, scene_count=config.scenes, faults=config.faults, domains=domains
    )
    material = material_of(lessons, seed)
    graded = material.targets[material.origins == GRADED]
    if len(set(graded.tolist())) < 2:
        raise TrainingError("there must be right and wrong rows that call tools")
    claims = fit_claims([*remarks(config.remarks, seed, domains), *real_remarks(rows, seed)],
                        config, seed)  # fmt: skip
    state = {**fit_material(material, config, seed), **claims}
    return {PREFIX + name: array for name, array in state.items()}


def fit_material(material: Material, config: CallConfig, seed: int) -> State:
    """Fit the arrays of a `CallTrees` but those for claims, by names without `calls.`."""
    return {**fit_parts(material, config, seed), **fit_familiarity(material, config, seed)}


# --- weights ------------------------------------------------------------------------------------


def balance_weights(material: Material, config: CallConfig) -> Doubles:
    """Return the lessons' weights (N,) for a fit, which balance sources, labels and corruptions.

    A source of graded rows weighs `config.sources` (1.0 if not named), all calls written as text
    together `config.written`, all scenes together `config.scene`. Corruptions weigh as much as the
    right calls from which they were made, so that both labels have the same conversations. The
    weights add up to N / 8.
    """
    weights = np.zeros(len(material.targets))
    for group in sorted(set(material.groups.tolist())):
        here = material.groups == group
        if (here & (material.origins == GRADED)).any():
            _weigh(weights, material, here, GRADED, config.sources.get(group, 1.0), config)
    written = {g for g, o in zip(material.groups, material.origins, strict=True) if o == WRITTEN}
    scenes = {g for g, o in zip(material.groups, material.origins, strict=True) if o == SCENE}
    _weigh(
        weights,
        material,
        np.isin(material.groups, sorted(written)),
        WRITTEN,
        config.written,
        config,
    )
    _weigh(weights, material, np.isin(material.groups, sorted(scenes)), SCENE, config.scene, config)
    return np.asarray(weights * (len(weights) / 8 / max(weights.sum(), 1e-9)))


def _weigh(
    weights: Doubles,
    material: Material,
    here: NDArray[np.bool_],
    origin: str,
    mass: float,
    config: CallConfig,
) -> None:
    """Add the weights of one source, and of the corruptions made from it, to `weights` in place.

    `here` (N,) marks the source's lessons, and `origin` is the way they were made, such as
    `graded`. The lessons of this origin get the sum `mass`. Corruptions get `mass` times
    `config.corrupted` (or times 1 for scenes), which they share by halves with their right
    originals; of the originals' half the share `config.suspect` goes to right variants that look
    suspicious.
    """
    own = here & (material.origins == origin)
    right = own & (material.targets == 1)
    evenly = 1.0 if origin == SCENE else 0.5
    _put(weights, own, _even_labels(material, own, evenly), mass)
    corrupted = mass if origin == SCENE else mass * config.corrupted
    for chosen, share in (
        (here & (material.origins == CORRUPTED), 0.5),
        (right, 0.5 - config.suspect),
        (here & (material.origins == SUSPECT), config.suspect),
    ):
        _put(weights, chosen, material.weights[chosen], corrupted * share)


def _even_labels(material: Material, chosen: NDArray[np.bool_], evenly: float) -> Doubles:
    """Return the weights of the lessons that `chosen` marks, with the rarer label raised.

    At `evenly` 1 both labels weigh the same, at 0 the weights are unchanged.
    """
    weights, targets = material.weights[chosen].copy(), material.targets[chosen]
    for label in (0, 1):
        is_label = targets == label
        share = weights[is_label].sum() / max(weights.sum(), 1e-9)
        if 0 < share < 1:
            weights[is_label] *= (0.5 / share) ** evenly
    return weights


def _put(weights: Doubles, chosen: NDArray[np.bool_], own: Doubles, mass: float) -> None:
    """Add `own`, scaled to the sum `mass`, to the weights that `chosen` marks, in place.

    Does nothing if `chosen` marks none.
    """
    if chosen.any():
        weights[chosen] += own / max(own.sum(), 1e-9) * mass


# --- fits ---------------------------------------------------------------------------------------


def fit_parts(material: Material, config: CallConfig, seed: int) -> State:
    """Fit the general trees, the special trees and the word model; return their arrays.

    Names begin with `general.`, `special.` and `words.`. The general trees read all lessons,
    special trees and words only those of graded rows.
    """
    weights = balance_weights(material, config)
    graded = material.part(material.origins == GRADED)
    own = balance_weights(graded, config)
    general = _trees(material, weights, config, seed)
    special = _trees(graded, own, config, seed)
    words = _words(graded, own, config)
    return {
        **{GENERAL + name: array for name, array in general.items()},
        **{SPECIAL + name: array for name, array in special.items()},
        **{WORDING + name: array for name, array in words.items()},
    }


def _trees(material: Material, weights: Doubles, config: CallConfig, seed: int) -> State:
    """Fit `config.fits` sets of trees on lessons with a positive weight; join them to their mean.

    Traits of a call that contradicts its request (`CONTRARY`) never raise the log-odds.
    """
    counted = weights > 0
    found = [
        fit_trees(
            material.traits[counted],
            material.targets[counted],
            weights[counted],
            config,
            seed + number,
            directions=[-1 if name in CONTRARY else 0 for name in TRAIT_NAMES],
            weight=1 / config.fits,
        )
        for number in range(config.fits)
    ]
    return _join_trees(found)


def _join_trees(found: Sequence[State]) -> State:
    """Join the arrays of several sets of trees to one set, whose log-odds are their sum."""
    nodes = max(each["feature"].shape[1] for each in found)
    joined: State = {}
    for name in ("feature", "threshold", "left", "right", "value"):
        padded = []
        for each in found:
            missing = nodes - each[name].shape[1]
            own = np.broadcast_to(np.arange(nodes - missing, nodes), (len(each[name]), missing))
            fill = own if name in ("left", "right") else np.zeros_like(own)
            padded.append(np.hstack([each[name], fill.astype(each[name].dtype)]))
        joined[name] = np.concatenate(padded)
    base = sum(float(each["base"].astype(float)[0]) for each in found)
    depth = max(int(each["depth"].astype(int)[0]) for each in found)
    return {**joined, "base": np.array([base], np.float32), "depth": np.array([depth], np.int16)}


def _words(material: Material, weights: Doubles, config: CallConfig) -> State:
    """Fit a linear model of hashed words; return `weights` (BUCKETS,), `bias` (1,) and `known`.

    `known` has a bit for each bucket, eight in a byte: 1 if at least `config.known_rows` lessons
    have a word of it.
    """
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    lengths = [len(ids) for ids in material.words]
    values = np.repeat([max(1, n) ** -0.5 for n in lengths], lengths)
    shape = (len(lengths), BUCKETS)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    bags = csr_matrix((values, np.concatenate(material.words), ends), shape=shape)
    model = LogisticRegression(C=config.word_strength, max_iter=300)
    model.fit(bags, material.targets, sample_weight=weights)
    counts = np.bincount(np.concatenate(material.words), minlength=BUCKETS)
    return {
        "weights": model.coef_[0].astype(np.float16),
        "bias": model.intercept_.astype(np.float32),
        "known": np.packbits(counts >= config.known_rows),
    }


def fit_claims(remarks: Sequence[Remark], config: CallConfig, seed: int) -> State:
    """Fit the trees that read the claims of replies of text; return arrays named `claims.<name>`.

    `remarks` are labelled replies. Right ones have the share `config.honest` of the weight, and
    those of graded conversations weigh `config.real` beside those of scenes. More evidence against
    a reply never raises its confidence. Raises MissingExtraError without scikit-learn.
    """
    traits = np.stack([claim_traits(each.used) for each in remarks])
    correct = np.array([each.correct for each in remarks])
    weights = np.ones(len(remarks))
    is_scene = np.array([each.is_scene for each in remarks])
    masses = {True: 1.0, False: config.real}
    for label, share in ((1, config.honest), (0, 1 - config.honest)):
        for scene, mass in masses.items():
            here = (correct == label) & (is_scene == scene)
            weights[here] = share * mass * len(remarks) / max(1, here.sum())
    small = replace(config, trees=config.claim_trees, leaves=config.claim_leaves, learning_rate=0.1)
    directions = [-1 if name in AGAINST else 0 for name in NAMES]
    trees = fit_trees(traits, correct, weights, small, seed, directions=directions)
    return {CLAIMS + name: array for name, array in trees.items()}


# --- weights of the parts -----------------------------------------------------------------------


def fit_familiarity(material: Material, config: CallConfig, seed: int) -> State:
    """Fit the weights of the parts, on rows that the parts were not fitted on.

    Returns `familiar` (4,), a constant and the slopes of general trees, special trees and words,
    for calls with familiar words, and `strange` (2,), a constant and the slope of the general
    trees, for others. The parts are fitted again for each fold.
    """
    config = replace(config, fits=1)
    known, targets, weights = _held_out(material, config, seed)
    general, answers, masses = _sources_out(material, config, seed)
    return {
        "familiar": _logistic(known, targets, weights).astype(np.float32),
        "strange": _logistic(general[:, None], answers, masses).astype(np.float32),
    }


def _held_out(material: Material, config: CallConfig, seed: int) -> tuple[Doubles, Ints, Doubles]:
    """Return log-odds (N, 3), targets (N,) and weights (N,) of graded lessons, fold by fold.

    The log-odds are those of general trees, special trees and words. For each of `config.folds`
    folds these were fitted without the lessons of the fold's questions. The order is not that of
    `material`.
    """
    graded = material.origins == GRADED
    questions = sorted(set(material.questions[graded].tolist()))
    order = np.random.default_rng(seed).permutation(len(questions))
    fold_of = {questions[at]: n % config.folds for n, at in enumerate(order)}
    folds = np.array([fold_of.get(question, -1) for question in material.questions.tolist()])
    odds, chosen = [], []
    for fold in range(config.folds):
        out = folds == fold
        held = np.flatnonzero(out & graded)
        odds.append(_part_odds(fit_parts(material.part(~out), config, seed), material, held))
        chosen.append(held)
    at = np.concatenate(chosen)
    return np.concatenate(odds), material.targets[at], _by_source(material, at)


def _part_odds(state: State, material: Material, at: NDArray[np.intp]) -> Doubles:
    """Return the log-odds of the lessons `at` by general trees, special trees and words, (n, 3).

    `state` has the arrays of `fit_parts`.
    """
    from calibrator.readers.calls.model import CallWording

    width = material.traits.shape[1]
    general, special = (Trees(arrays_under(state, p), width) for p in (GENERAL, SPECIAL))
    words = CallWording(arrays_under(state, WORDING))
    rows = material.traits[at]
    spoken, _ = words.read([material.words[i] for i in at])
    return np.stack([general.read(rows), special.read(rows), spoken], axis=1)


def _sources_out(
    material: Material, config: CallConfig, seed: int
) -> tuple[Doubles, Ints, Doubles]:
    """Return the general trees' log-odds (N,), targets (N,) and weights (N,) of graded lessons.

    The trees were fitted on other sources than each lesson's, source by source. With fewer than two
    sources, questions are left out instead (`_held_out`).
    """
    graded = material.origins == GRADED
    left_out_odds, chosen = [], []
    groups = sorted(set(material.groups[graded].tolist()))
    if len(groups) < 2:  # with one source, left-out questions replace left-out sources
        odds, targets, weights = _held_out(material, config, seed)
        return odds[:, 0], targets, weights
    for group in groups:
        out = material.groups == group
        rest = material.part(~out)
        state = _trees(rest, balance_weights(rest, config), config, seed)
        held = np.flatnonzero(out & graded)
        left_out_odds.append(Trees(state, material.traits.shape[1]).read(material.traits[held]))
        chosen.append(held)
    at = np.concatenate(chosen)
    return np.concatenate(left_out_odds), material.targets[at], _by_source(material, at)


def _by_source(material: Material, at: NDArray[np.intp]) -> Doubles:
    """Return the weights of the lessons `at`, divided by the root of their source's size.

    So each source counts as the square root of its number of lessons in `at`.
    """
    groups, weights = material.groups[at], material.weights[at].copy()
    for group in set(groups.tolist()):
        here = groups == group
        weights[here] *= here.sum() ** -0.5
    return weights


def _logistic(features: Doubles, targets: Ints, weights: Doubles) -> Doubles:
    """Fit a logistic regression of `targets` (N,) on `features` (N, D); return (1 + D,).

    The first number is the constant, the others are the slopes, none below 0. `weights` (N,) are
    the rows'.
    """
    from scipy.optimize import minimize

    columns = np.hstack([np.ones((len(features), 1)), features])
    signs = 2.0 * targets - 1
    share = weights / weights.sum()

    def loss(slopes: Doubles) -> tuple[float, Doubles]:
        """Return the weighted mean loss of these coefficients (1 + D,), and its gradient."""
        margins = signs * (columns @ slopes)
        gradient = -(share * signs / (1 + np.exp(np.clip(margins, -50, 50)))) @ columns
        return float(share @ np.logaddexp(0, -margins)), gradient

    bounds = [(None, None), *[(0.0, None)] * features.shape[1]]
    start = np.concatenate([[0.0], np.full(features.shape[1], 0.5)])
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)
