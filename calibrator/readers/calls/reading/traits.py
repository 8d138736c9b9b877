"""The traits of a reply that calls tools: about 130 numbers, finite for every input.

The largest value over the reply's calls counts. The traits are meant to generalise to unseen
domains: no name of a tool, an argument or a model is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrator.readers.calls.reading.conversation import Call, View, view_of
from calibrator.readers.calls.reading.grounding import choice_traits, grounding_traits
from calibrator.readers.calls.reading.requests import (
    contrary_traits,
    date_traits,
    leftover_traits,
    request_traits,
    turn_traits,
)
from calibrator.readers.calls.reading.rules import rule_traits, sentences_of
from calibrator.readers.calls.reading.sources import Sources, sources_of
from calibrator.readers.calls.reading.steps import schema_of, steps_of
from calibrator.scorer import ToolUse

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CallReply:
    """A reply with its conversation, read once for its confidence and its reasons.

    `view` has its calls and turns, `sources` are the sources of values.
    """

    used: ToolUse
    view: View
    sources: Sources


def read_reply(used: ToolUse) -> CallReply:
    """Read a reply and its conversation. Raises nothing, whatever they hold."""
    view = view_of(used)
    return CallReply(used, view, sources_of(view))


def named_traits(view: View, sources: Sources) -> dict[str, float]:
    """Return the traits (name -> number), always the same names in the same order.

    For each trait of single calls the largest over the reply's calls counts; a reply without
    calls is read as an empty call.
    """
    sentences = sentences_of(view.rules)
    each = []
    for call in view.calls or [Call("", {})]:
        tool = view.tools.get(call.name)
        each.append(
            grounding_traits(call, sources, tool, view)
            | choice_traits(call, sources, view)
            | request_traits(call, tool, view, sources)
            | contrary_traits(call, view, sources)
            | date_traits(call, sources)
            | steps_of(call, view)
            | schema_of(call, tool, view)
            | rule_traits(call, tool, view, sources, sentences)
        )
    worst = {name: max(one[name] for one in each) for name in each[0]}
    return worst | leftover_traits(view, sources) | turn_traits(view, sources)


def array_of(named: dict[str, float]) -> Floats:
    """Return traits as an array (TRAITS,), clipped to +-100, with 0 for nan.

    The names are not read: `named` must hold every trait, in the array's order.
    """
    values = np.fromiter(named.values(), dtype=np.float32, count=len(named))
    return np.nan_to_num(np.clip(values, -100, 100))


def _names() -> tuple[str, ...]:
    """Return the names of the traits, from those of an empty conversation."""
    view = View()
    return tuple(named_traits(view, sources_of(view)))


NAMES: Sequence[str] = _names()


TRAITS = len(NAMES)
