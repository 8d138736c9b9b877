"""Read conversations and replies, and prepare the question and the answer that are scored."""

__all__ = [
    "addressed_text",
    "asides",
    "guarded",
    "images",
    "looking_for",
    "options",
    "replies",
    "restated_question",
    "transcript",
    "word_pieces",
]
