"""The findings of a calibrator about a reply besides its confidence.

They come from a scorer that may be on another machine and go into responses. Unknown names are
therefore left out, and quotes of the reply are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from calibrator import (
    ACTS,
    OPINIONS,
    CallNotes,
    Item,
    Score,
    UnsupportedSentence,
    basis_with,
)

UNFAMILIAR_TASK: Final = "unfamiliar_task"
"""The reason of a confidence for a kind of task that the calibrator was not trained on."""
LONG_TEXT: Final = "long_text"
MOST_SENTENCES: Final = 5  # unsupported sentences of a reply
LONGEST_SENTENCE: Final = 300  # characters
MOST_WORDS: Final = 10  # unsupported words of a sentence
LONGEST_WORD: Final = 60  # characters; several words in a row count as one
KINDS: Final = ("missing", "contradicted")
_REASON: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ELLIPSIS: Final = ".."


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about a reply besides its confidence; empty if there is no confidence.

    `basis` lists what the confidence is based on, from `calibrator.BASES`. `support` is the
    probability that the context supports the reply, and `unsupported` the sentences that it does
    not support. `act` is what the reply does. `needs_facts` says whether only outside evidence can
    settle the question, `is_familiar` whether the calibrator was trained on this kind of task.
    """

    basis: tuple[str, ...] = ()
    support: float | None = None
    unsupported: tuple[UnsupportedSentence, ...] = ()
    act: str | None = None
    needs_facts: bool | None = None
    is_familiar: bool | None = None

    columns: tuple[Any, ...] = field(init=False, compare=False, repr=False)
    """The values of the record's columns: support, basis, act, needs_facts, is_familiar."""

    def __post_init__(self) -> None:
        """Compute `columns` once, since a few findings are shared by many replies."""
        flags = (
            None if each is None else int(each) for each in (self.needs_facts, self.is_familiar)
        )
        columns = (self.support, ",".join(self.basis) or None, self.act, *flags)
        object.__setattr__(self, "columns", columns)

    def with_opinions(self) -> Findings:
        """Return the findings with "opinions" added to `basis`.

        Unchanged if the basis is empty or has it already.
        """
        if not self.basis or OPINIONS in self.basis:
            return self
        return replace(self, basis=basis_with(self.basis, OPINIONS))


NOTHING: Final = Findings()


def findings_of(score: Score) -> Findings:
    """Return what a score says besides its confidence, such as unsupported sentences.

    Texts are cut and unknown names replaced, because the scorer may be on another machine.
    """
    plain = _plain(score.basis, score.act, score.needs_facts, score.is_unfamiliar)
    if score.support is None and not score.unsupported:
        return plain
    support = score.support
    if support is not None and not 0 <= support <= 1:  # also true for NaN
        support = None
    unsupported = tuple(map(_limit_sizes, score.unsupported[:MOST_SENTENCES]))
    return replace(plain, support=support, unsupported=unsupported)


def calls_tools(item: Item) -> bool:
    """Return whether a reply calls tools."""
    return item.tool_use is not None and item.tool_use.has_calls


def notes_of(item: Item) -> tuple[CallNotes, ...] | None:
    """Compute marks and risks of a reply's tool calls, for a calibrator that gives none.

    None if the item has no tool use.
    """
    if item.tool_use is None:
        return None
    from calibrator import call_notes  # imported here because it loads numpy

    return call_notes(item.tool_use)


@lru_cache(maxsize=1_024)
def _plain(basis: tuple[str, ...], act: str, needs_facts: bool, is_unfamiliar: bool) -> Findings:
    """Return findings without any text of the reply; cached because there are few different ones.

    An unknown `act` becomes "answer".
    """
    kind = act if act in ACTS else "answer"
    return Findings(basis_with(basis), None, (), kind, needs_facts, not is_unfamiliar)


def _limit_sizes(sentence: UnsupportedSentence) -> UnsupportedSentence:
    """Return a sentence with its texts cut, at most ten words, and a known `kind`."""
    words = tuple(_cut(word, LONGEST_WORD) for word in sentence.words[:MOST_WORDS])
    kind = sentence.kind if sentence.kind in KINDS else KINDS[0]
    return UnsupportedSentence(_cut(sentence.sentence, LONGEST_SENTENCE), words, kind)


def _cut(text: str, most: int) -> str:
    """Return the text, or its beginning with `..` at the end, at most `most` characters."""
    return text if len(text) <= most else text[: most - len(_ELLIPSIS)] + _ELLIPSIS


def unread_reason(score: Score) -> str | None:
    """Return which part of a reply was not read, such as `long_text`; None if not given.

    None also for anything but a short machine word.
    """
    return score.unread if _REASON.fullmatch(score.unread) else None


def unsupported_values(unsupported: Iterable[UnsupportedSentence]) -> list[dict[str, Any]]:
    """Return unsupported sentences as JSON values."""
    return [
        {"sentence": each.sentence, "words": list(each.words), "kind": each.kind}
        for each in unsupported
    ]


def read_unsupported(values: Any) -> tuple[UnsupportedSentence, ...]:
    """Read the values of `unsupported_values`, skipping those that cannot be read.

    They may come from another machine.
    """
    if not isinstance(values, list):
        return ()
    return tuple(
        _limit_sizes(
            UnsupportedSentence(each["sentence"], _texts(each.get("words")), str(each.get("kind")))
        )
        for each in values[:MOST_SENTENCES]
        if isinstance(each, Mapping) and isinstance(each.get("sentence"), str)
    )


def _texts(values: Any) -> tuple[str, ...]:
    items = values if isinstance(values, list) else ()
    return tuple(each for each in items[:MOST_WORDS] if isinstance(each, str))


def findings_values(findings: Findings) -> dict[str, Any]:
    """Return findings as a JSON object, without members that are unknown or empty."""
    values = {
        "support": findings.support,
        "basis": list(findings.basis) or None,
        "unsupported": unsupported_values(findings.unsupported) or None,
        "act": findings.act,
        "needs_facts": findings.needs_facts,
        "familiar": findings.is_familiar,
    }
    return {name: value for name, value in values.items() if value is not None}


def findings_from(values: Mapping[str, Any]) -> Findings:
    """Build findings from an object of `findings_values`; missing members are unknown."""
    return Findings(
        tuple(values.get("basis", ())),
        values.get("support"),
        read_unsupported(values.get("unsupported")),
        values.get("act"),
        values.get("needs_facts"),
        values.get("familiar"),
    )
