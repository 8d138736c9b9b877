"""The log-odds that a call of tools is right: the serving part.

Two sets of boosted trees read the traits. The general ones learnt from graded calls of all sources,
corruptions and synthetic scenes; the special ones, and a linear model of hashed words, from graded
calls alone. The names of tools and the words of requests are evidence only in the domains of the
training data, so the special parts count as much as the words of the conversation are known.
Replies of text have trees of their own, which judge whether the claimed deeds and findings are
real. Serving needs numpy alone; `training` makes the arrays.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.readers.calls.reading.claims import CLAIM_TRAITS, claim_traits
from calibrator.readers.calls.reading.conversation import View
from calibrator.readers.calls.reading.planting import without_planted
from calibrator.readers.calls.reading.sources import Sources, sources_of
from calibrator.readers.calls.reading.traits import (
    TRAITS,
    CallReply,
    array_of,
    named_traits,
    read_reply,
)
from calibrator.scorer import ToolUse

Ints = NDArray[np.int64]
BUCKETS = 2**16
STRANGE, FAMILIAR = 0.68, 0.82  # shares of known words at which familiarity is 0 and 1
MAX_WORDS = 400  # words of one part
_WORD = re.compile(r"[^\W_]+")
Array = NDArray[np.generic]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
PREFIX = "calls."
GENERAL, SPECIAL, WORDING, CLAIMS = "general.", "special.", "words.", "claims."
MOST = 7.0  # log-odds in either direction: a confidence of 0.999 at most


class CallWording:
    """The weights (BUCKETS,) of words, and which words are known.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load `weights` (BUCKETS,), `known` (a bit a bucket) and `bias` (1,) of a checkpoint.

        Raises KeyError for a missing array and ValueError for another size.
        """
        self.weights = state["weights"].astype(np.float32)
        self.known = np.unpackbits(state["known"].astype(np.uint8))[:BUCKETS].astype(bool)
        self.bias = float(state["bias"][0])
        if self.weights.shape != (BUCKETS,) or self.known.shape != (BUCKETS,):
            raise ValueError("words of another shape")

    def read(self, rows: Sequence[Ints]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (log-odds, familiarity from 0 to 1), each (B,), of rows of buckets.

        A row without buckets has the familiarity 0.
        """
        odds = [
            self.bias + float(self.weights[ids].sum()) / max(1, len(ids)) ** 0.5 for ids in rows
        ]
        shares = np.array([self.known[ids].mean() if len(ids) else 0.0 for ids in rows])
        return np.array(odds), np.clip((shares - STRANGE) / (FAMILIAR - STRANGE), 0.0, 1.0)


