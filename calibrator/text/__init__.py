"""Read conversations and replies, and prepare the question and the answer that are scored."""

__all__ = [
    "asides",
    "guarded",
    "images",
    "looking_for",
    "options",
    "replies",
    "stripping",
    "transcript",
    "word_pieces",
]
