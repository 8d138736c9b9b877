"""The facts of one choice of one completion, which a policy may look at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from policies.conditions.tool_names import spellings

PATCH: Final = "*** Begin Patch"  # the beginning of patches by Codex's models
UNREADABLE: Final = object()
"""The value of arguments that are no JSON object, or JSON that two readers may read differently.

Some servers encode arguments twice, and some clients decode them until they find an object: the
tool would then get a value that no rule has seen.
"""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asks for; `arguments` is the JSON text as it arrived.

    `readings` are the other names under which a client may look the tool up, none for a tool that
    the request offers. It is None for an unknown tool; its other names then follow from its name.
    `project` is the folder that the agent works in, where the request names it.

    `marks` are the signs that the call is wrong, the strongest first, each with the argument that
    it is about or an empty text; they are None where nothing was checked. `risk` is low, medium or
    high, or None likewise.
    """

    name: str
    arguments: str = "{}"
    readings: tuple[str, ...] | None = field(default=None, compare=False)
    project: str | None = field(default=None, compare=False)
    marks: tuple[tuple[str, str], ...] | None = field(default=None, compare=False)
    risk: str | None = field(default=None, compare=False)
    _read: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def values(self) -> Any:
        """Return the arguments as a dict, decoded on the first call and kept, or UNREADABLE."""
        if not self._read:
            self._read.append(decode_arguments(self.arguments))
        return self._read[0]

    def other_names(self) -> tuple[str, ...]:
        """Return the names beside `name` under which a client may look the tool up, often ().

        These are `readings`, or the spellings of the name where `readings` is None.
        """
        return spellings(self.name) if self.readings is None else self.readings


@dataclass(slots=True)  # not frozen: made for every completion, and twice as fast
class Facts:
    """The facts that rules are matched against, taken before a policy changes anything.

    `confidence` is P(correct), 0 to 1, or None where there is no score. Any other number, NaN
    included, becomes None: a broken scorer must not pass for a sure one.

    `model`, `stream`, `n`, `domain`, `tags`, `team` and `key` describe the request and so are the
    same for the reply of a stronger model after an escalation: `model` is the one that the client
    asked for, `key` the name of the client's key, never its secret.

    `length` counts the characters of the reply's text, without tool calls. `share_below` is the
    share of recent replies that were less sure (`RecentConfidences`), `calibrator` the version of
    checkpoint and recalibration that gave the confidence, as in its header. `conversation`
    identifies the conversation of a reply; no rule looks at it.

    Where others answered the same question, `alone` is the confidence without their answers, given
    by `alone_calibrator`, and `opinions` holds for each whether it agrees: `agree`, `differ` or
    `untold`. `alone_score` is the calibrator's own score before a recalibration turned it into
    `alone`; it is None without a recalibration. No rule looks at these.

    `judged` is P(correct) by a model that was asked to judge, `judge` names it, and `logprobs` are
    the mean and the lowest log-probability of the reply's tokens. Where these signals moved the
    confidence, `unaided` is the one without them, given by `unaided_calibrator`, and
    `unaided_score` the calibrator's own score before a recalibration. No rule looks at them.

    The calibrator's other findings: `support` is the probability that the context supports
    the reply, None without context; `basis` lists what the confidence is based on; `act` is what
    the reply does; `needs_facts` says whether only outside evidence can settle the question; and
    `familiar` says whether the calibrator was trained on this kind of task. Without a score, all of
    these are unknown.
    """

    confidence: float | None
    model: str
    tools: tuple[ToolCall, ...] = ()
    stream: bool = False
    finish_reason: str | None = None
    n: int = 1
    domain: str | None = None
    tags: frozenset[str] = frozenset()
    team: str | None = None
    key: str | None = None
    refusal: bool = False
    length: int = 0
    share_below: float | None = None
    calibrator: str | None = None
    conversation: str | None = None
    support: float | None = None
    basis: tuple[str, ...] = ()
    act: str | None = None
    needs_facts: bool | None = None
    familiar: bool | None = None
    alone: float | None = None
    alone_calibrator: str | None = None
    alone_score: float | None = None
    opinions: tuple[str, ...] = ()
    judged: float | None = None
    judge: str | None = None
    logprobs: tuple[float, ...] = ()
    unaided: float | None = None
    unaided_calibrator: str | None = None
    unaided_score: float | None = None

    def __post_init__(self) -> None:
        """Replace a confidence outside 0 to 1, or NaN, by None."""
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            self.confidence = None


def decode_arguments(arguments: str) -> Any:
    """Return a call's arguments, a JSON text, as a dict; blank ones are an empty dict.

    A patch (`*** Begin Patch`) gives `{"input": arguments}`. Return UNREADABLE for anything else
    that is no JSON object, also for a repeated key, NaN or Infinity.
    """
    text = arguments.lstrip()
    if not text:
        return {}  # some models write a call without arguments like this
    if text.startswith(PATCH):
        return {"input": arguments}  # such a tool takes a patch instead of JSON
    values = decoded_json(arguments)
    return values if isinstance(values, dict) else UNREADABLE


def decoded_json(text: str) -> Any:
    """Return the JSON value of a text, or UNREADABLE for invalid JSON.

    A repeated key, NaN, Infinity and nesting too deep for the parser count as invalid.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return UNREADABLE


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict. Raises ValueError for a repeated key.

    Of two equal keys, the tool may take either.
    """
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"{key!r} is there twice")
        values[key] = value
    return values


def _no_constant(name: str) -> None:
    """Raise ValueError for a constant that JSON lacks, such as `NaN`."""
    raise ValueError(f"{name} is no JSON")
