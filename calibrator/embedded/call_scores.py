"""The score of a reply that calls tools: by the trees, and less where the request says otherwise.

The trees judge form and origin: where values come from, what was done before. Some marks compare
a call with the words of the request: a role that the user did not name, the other direction,
another date. Right calls hardly ever have one, so each reply with such a mark is lowered alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from calibrator.readers.calls import MOST_REASONS, CallReply, argument_doubts, notes_of, reasons
from calibrator.readers.inspection import DOUBTED
from calibrator.recalibration.curves import sigmoid
from calibrator.scorer import CALLS, CallNotes, Score, ToolUse

FIELDS_BELOW: Final = 0.9  # confidence under which arguments are looked at one by one
CONTRADICTING: Final = frozenset(
    {
        "swapped",
        "other_choice",
        "contrary",
        "other_number",
        "other_date",
        "other_record",
        "other_tool",
        "wider",
        "ruled_out",
        "limit_passed",
    }
)
"""Marks of calls that do something else than the request or the instructions say."""

SHIFT: Final = -2.0  # log-odds of a reply with such a mark


def score_of(
    reply: CallReply, odds: float, numbers: Callable[[Sequence[ToolUse]], Sequence[float]]
) -> Score:
    """Return the score of a reply that calls tools, from its log-odds `odds` by the trees.

    A mark that contradicts the request (such as `other_date`) lowers them by 2. Reasons are given
    below `DOUBTED`; doubts about arguments (`fields`) if the trees give less than 0.9, for which
    `numbers` returns the trees' confidences in edited replies.
    """
    notes = notes_of(reply)
    against = contradictions(notes or ())
    by_trees = float(sigmoid(odds))
    score = float(sigmoid(odds + SHIFT)) if against else by_trees
    found = dict.fromkeys([*against, *reasons(reply)]) if score < DOUBTED else {}
    return Score(
        score,
        score,
        basis=(CALLS,),
        because=tuple(found)[:MOST_REASONS],
        fields=argument_doubts(reply, by_trees, numbers) if by_trees < FIELDS_BELOW else (),
        notes=notes,
    )


def contradictions(notes: tuple[CallNotes, ...]) -> list[str]:
    """Return the texts of the marks on all calls that contradict the request.

    Such a text is `role: the user named viewer`.
    """
    return [mark.text for each in notes for mark in each.marks if mark.name in CONTRADICTING]
