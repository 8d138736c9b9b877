"""Fits the inspector: right replies against the same replies with one kind of fault.

Wrong replies are not shown to it. Faults are made in right ones; were wrong ones among those that
have none, a check would learn that what looks right is faulty. Within a benchmark those with and
without the fault weigh alike, so that no check learns which benchmarks have it.

Relevance is also taught by excerpts of replies, a sentence or a few, and by plain requests of our
own (`plain_requests.yaml`): what people ask and get outside of benchmarks is short, and need not
repeat a word of the request. Without both the check called such replies off topic.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import yaml
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.corruptions import corrupted
from calibrator.corruptions.sentences import OFF_TOPIC
from calibrator.errors import TrainingError
from calibrator.features.tree_fitting import fit_trees
from calibrator.features.weights import packed
from calibrator.inspection.inspector import (
    CHECKS,
    DROPS_QUESTION,
    PREFIX,
    RELEVANCE,
    SEEN,
    Check,
    inspect,
)
from calibrator.inspection.relevance import PREFIX as PIECES
from calibrator.inspection.relevance import Pieces
from calibrator.rows.rows import Row
from calibrator.text.addressed_text import stripped
from calibrator.text.layout import Layout, encode
from calibrator.text.restated_question import without_question

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

AT_ONCE = 2_000
ALIKE = 1.0  # taken off the log of rarity: what e-th of all texts hold weighs nothing
RARE = 1e-5  # added to every share, so that pieces which no text holds count a little
ELSEWHERE = ("another question", "nearest question")  # faults of which excerpts teach as well
PLAIN, PLAIN_FAULTS, PLAIN_OTHERS = "plain requests", ("another question", "off topic"), 3
COMMON_DIRECTIONS = 2  # of the vectors, left out: they tell how frequent a piece is

_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")


@dataclass(frozen=True, slots=True)
class InspectorConfig:
    """How the inspector is fitted; numbers of rows are those of one benchmark.

    The priors are log-odds, one for each check in the order of `CHECKS`: the surer, the more it
    takes to doubt a reply, and the less is lost of ranking right above wrong. The slopes say how
    often what the trees say is counted.
    """

    right_rows: int = 900
    irrelevant_rows: int = 550  # of each fault that the check of relevance looks for
    faulty_rows: int = 900  # of each other fault
    plain_weight: float = 5.0  # of a plain request's replies
    pool_rows: int = 12_000  # from which faulty replies are made
    rarity_rows: int = 30_000
    width: int = 192  # of a piece's vector
    trees: int = 300
    leaves: int = 24
    learning_rate: float = 0.07
    leaf_rows: int = 40
    ridge: float = 10.0
    feature_share: float = 0.3
    priors: tuple[float, ...] = (2.6, 4.0, 3.4, 7.0)
    slopes: tuple[float, ...] = (1.2, 1.0, 1.4, 1.0)
    left_out: tuple[str, ...] = ()  # kinds of faults, to see whether the rest generalises


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reply to a question of a benchmark; `fault` is empty for a right one as it was given.

    `is_of_relevance` lessons teach no other check: what they leave out is no fault of theirs.
    """

    question: str
    answer: str
    benchmark: str
    fault: str = ""
    is_of_relevance: bool = False
    weight: float = 1.0


def fit_inspector(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Array]:
    """The arrays of an `Inspector`, under its prefix; the same rows and seed, the same arrays.

    `vectors` (V, hidden) of all word pieces, as `piece_vectors` gives them. Raises TrainingError
    where there is no right reply in which a fault could be made, and MissingExtraError without
    scikit-learn.
    """
    state = fit_pieces(rows, tokenizer, layout, vectors, config, seed)
    state[DROPS_QUESTION] = np.ones(1, np.float32)
    lessons = list(lessons_of(rows, config, seed))
    if not any(lesson.fault for lesson in lessons):
        raise TrainingError("there is no right reply in which a fault could be made")
    say(f"inspector: {len(lessons)} replies to look at")
    seen = seen_in(lessons, tokenizer, layout, Pieces.from_state(state))
    state |= fit_checks(lessons, seen, config, seed, say)
    return {PREFIX + name: array for name, array in state.items()}


