"""A cross-encoder that judges whether the context supports a piece of a reply.

Six layers of all-MiniLM-L6-v2, trained on entailment pairs and on graded replies
(`calibrator/readers/evidence/README.md`). The input is `[CLS] context [SEP] request [SEP] reply
[SEP]`. The output are three log-odds: the context entails the reply, does not mention it, or
contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.features.small_encoder import SmallEncoder
from calibrator.features.weights import Array, Floats
from calibrator.text.word_pieces import CLS, SEP

PREFIX: Final = "context.reader."
CONTEXT_WORDS: Final = 85  # words of a context that are chosen for one piece of a reply
CONTEXT_PIECES: Final = 112
REQUEST_PIECES: Final = 28
REQUEST_HEAD: Final = 6  # pieces from the beginning of a longer request; the rest is its end
REPLY_PIECES: Final = 64
WORD_BITS: Final = 4
LABELS: Final = ("entail", "neutral", "contradict")

Cutter = Callable[[Sequence[str]], list[Sequence[int]]]
"""Cuts texts into word pieces."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a reply, the context that was chosen for it, and the request."""

    context: str
    request: str
    reply: str


def assemble(
    context: Sequence[int], request: Sequence[int], reply: Sequence[int]
) -> tuple[list[int], int]:
    """Return a row of word pieces and the index at which its second text begins."""
    asked = list(request)
    if len(asked) > REQUEST_PIECES:
        asked = [*asked[:REQUEST_HEAD], *asked[REQUEST_HEAD - REQUEST_PIECES :]]
    first = [CLS, *context[:CONTEXT_PIECES], SEP]
    second = [*asked, SEP] if asked else []
    return [*first, *second, *reply[:REPLY_PIECES], SEP], len(first)


class ContextReader:
    """Passages -> probabilities of `LABELS`. Raises KeyError or ValueError for unfit arrays."""

    def __init__(self, state: Mapping[str, Array], cut: Cutter) -> None:
        inner = {name: array for name, array in state.items() if not name.startswith("head")}
        self._encoder = SmallEncoder(inner)
        self._head = state["head"].astype(np.float32)  # (3, 2 * hidden)
        self._bias = state["head.bias"].astype(np.float32)
        self._cut = cut
        if self._head.shape != (len(LABELS), 2 * self._encoder.hidden_size):
            raise ValueError("a head of another shape")

    def read(self, passages: Sequence[Passage]) -> NDArray[np.float64]:
        """Return P(entail), P(neutral), P(contradict) of each passage, (B, 3)."""
        if not passages:
            return np.zeros((0, len(LABELS)))
        texts = [text for each in passages for text in (each.context, each.request, each.reply)]
        pieces = self._cut(texts)
        rows = [assemble(*pieces[at : at + 3]) for at in range(0, len(pieces), 3)]
        states = self._encoder.states([row for row, _ in rows], [start for _, start in rows])
        pooled: Floats = np.stack([np.concatenate([x[0], x.mean(axis=0)]) for x in states])
        logits = (pooled @ self._head.T + self._bias).astype(np.float64)
        grown = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(grown / grown.sum(axis=1, keepdims=True))
