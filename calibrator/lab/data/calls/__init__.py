"""Calls that are right or wrong by construction: corruptions of right calls, and whole scenes.

Other packages use `corrupted_calls`, and in training `lessons_of`.
"""

from calibrator.lab.data.calls.corruptions import corrupted_calls
from calibrator.lab.data.calls.lessons import CallLesson, lessons_of

__all__ = [
    "CallLesson",
    "corrupted_calls",
    "corruptions",
    "disguises",
    "domains",
    "drafts",
    "lessons",
    "lessons_of",
    "replies",
    "stages",
    "taken_away",
    "worlds",
]
