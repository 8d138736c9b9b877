"""Pairs of a right reply and the same reply made wrong, from labelled rows.

A reply in words counts from `MIN_CHARACTERS` on: a letter is too short to be changed in one
respect. For the same reason a benchmark counts only where most of its right replies are that long,
which leaves out those whose replies are a letter and a stated confidence.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import median

import yaml

from calibrator.lab.data.corruptions import KINDS, corrupt_rows
from calibrator.rows.groups import printable_name
from calibrator.rows.rows import Row

MIN_CHARACTERS = 40
MAX_PAIRS = 300  # pairs of one benchmark and kind
MAX_REPLIES = 5_000  # right replies of one benchmark from which corruptions are made
MAX_CALLS = 1_000  # the same for calls, each of which is a whole conversation
SEED = 20_261_123


@dataclass(frozen=True, slots=True)
class ReplyPair:
    """A right row, and the same row with a wrong reply.

    `kind` is the kind of corruption, `is_call` whether the reply calls tools.
    """

    kind: str
    benchmark: str
    right: Row
    changed: Row
    is_call: bool = False


def pairs_of(rows: Sequence[Row], max_pairs: int = MAX_PAIRS, seed: int = SEED) -> list[ReplyPair]:
    """Return at most `max_pairs` pairs of each benchmark and kind, the same ones for a seed.

    They are made from the right replies of the rows: texts (those long enough, see the module) and
    calls of tools. The pairs of all kinds use the same replies as far as a kind applies to them.
    Benchmarks come by name, and texts before calls.
    """
    right: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.correct == 1:
            right[printable_name(row.benchmark)].append(row)
    found: list[ReplyPair] = []
    for benchmark in sorted(right):
        rng = random.Random(f"{seed} {benchmark}")
        texts = _long_rows([row for row in right[benchmark] if not _calls(row)])
        calls = [row for row in right[benchmark] if _calls(row)]
        found += _choose_pairs(
            benchmark, _text_pairs(_sample_rows(texts, MAX_REPLIES, rng), seed), max_pairs, rng
        )
        found += _choose_pairs(
            benchmark, _call_pairs(_sample_rows(calls, MAX_CALLS, rng), seed), max_pairs, rng
        )
    return found


def _calls(row: Row) -> bool:
    """Return whether a row's reply calls tools."""
    return row.tool_use is not None and row.tool_use.has_calls


def _long_rows(right: Sequence[Row]) -> list[Row]:
    """Return the rows whose reply has at least `MIN_CHARACTERS` characters.

    It is [] where the median of the lengths is below that.
    """
    lengths = [len(row.answer) for row in right]
    if not lengths or median(lengths) < MIN_CHARACTERS:
        return []
    return [row for row in right if len(row.answer) >= MIN_CHARACTERS]


def _sample_rows(rows: Sequence[Row], most: int, rng: random.Random) -> list[Row]:
    """Return at most `most` rows, drawn at random, in their order; all if there are no more."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i] for i in sorted(rng.sample(range(len(rows)), most))]


def _choose_pairs(
    benchmark: str,
    pairs_of_kind: Mapping[str, Sequence[tuple[Row, Row]]],
    most: int,
    rng: random.Random,
) -> Iterator[ReplyPair]:
    """Yield at most `most` pairs of each kind, the first in one random order of the right rows.

    `pairs_of_kind` has for each kind pairs of a right row and the changed one.
    """
    rights = {id(right): right for pairs in pairs_of_kind.values() for right, _ in pairs}
    rank = dict(zip(rights, rng.sample(range(len(rights)), len(rights)), strict=True))
    for kind, pairs in pairs_of_kind.items():
        ordered = sorted(pairs, key=lambda pair: rank[id(pair[0])])
        for right, changed in ordered[:most]:
            yield ReplyPair(kind, benchmark, right, changed, _calls(right))


def _text_pairs(right: Sequence[Row], seed: int) -> dict[str, list[tuple[Row, Row]]]:
    """Return for each kind in `KINDS` pairs of a right row and the same row with a corrupted reply.

    Rows to which a kind does not apply are left out of it.
    """
    pairs_of_kind: dict[str, list[tuple[Row, Row]]] = {}
    for kind in KINDS:
        pairs = [(one.row, one.answer) for one in corrupt_rows(right, kind, seed)]
        if kind == "off topic":
            pairs = _with_unseen_sentences(pairs, seed)
        pairs_of_kind[kind] = [(row, replace(row, answer=answer)) for row, answer in pairs]
    return pairs_of_kind


def _with_unseen_sentences(pairs: Sequence[tuple[Row, str]], seed: int) -> list[tuple[Row, str]]:
    """Return the pairs of a row and a reply with each reply replaced by an off-topic sentence.

    It is a random one of this package's sentences, as training knows those of corruptions.
    """
    rng = random.Random(f"{seed} off topic")
    return [(row, rng.choice(off_topic_sentences())) for row, _ in pairs]


@cache
def off_topic_sentences() -> tuple[str, ...]:
    """Return the off-topic sentences that no training uses; they are read once."""
    text = (
        files("calibrator.lab.judging.sensitivity")
        .joinpath("off_topic.yaml")
        .read_text(encoding="utf-8")
    )
    return tuple(yaml.safe_load(text))


def _call_pairs(right: Sequence[Row], seed: int) -> Mapping[str, Sequence[tuple[Row, Row]]]:
    """Return for each kind of corruption pairs of a right row that calls tools and a changed one.

    It is empty without rows.
    """
    if not right:
        return {}
    # Only rows with calls need that package, which is large.
    from calibrator.lab.data.calls import corrupted_calls

    return corrupted_calls(right, seed)
