"""Looks at a reply: whether it answers its question, and whether it agrees with itself.

Other rooms use `Inspector`, which serves; `training` makes its arrays.
"""

from calibrator.inspection.inspector import PREFIX, Inspector, inspect

__all__ = ["PREFIX", "Inspector", "inspect"]
