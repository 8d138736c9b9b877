"""The basis of a stored reply's confidence, in words for a reviewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from calibrator import LIKENESS
from proxy.holds.kept_scores import kept_score, kept_values

IN_WORDS: Final = {
    "context": "the text that the model was given",
    "computed": "what can be computed",
    "facts": "known facts",
    "opinions": "the answers of other models",
    "calls": "its calls and the conversation before them",
    "likeness": "its likeness to replies that were right or wrong",
}
NAMES: Final = (
    *("status", "reason", "support", "basis", "unsupported"),
    *("because", "act", "needs_facts", "familiar"),
)
OWN_CURVE: Final = "platt@"  # a checkpoint's own curve, fitted on its training data
OPINIONS_READ: Final = "opinion@"
UNFAMILIAR: Final = "The calibrator was not trained on tasks of this kind."
NOT_CHECKED: Final = "Nothing about this reply was checked."
NOT_KNOWN: Final = "What was checked about this reply is not on record."


class StoredReply(Protocol):
    """A stored reply, whole or as an entry of the queue."""

    @property
    def confidence(self) -> float | None: ...
    @property
    def calibrator(self) -> str | None: ...
    @property
    def findings(self) -> str | None: ...


def score_facts(held: StoredReply) -> dict[str, Any]:
    """Return what is known of a score besides the number, named as in a response.

    The names are those of `NAMES`, and `meaning`, a sentence. Unknown values are None.
    """
    kept = kept_values(held.findings)
    return {**{name: kept.get(name) for name in NAMES}, "meaning": meaning(held)}


def meaning(held: StoredReply) -> str | None:
    """Return a sentence that says what a confidence means; None without a confidence.

    It promises a share of correct replies only where that was measured: on tasks that the
    calibrator knows, if something about the reply was checked or labels of this deployment showed
    what the number means. Otherwise it says what was checked.
    """
    if held.confidence is None:
        return None
    findings = kept_score(held.confidence, held.findings).findings
    checked = [each for each in findings.basis if each != LIKENESS]
    is_familiar = findings.is_familiar is not False
    if is_familiar and (checked or is_learnt_here(held.calibrator)):
        return f"Of a hundred replies like this, about {round(held.confidence * 100)} are correct."
    sentence = NOT_CHECKED if findings.basis else NOT_KNOWN
    if checked:
        sentence = f"Checked against {in_words(checked)}."
    return sentence if is_familiar else f"{sentence} {UNFAMILIAR}"


def in_words(basis: Sequence[str]) -> str:
    """Return the basis of a confidence in words: `known facts and the answers of other models`."""
    *others, last = (IN_WORDS.get(each, each) for each in basis)
    return f"{', '.join(others)} and {last}" if others else last


def is_learnt_here(calibrator: str | None) -> bool:
    """Return whether labels of this deployment taught a calibrator what its numbers mean.

    Its name then has a recalibration behind the checkpoint. A Platt curve directly behind it
    belongs to the checkpoint, as in `embedded@3f2a91c0+platt@9c1d02ab`, and so does a second stage
    for opinions. So a further one is needed: `embedded@3f2a91c0+platt@9c1d02ab+platt@51e2aa07`.
    """
    _, *parts = (calibrator or "").split("+")
    if parts and parts[0].startswith(OWN_CURVE):
        del parts[0]
    return any("@" in part and not part.startswith(OPINIONS_READ) for part in parts)


def mark_words(sentence: str, words: Sequence[str]) -> list[tuple[str, bool]]:
    """Split a sentence into (piece, whether it is one of the words); case is ignored.

    The pieces together are the sentence.
    """
    low, places = sentence.lower(), [False] * len(sentence)
    if len(low) != len(sentence):  # a few letters become two in lower case
        low = sentence
    for word in words:
        position, at = word.lower(), -1
        while position and (at := low.find(position, at + 1)) >= 0:
            places[at : at + len(position)] = [True] * len(position)
    pieces: list[tuple[str, bool]] = []
    for character, is_marked in zip(sentence, places, strict=True):
        if pieces and pieces[-1][1] is is_marked:
            pieces[-1] = pieces[-1][0] + character, is_marked
        else:
            pieces.append((character, is_marked))
    return pieces