class CallTrees:
    """The trees, the word model, and their weights, of a checkpoint.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load the arrays of a checkpoint, without the prefix `calls.`.

        `claims` is None if there are no trees for claims. Raises KeyError for a missing
        array and ValueError for another shape.
        """
        self.general = Trees(arrays_under(state, GENERAL), TRAITS)
        self.special = Trees(arrays_under(state, SPECIAL), TRAITS)
        self.wording = CallWording(arrays_under(state, WORDING))
        claims = arrays_under(state, CLAIMS)
        self.claims = Trees(claims, CLAIM_TRAITS) if claims else None
        self.strange = state["strange"].astype(np.float64)  # (2,) bias, and slope of the general
        self.familiar = state["familiar"].astype(np.float64)  # (4,) bias, general, special, words
        if self.strange.shape != (2,) or self.familiar.shape != (4,):
            raise ValueError("weights of another shape")

    def odds(self, used: Sequence[ToolUse], names: Sequence[str | None]) -> Doubles:
        """Return the log-odds of correct, (B,); `names` are the answering models', or None."""
        return self.odds_of([read_reply(each) for each in used], names)

    def odds_of(self, replies: Sequence[CallReply], names: Sequence[str | None]) -> Doubles:
        """Return the log-odds of correct, (B,), of replies that have been read; within +-7.

        `names` are the answering models', or None. If values of a call appear without
        context in the conversation, the reply is read with and without them and the lower
        log-odds count, so that planting values gains nothing.
        """
        if not replies:
            return np.zeros(0)
        read = [_readings(each, name) for each, name in zip(replies, names, strict=True)]
        each = [reading for readings in read for reading in readings]
        odds = self.read(np.stack([traits for traits, _ in each]), [ids for _, ids in each])
        starts = np.cumsum([0, *(len(readings) for readings in read[:-1])])
        return np.asarray(np.minimum.reduceat(odds, starts))

    def claim_odds(self, used: Sequence[ToolUse]) -> Doubles:
        """Return the log-odds that replies of text are honest, (B,).

        An honest reply claims only what was done and found. P(honest) multiplies the confidence of
        the text: it is near 1 for ordinary replies, even wrong ones. Without trees for claims it is
        `MOST`.
        """
        if self.claims is None or not used:
            return np.full(len(used), MOST)
        odds = self.claims.read(np.stack([claim_traits(each) for each in used]))
        return np.asarray(np.clip(odds, -MOST, MOST))

    def read(self, traits: Floats, words: Sequence[Ints]) -> Doubles:
        """Return the log-odds of correct, (B,), within +-7 (`MOST`).

        `traits` (B, TRAITS) and `words`, buckets of each reply's words, describe the
        replies. With strange words the general trees decide alone; with familiar ones
        special trees and words are added.
        """
        general, special = self.general.read(traits), self.special.read(traits)
        spoken, familiarity = self.wording.read(words)
        strange = self.strange[0] + self.strange[1] * general
        parts = np.stack([np.ones_like(general), general, special, spoken])
        mixed = (1 - familiarity) * strange + familiarity * (self.familiar @ parts)
        return np.asarray(np.clip(mixed, -MOST, MOST))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> CallTrees | None:
        """Load the arrays of a checkpoint's weights; None if none begins with `calls.`.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None


def word_ids(view: View, name: str | None) -> Ints:
    """Return the sorted buckets of a reply's words and word pairs and of the model's `name`.

    Read are the end of the request, the calls, the end of the last result and of the thought. A
    name of None adds no bucket.
    """
    call = " ".join(f"{c.name} {c.key}" for c in view.calls)[:3_000].lower()
    request = view.request[-1_500:].lower()
    result = (view.results[-1] if view.results else "")[-600:].lower()
    found: set[int] = set()
    for part, text in (
        ("q", request),
        ("c", call),
        ("r", result),
        ("t", view.thought[-400:].lower()),
    ):
        words = _WORD.findall(text)[:MAX_WORDS]
        found.update(_bucket(part + word) for word in words)
        if part in "qc":
            found.update(_bucket(f"{part}{a} {b}") for a, b in itertools.pairwise(words))
    if name:
        found.add(_bucket("n" + name.lower()))
    return np.array(sorted(found), dtype=np.int64)


def _bucket(text: str) -> int:
    """Return the bucket of a text, below BUCKETS."""
    return zlib.crc32(text.encode("utf-8", "replace")) % BUCKETS


def read_call(used: ToolUse, name: str | None = None) -> tuple[Floats, Ints]:
    """Return (traits (TRAITS,), buckets of words) of a reply; `name` is its model's, or None."""
    reply = read_reply(used)
    return _read_view(reply.view, reply.sources, name)


def _readings(reply: CallReply, name: str | None) -> list[tuple[Floats, Ints]]:
    """Return the readings of a reply: one, and a second without planted values if there are any."""
    read, bare = _read_view(reply.view, reply.sources, name), without_planted(reply.view)
    return [read] if bare is None else [read, _read_view(bare, sources_of(bare), name)]


def _read_view(view: View, sources: Sources, name: str | None) -> tuple[Floats, Ints]:
    """Return (traits (TRAITS,), buckets of words) of a view."""
    return array_of(named_traits(view, sources)), word_ids(view, name)
