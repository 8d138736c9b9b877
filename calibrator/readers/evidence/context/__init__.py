"""The check whether the context of a reply supports it: documents, rules, results of tools.

`Support` judges; training uses the modules named below.
"""

from calibrator.readers.evidence.context.pieces import own_document
from calibrator.readers.evidence.context.reader import Cutter
from calibrator.readers.evidence.context.support import Judgement, Support

__all__ = [
    "Cutter",
    "Judgement",
    "Support",
    "comparison",
    "own_document",
    "passages",
    "pieces",
    "reader",
    "support",
]
