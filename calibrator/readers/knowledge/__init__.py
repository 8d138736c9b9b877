"""The knowledge of a small encoder about short factual replies.

Other packages use `Knowledge`, which serves; training needs the modules named below.
"""

from calibrator.readers.knowledge.knowledge import PREFIX, Knowledge

__all__ = ["PREFIX", "Knowledge", "knowledge"]
