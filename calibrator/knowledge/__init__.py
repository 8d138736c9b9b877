"""What a small encoder knows of short factual replies.

Other rooms use `Knowledge`, which serves; training needs the modules named below.
"""

from calibrator.knowledge.knowledge import PREFIX, Knowledge

__all__ = ["PREFIX", "Knowledge", "knowledge", "lessons", "pairs"]
