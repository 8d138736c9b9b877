"""The inspector: checks whether a reply answers its question, and whether it contradicts itself.

Other packages use `Inspector`, which serves. `training` fits its arrays on `lessons` with a
`config`.
"""

from calibrator.readers.inspection.inspector import (
    CHECKS,
    DOUBTED,
    PREFIX,
    Check,
    Inspection,
    Inspector,
    inspect,
)

__all__ = [
    "CHECKS",
    "DOUBTED",
    "PREFIX",
    "Check",
    "Inspection",
    "Inspector",
    "inspect",
    "inspector",
    "relevance",
]
