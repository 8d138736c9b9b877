"""Whether a call of tools is right, as log-odds: what serves.

Two sets of boosted trees read the traits. The general ones were taught by graded calls of all
sources, corruptions and scenes of our own; the special ones, and a linear model of words, by graded
calls alone. What is special counts as much as the conversation's words are familiar: to other
domains it does not carry over. Replies of text have trees of their own, which tell whether what
they claim was done and found. Serving is numpy alone; `training` makes the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.calls.reading.claims import CLAIM_TRAITS, claim_traits
from calibrator.calls.reading.conversation import View
from calibrator.calls.reading.grounding import Sources, sources_of
from calibrator.calls.reading.planting import doubted
from calibrator.calls.reading.reply import ReadReply, read_reply
from calibrator.calls.traits import TRAITS, array_of, named_traits
from calibrator.calls.wording import Ints, Wording, word_ids
from calibrator.features.trees import Trees
from calibrator.features.weights import under
from calibrator.scorer import ToolUse

Array = NDArray[np.generic]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

PREFIX = "calls."
GENERAL, SPECIAL, WORDING, CLAIMS = "general.", "special.", "words.", "claims."
MOST = 7.0  # log-odds in either direction: nobody is surer than 0.999


class CallTrees:
    """Trees, words, and how they are weighed.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.general = Trees(under(state, GENERAL), TRAITS)
        self.special = Trees(under(state, SPECIAL), TRAITS)
        self.wording = Wording(under(state, WORDING))
        claims = under(state, CLAIMS)
        self.claims = Trees(claims, CLAIM_TRAITS) if claims else None
        self.strange = state["strange"].astype(np.float64)  # (2,) bias, and slope of the general
        self.familiar = state["familiar"].astype(np.float64)  # (4,) bias, general, special, words
        if self.strange.shape != (2,) or self.familiar.shape != (4,):
            raise ValueError("weights of another shape")

    def odds(self, used: Sequence[ToolUse], names: Sequence[str | None]) -> Doubles:
        """Log-odds of correct, (B,); `names` are of the answering models, as they were told."""
        return self.odds_of([read_reply(each) for each in used], names)

    def odds_of(self, replies: Sequence[ReadReply], names: Sequence[str | None]) -> Doubles:
        """The same of replies that have been read.

        Where values of a call stand bare in the conversation, the lower of two readings, with these
        and without: who plants values gains nothing by it.
        """
        if not replies:
            return np.zeros(0)
        read = [_readings(each, name) for each, name in zip(replies, names, strict=True)]
        each = [reading for readings in read for reading in readings]
        odds = self.read(np.stack([traits for traits, _ in each]), [ids for _, ids in each])
        starts = np.cumsum([0, *(len(readings) for readings in read[:-1])])
        return np.asarray(np.minimum.reduceat(odds, starts))

    def claim_odds(self, used: Sequence[ToolUse]) -> Doubles:
        """Log-odds that replies of text are honest, (B,): that what they claim was done and found.

        P(honest) is a factor beside the confidence of the text: near 1 for ordinary replies,
        whatever else is wrong with them. Arrays without trees for claims give `MOST`.
        """
        if self.claims is None or not used:
            return np.full(len(used), MOST)
        odds = self.claims.read(np.stack([claim_traits(each) for each in used]))
        return np.asarray(np.clip(odds, -MOST, MOST))

    def read(self, traits: Floats, words: Sequence[Ints]) -> Doubles:
        """The same of traits (B, TRAITS) and the words' buckets."""
        general, special = self.general.read(traits), self.special.read(traits)
        spoken, familiarity = self.wording.read(words)
        strange = self.strange[0] + self.strange[1] * general
        parts = np.stack([np.ones_like(general), general, special, spoken])
        mixed = (1 - familiarity) * strange + familiarity * (self.familiar @ parts)
        return np.asarray(np.clip(mixed, -MOST, MOST))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> CallTrees | None:
        """What a checkpoint's weights hold; None for a checkpoint without these."""
        own = under(state, PREFIX)
        return cls(own) if own else None


def read_call(used: ToolUse, name: str | None = None) -> tuple[Floats, Ints]:
    """The traits (TRAITS,) of a reply and the buckets of its words."""
    reply = read_reply(used)
    return _read_view(reply.view, reply.sources, name)


def _readings(reply: ReadReply, name: str | None) -> list[tuple[Floats, Ints]]:
    """The same, and once more without what stands bare in the conversation, if anything does."""
    read, bare = _read_view(reply.view, reply.sources, name), doubted(reply.view)
    return [read] if bare is None else [read, _read_view(bare, sources_of(bare), name)]


def _read_view(view: View, sources: Sources, name: str | None) -> tuple[Floats, Ints]:
    return array_of(named_traits(view, sources)), word_ids(view, name)
