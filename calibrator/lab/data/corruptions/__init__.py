"""Corruptions: right replies made wrong in one respect, by rule, with labels that cost nothing.

Training learns from them, and `pinocchio evaluate --sensitivity` measures how far a confidence
falls. Other packages use `corrupt_rows`, `KINDS` and `Corruption`. Each kind has a function that
returns a changed reply, or None where the kind does not apply.
"""

from calibrator.lab.data.corruptions.kinds import KINDS, TAUGHT_KINDS, Corruption, corrupt_rows

__all__ = ["KINDS", "TAUGHT_KINDS", "Corruption", "corrupt_rows", "sentences"]
