"""The check whether the context of a reply supports it: documents, rules, results of tools.

`Support` judges; training uses the modules named below.
"""

from calibrator.readers.evidence.context.support import Cutter, Judgement, Support, own_document

__all__ = [
    "Cutter",
    "Judgement",
    "Support",
    "comparison",
    "own_document",
    "passages",
    "support",
]
