"""Calls whose labels are known because we made them: corruptions of right ones, and whole scenes.

Other rooms use `corrupted_calls`, and in training `lessons_of`.
"""

from calibrator.calls.making.corruptions import corrupted_calls
from calibrator.calls.making.lessons import Lesson, lessons_of

__all__ = [
    "Lesson",
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
