"""The check of an agent's tool calls: traits of the conversation and the call, and trees.

Other packages use `CallTrees`, which serves, and `reasons`, `argument_doubts` and `notes_of` on the
result of `read_reply`. `training.fit_calls` makes the arrays.
"""

from calibrator.readers.calls.model import PREFIX, CallTrees
from calibrator.readers.calls.notes.marks import notes_of
from calibrator.readers.calls.reading.traits import CallReply, read_reply
from calibrator.readers.calls.reasons import MOST as MOST_REASONS
from calibrator.readers.calls.reasons import argument_doubts, reasons

__all__ = [
    "MOST_REASONS",
    "PREFIX",
    "CallReply",
    "CallTrees",
    "argument_doubts",
    "model",
    "notes_of",
    "read_reply",
    "reasons",
]
