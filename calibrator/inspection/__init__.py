"""Looks at a reply: whether it answers its question, and whether it contradicts itself.

Other rooms use `Inspector`, which serves; `training` makes its arrays, from `lessons` and by a
`config`.
"""

from calibrator.inspection.inspector import (
    CHECKS,
    DOUBTED,
    PREFIX,
    Check,
    Inspected,
    Inspector,
    inspect,
)

__all__ = [
    "CHECKS",
    "DOUBTED",
    "PREFIX",
    "Check",
    "Inspected",
    "Inspector",
    "config",
    "inspect",
    "lessons",
    "training",
]
