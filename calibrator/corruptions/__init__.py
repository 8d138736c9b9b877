"""Right replies made wrong in one respect, by rule, so that their labels come for free.

Training learns from them, and `pinocchio evaluate --sensitivity` measures by how much a confidence
falls. Other rooms use `corrupted`, `KINDS` and `Corruption`; each kind has a function of its own
that takes a reply and gives it back changed, or None where the kind does not apply.
"""

from calibrator.corruptions.kinds import KINDS, TAUGHT_KINDS, Corruption, corrupted

__all__ = ["KINDS", "TAUGHT_KINDS", "Corruption", "corrupted", "options", "sentences"]
