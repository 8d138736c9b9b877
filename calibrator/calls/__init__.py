"""Whether an agent's call of tools is right: traits of the conversation and the call, and trees.

Other rooms use `CallTrees`, which serves, and `reasons`, `argument_doubts` and `notes_of` of what
`read_reply` gives; with `corrupted_calls`, `evaluate` asks what a calibrator sees;
`training.fit_calls` makes the arrays.
"""

from calibrator.calls.fields import argument_doubts
from calibrator.calls.model import PREFIX, CallTrees
from calibrator.calls.notes.notes import notes_of
from calibrator.calls.reading.reply import ReadReply, read_reply
from calibrator.calls.reasons import reasons

__all__ = [
    "PREFIX",
    "CallTrees",
    "ReadReply",
    "argument_doubts",
    "corrupted_calls",
    "model",
    "notes_of",
    "read_reply",
    "reasons",
    "training",
]


def __getattr__(name: str) -> object:
    if name == "corrupted_calls":  # which serving does without
        from calibrator.calls.making import corrupted_calls

        return corrupted_calls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
