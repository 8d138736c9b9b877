"""What was said, as the question and the answer that are scored."""

__all__ = ["addressed_text", "images", "layout", "replies", "restated_question", "transcript"]