def fit_checks(
    lessons: Sequence[Lesson],
    seen: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    checks: Sequence[Check] = CHECKS,
) -> dict[str, Array]:
    """The arrays of these checks, with prior and slope, from what is `seen` (N, SEEN) in lessons.

    A check that nothing teaches has none. Raises MissingExtraError without scikit-learn.
    """
    state: dict[str, Array] = {}
    for check in checks:
        weights = weights_of(check, lessons, seen)
        if not weights.any():  # there are no options, say, in this data
            say(f"inspector: nothing teaches the check {check.name!r}, which is left out")
            continue
        trees = fit_check(lessons, seen, weights, config, seed)
        state |= {f"{check.name}.{name}": array for name, array in trees.items()}
        say(f"inspector: {check.name}")
    return state | _counted(state, config)


def _counted(
    state: Mapping[str, Array], config: InspectorConfig, under: str = ""
) -> dict[str, Array]:
    """Prior and slope of each check whose trees are in `state`, where names begin with `under`."""
    found: dict[str, Array] = {}
    for check, prior, slope in zip(CHECKS, config.priors, config.slopes, strict=True):
        if f"{under}{check.name}.value" in state:
            found[f"{under}{check.name}.prior"] = np.array([prior], np.float32)
            found[f"{under}{check.name}.slope"] = np.array([slope], np.float32)
    return found


def reset(state: Mapping[str, Array], config: InspectorConfig) -> dict[str, Array]:
    """The arrays of a checkpoint's inspector with priors and slopes of `config`, which reads no
    restated question; its trees stay. Raises TrainingError where there is no inspector."""
    found = {name: array for name, array in state.items() if name.startswith(PREFIX)}
    if not found:
        raise TrainingError("the checkpoint has no inspector")
    return (
        found | _counted(found, config, PREFIX) | {PREFIX + DROPS_QUESTION: np.ones(1, np.float32)}
    )


