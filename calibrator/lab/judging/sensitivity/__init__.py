"""Measures of how a scorer's confidence falls when the reply is no longer right.

Right replies are made wrong in one respect (`calibrator.lab.data.corruptions`, and
`calibrator.readers.calls` for replies that call tools), and sixty everyday questions have a right
and a wrong answer each. Other packages use the names below; the answer swap (paper L04) is in
`studies/`.
"""

from calibrator.lab.judging.sensitivity.app_replies import AppReplies, app_replies
from calibrator.lab.judging.sensitivity.everyday import EverydayFigures, everyday_questions
from calibrator.lab.judging.sensitivity.figures import (
    KindFigures,
    Sensitivity,
    figures_of_kind,
    mean_of_kind,
    read_sensitivity,
)
from calibrator.lab.judging.sensitivity.measure import items_to_score, measure, sensitivity_of
from calibrator.lab.judging.sensitivity.pairs import ReplyPair, pairs_of

__all__ = [
    "AppReplies",
    "EverydayFigures",
    "KindFigures",
    "ReplyPair",
    "Sensitivity",
    "app_replies",
    "everyday_questions",
    "fields",
    "figures_of_kind",
    "items_to_score",
    "mean_of_kind",
    "measure",
    "pairs_of",
    "read_sensitivity",
    "reasons",
    "sensitivity_of",
    "tables",
]
