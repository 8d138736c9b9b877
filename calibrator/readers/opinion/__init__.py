"""The second stage, which weighs a reply against other replies to the same question.

Other packages use `OpinionReader`, which serves, and `compare` for two `final_answer`s. `training`
and `training/stages/` make the arrays of its `SecondStage`.
"""

from calibrator.readers.opinion.answers import FinalAnswer, final_answer
from calibrator.readers.opinion.evidence import AnswerComparison, Outcome, compare
from calibrator.readers.opinion.second_stage import PREFIX, OpinionReader, SecondStage

__all__ = [
    "PREFIX",
    "AnswerComparison",
    "FinalAnswer",
    "OpinionReader",
    "Outcome",
    "SecondStage",
    "answers",
    "compare",
    "evidence",
    "final_answer",
    "second_stage",
]
