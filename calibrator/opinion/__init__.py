"""The second stage, which weighs a reply against other replies to the same question.

Other packages use `OpinionReader`, which serves, and `compare` for two `final_answer`s. `training`
and `training/stages/` make the arrays of its `SecondStage`.
"""

from calibrator.opinion.answers import Answer, final_answer
from calibrator.opinion.comparison import Comparison, Outcome, compare
from calibrator.opinion.reader import OpinionReader
from calibrator.opinion.second_stage import PREFIX, SecondStage

__all__ = [
    "PREFIX",
    "Answer",
    "Comparison",
    "OpinionReader",
    "Outcome",
    "SecondStage",
    "answers",
    "compare",
    "final_answer",
    "reader",
    "second_stage",
    "training",
]