def fit_check(
    lessons: Sequence[Lesson],
    seen: Floats,
    weights: NDArray[np.float64],
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """The arrays of one check's `Trees`; raises MissingExtraError without scikit-learn."""
    used = np.flatnonzero(weights)
    is_right = np.array([not lesson.fault for lesson in lessons])
    return fit_trees(seen[used], is_right[used], weights[used], config, seed)


def weights_of(check: Check, lessons: Sequence[Lesson], seen: Floats) -> NDArray[np.float64]:
    """What each lesson weighs for a check, (N,): 0 where it does not apply, else its own weight for
    a faulty one and as much for all right ones of a benchmark as for its faulty ones; 0 for all
    where nothing teaches the check."""
    is_for = np.array([check.name == RELEVANCE or not each.is_of_relevance for each in lessons])
    applies = check.applies_to(seen) & is_for
    faulty = np.array([lesson.fault in check.faults for lesson in lessons]) & applies
    right = np.array([not lesson.fault for lesson in lessons]) & applies
    benchmarks = np.array([lesson.benchmark for lesson in lessons])
    own = np.array([lesson.weight for lesson in lessons])
    weights = np.zeros(len(lessons))
    for benchmark in sorted(set(benchmarks[faulty].tolist())):
        here = benchmarks == benchmark
        if (count := (here & right).sum()) > 0:
            weights[here & faulty] = own[here & faulty]
            weights[here & right] = own[here & faulty].sum() / count
    return weights


def lessons_of(rows: Sequence[Row], config: InspectorConfig, seed: int) -> Iterator[Lesson]:
    """Right replies of each benchmark, the faulty ones that were made of right ones, and excerpts
    of both; then the plain requests."""
    rng = random.Random(seed)
    benchmarks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        benchmarks[row.benchmark or ""].append(row)
    for benchmark, own in sorted(benchmarks.items()):
        pool = rng.sample(own, min(len(own), config.pool_rows))
        for row in [row for row in pool if row.correct][: config.right_rows]:
            yield from _both(row.question, stripped(row.answer), benchmark, "", rng)
        for check in CHECKS:
            many = config.irrelevant_rows if check.name == RELEVANCE else config.faulty_rows
            for fault in check.faults:
                if fault in config.left_out:
                    continue
                made = corrupted(pool, fault, seed)
                for each in rng.sample(made, min(len(made), many)):
                    asked, answer = each.row.question, stripped(each.answer)
                    if fault in ELSEWHERE:
                        yield from _both(asked, answer, benchmark, fault, rng)
                    else:
                        yield Lesson(asked, without_question(asked, answer), benchmark, fault)
    yield from plain_lessons(config, rng)


def _both(
    question: str, answer: str, benchmark: str, fault: str, rng: random.Random
) -> Iterator[Lesson]:
    """A reply, and an excerpt of it."""
    answer = without_question(question, answer)
    yield Lesson(question, answer, benchmark, fault)
    yield Lesson(question, excerpt(answer, rng), benchmark, fault, is_of_relevance=True)


def excerpt(answer: str, rng: random.Random) -> str:
    """A sentence or a few of a reply: the first, the last, or some between."""
    sentences = [part for part in _SENTENCE.split(answer) if part.strip()]
    if len(sentences) < 2:
        return answer
    count = rng.choice((1, 1, 2, 3))
    last = max(0, len(sentences) - count)
    start = min(last, rng.choice((0, last, rng.randrange(len(sentences)))))
    return " ".join(sentences[start : start + count]).strip()


def plain_lessons(config: InspectorConfig, rng: random.Random) -> Iterator[Lesson]:
    """Plain requests with their replies, with those of others, and with something off topic."""
    if set(config.left_out) & set(PLAIN_FAULTS):
        return
    pairs = plain_requests()
    for at, (request, reply) in enumerate(pairs):
        others = rng.sample([pair for pair in pairs if pair is not pairs[at]], PLAIN_OTHERS)
        told = [(reply, ""), *((other, PLAIN_FAULTS[0]) for _, other in others)]
        told.append((rng.choice(OFF_TOPIC), PLAIN_FAULTS[1]))
        for answer, fault in told:
            yield Lesson(request, answer, PLAIN, fault, True, config.plain_weight)


@cache
def plain_requests() -> tuple[tuple[str, str], ...]:
    """Requests and replies, as they stand in `plain_requests.yaml`."""
    text = files("calibrator.inspection").joinpath("plain_requests.yaml").read_text("utf-8")
    return tuple((request, reply) for request, reply in yaml.safe_load(text))


def seen_in(
    lessons: Sequence[Lesson], tokenizer: Tokenizer, layout: Layout, pieces: Pieces
) -> Floats:
    """What is seen in questions and replies, (N, SEEN)."""
    found = np.zeros((len(lessons), SEEN), dtype=np.float32)
    for start in range(0, len(lessons), AT_ONCE):
        some = lessons[start : start + AT_ONCE]
        texts = [text for each in some for text in (each.question, each.answer)]
        ids = encode(tokenizer, texts, layout)
        for at, each in enumerate(some):
            both = ids[2 * at], ids[2 * at + 1]
            found[start + at] = inspect(each.question, each.answer, *both, pieces)
    return found


def fit_pieces(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """The arrays of `Pieces`: main directions of the vectors, and how rare pieces are in texts."""
    some = random.Random(seed).sample(rows, min(len(rows), config.rarity_rows))
    texts = [row.answer for row in some] + list(dict.fromkeys(row.question for row in some))
    count = np.zeros(len(vectors))
    for start in range(0, len(texts), AT_ONCE):
        for ids in encode(tokenizer, texts[start : start + AT_ONCE], layout):
            count[np.unique(np.array(ids, dtype=np.int64))] += 1
    share = count / max(1, len(texts)) + RARE
    rarity = np.log((len(texts) + 1) / (count + 1)) - ALIKE
    centred = vectors - np.average(vectors, axis=0, weights=share)
    _, directions = np.linalg.eigh((centred * share[:, None]).T @ centred)
    kept = centred @ directions[:, ::-1][:, COMMON_DIRECTIONS:][:, : config.width]
    kept /= np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-6)
    table, scale = packed(kept.astype(np.float32))
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "rarity": np.maximum(rarity, 0).astype(np.float16),
    }
    return {PIECES + name: array for name, array in arrays.items()}
