"""What a model is told that has to revise its reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.scoring.scoring import Confidence

MOST: Final = 6  # problems that are named
LONGEST: Final = 300  # characters of each
_TEXT: Final = (
    "Your reply has not reached the user: a check found that it may be wrong.",
    "Reply to the user's last message again, with this corrected. Use only what the conversation "
    "says; where it does not say enough, say so. Do not mention this check.",
)
_CALLS: Final = (
    "Not executed: a check found that this call may be wrong.",
    "Compare it with the conversation. Call again with the right arguments, look up what is "
    "missing, or ask the user.",
)


def problems_of(confidence: Confidence | None, *, has_calls: bool) -> str:
    """Return what is wrong with a reply, as the model that has to reply again reads it."""
    named = dict.fromkeys(_problems(confidence) if confidence else ())
    found = [each[:LONGEST] for each in named][:MOST]
    first, last = _CALLS if has_calls else _TEXT
    return "\n".join([first, *(f"- {each}" for each in found), last])


def _problems(confidence: Confidence) -> Iterator[str]:
    """Yield marks of calls, sentences without support, and other facts."""
    for notes in confidence.notes or ():
        for mark in notes.marks:
            yield mark.text
    for each in confidence.findings.unsupported:
        what = "contradicted by" if each.kind == "contradicted" else "not in"
        yield f"{what} the given text: {each.sentence}"
    yield from confidence.because
