"""Whether the context of a reply supports it: documents, rules, results of tools.

`Support` judges; training uses the modules named below.
"""

from calibrator.evidence.context.reader import Cutter
from calibrator.evidence.context.support import Judgement, Support

__all__ = [
    "Cutter",
    "Judgement",
    "Support",
    "comparison",
    "passages",
    "pieces",
    "reader",
    "support",
]
